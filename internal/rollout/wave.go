package rollout

import (
	"slices"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// maxWave bounds the domains of a wave, whose names Memory stores.
const maxWave = 500

// waveSize returns the number of domains of the next wave.
func (r *run) waveSize() int {
	w := r.Spec.Waves
	if w.All {
		return maxWave
	}
	if !w.Exponential {
		return max(1, w.Domains)
	}
	size := 1
	for 2*size <= min(int(r.memory.ProvenDomains)+1, maxWave) && (w.Most <= 0 || 2*size <= w.Most) {
		size *= 2
	}
	return size
}

// begin starts the next wave if it may.
func (r *run) begin() bool {
	r.enter(v1alpha1.PhaseWaiting, "", nil)
	if wait := r.replaceFirst(); wait.For != WaitNone || len(r.memory.Replacements) > 0 {
		r.requestAll(wait)
		return false
	}
	for _, d := range r.domains {
		if len(d.old) == 0 && d.Unavailable > 0 {
			r.step.Wait = Wait{For: WaitEarlier, Domain: d.Name, Pod: d.down[0], More: len(d.down) - 1}
			r.againHealthy()
			return false
		}
	}
	if len(r.anywhere) > 0 {
		r.step.Wait = Wait{For: WaitMissing, Pod: r.anywhere[0], More: len(r.anywhere) - 1}
		if slices.ContainsFunc(r.Pods, func(p Pod) bool { return p.Name == r.anywhere[0] && !p.Terminating }) {
			r.step.Wait.For = WaitUnplaced
		}
		return false
	}
	if r.now.Before(r.Shift.Until) && !r.memory.RollingBack {
		r.step.Wait = Wait{For: WaitShift, Shift: r.Shift, Until: r.Shift.Until}
		r.again(r.Shift.Until)
		return false
	}
	if !r.queryAllows() {
		return false
	}
	next := r.outstanding[:min(len(r.outstanding), r.waveSize())]
	if r.Spec.MaxOverload != nil {
		for _, d := range next {
			r.step.Foresee = append(r.step.Foresee, d.Name)
		}
	}
	var wave []string
	for _, d := range next {
		if wait := r.holds(d.Name); wait.For != WaitNone {
			if len(wave) > 0 {
				break
			}
			if wait.For == WaitApproval {
				r.enter(v1alpha1.PhasePaused, RolloutPaused, []string{d.Name})
			}
			r.step.Wait = wait
			return false
		}
		wave = append(wave, d.Name)
	}
	// The approval is not read again: a started wave continues.
	r.memory.CurrentDomains = wave
	r.memory.Wave++
	r.say(Event{Type: WaveBegan, Domains: wave, Overload: r.expected(wave)})
	return true
}

// expected returns the overload that is expected of a wave, nil without a limit.
func (r *run) expected(wave []string) *float64 {
	if r.Spec.MaxOverload == nil {
		return nil
	}
	worst := 0.0
	for _, name := range wave {
		worst = max(worst, r.Overload[name])
	}
	return &worst
}

// holds returns what a domain waits for before it starts.
func (r *run) holds(name string) Wait {
	if r.needsApproval(name) {
		return Wait{For: WaitApproval, Domain: name}
	}
	if r.Spec.MaxOverload == nil {
		return Wait{}
	}
	load, known := r.Overload[name]
	switch {
	case !known:
		return Wait{For: WaitPlan, Domain: name}
	case load > *r.Spec.MaxOverload:
		return Wait{For: WaitOverload, Domain: name, Overload: load, MaxOverload: *r.Spec.MaxOverload}
	}
	return Wait{}
}

// needsApproval reports whether a person must approve a domain.
func (r *run) needsApproval(name string) bool {
	a := &r.Spec.Approved
	return !r.memory.RollingBack && slices.Contains(r.Spec.PauseBefore, name) && (a.Revision != r.memory.Revision || !slices.Contains(a.Domains, name))
}
