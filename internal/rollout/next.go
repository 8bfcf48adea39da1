package rollout

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// Next returns what to do now.
func Next(s *State, now time.Time) Step {
	r := newRun(s, now)
	r.observeRevision()
	r.trackReplacements()
	r.measure()
	r.forgive()
	r.before = r.memory.Phase
	switch {
	case len(s.Slots) == 0 && len(s.Pods) == 0:
		r.memory.CurrentDomains, r.memory.Replacements = nil, nil
		r.complete()
	case len(r.memory.CurrentDomains) == 0 && r.isAllUpdated() && r.stops() != Rollback:
		r.complete()
	case r.isStopped():
		r.stop()
	case s.Spec.Paused:
		r.memory.BakingSince = nil // the health of pods is not followed meanwhile
		r.enter(v1alpha1.PhasePaused, RolloutPaused, nil)
		r.halt(v1alpha1.PhasePaused, Wait{For: WaitPaused})
	case r.hasFailed():
		r.fail()
	default:
		r.goOn()
	}
	if r.before == v1alpha1.PhasePaused && r.memory.Phase != v1alpha1.PhasePaused && r.memory.Phase != v1alpha1.PhaseAborted {
		r.step.Events = slices.Insert(r.step.Events, 0, Event{Type: RolloutResumed})
	}
	r.describe()
	return r.step
}

// run is one Next.
type run struct {
	*State
	now    time.Time
	stored time.Time             // now, as Memory keeps it
	memory *Memory               // of the step
	before v1alpha1.RolloutPhase // of the last step, Waiting for a new revision
	step   Step

	index map[string]int // of slots
	pods  map[string][]*Pod
	// domains are in the order of updates.
	domains     []*domain
	byName      map[string]*domain
	outstanding []*domain // domains with pods to update
	// anywhere counts slots that lack a pod of an unknown domain.
	anywhere []string
	// broken is the first slot without an available pod, len(Slots) without one.
	broken int
	// unapproved is the domain of its pod, if a person must approve the domain before the pod is replaced.
	unapproved string
}

// domain has the numbers of a domain.
type domain struct {
	Name                                string
	Pods, Updated, Healthy, Unavailable int

	old      []*Pod // not of the revision, and not terminating
	inFlight int    // replacements
	down     []string
}

func newRun(s *State, now time.Time) *run {
	// A stored time has whole seconds. A fraction would make a step without changes look like a change.
	r := &run{State: s, now: now, stored: now.Truncate(time.Second), index: map[string]int{}, pods: map[string][]*Pod{}, byName: map[string]*domain{}}
	r.step.Memory = s.Memory
	r.memory = &r.step.Memory
	r.memory.AbandonedRevisions = slices.Clone(s.Memory.AbandonedRevisions)
	r.memory.CurrentDomains = slices.Clone(s.Memory.CurrentDomains)
	r.memory.Replacements = slices.Clone(s.Memory.Replacements)
	if r.memory.Phase == v1alpha1.PhaseInvalid {
		r.memory.Phase = phaseBefore(r.memory)
	}
	for i := range s.Slots {
		r.index[s.Slots[i].Name] = i
	}
	for i := range s.Pods {
		p := &s.Pods[i]
		r.pods[p.Slot] = append(r.pods[p.Slot], p)
	}
	return r
}

// phaseBefore returns the phase that a rollout had before it became invalid. Only completeness matters: a complete rollout leaves a
// revision to roll back to.
func phaseBefore(m *Memory) v1alpha1.RolloutPhase {
	isLeft := func(d v1alpha1.RolloutDomain) bool { return d.State != v1alpha1.DomainDone }
	if len(m.CurrentDomains) > 0 || len(m.Replacements) > 0 || m.Failure != nil || slices.ContainsFunc(m.Domains, isLeft) {
		return v1alpha1.PhaseWaiting
	}
	return v1alpha1.PhaseComplete
}

// isHealthy reports whether a pod has been ready for long enough.
func (r *run) isHealthy(p *Pod) bool {
	// Since comes from the clock of a node, which may be ahead.
	return p.Ready && !p.Terminating && (r.Spec.ReadyFor == 0 || !r.now.Before(p.Since.Add(r.Spec.ReadyFor)))
}

// isAvailable reports whether a pod serves and is expected to continue.
func (r *run) isAvailable(p *Pod) bool {
	return p.Ready && !p.Terminating && (p.Revision != r.Revision || r.isHealthy(p))
}

// again bounds the time of the next step.
func (r *run) again(at time.Time) {
	if at.After(r.now) && (r.step.Again.IsZero() || at.Before(r.step.Again)) {
		r.step.Again = at
	}
}

func (r *run) say(e Event) { r.step.Events = append(r.step.Events, e) }

// enter sets the phase, with an event when it changes.
func (r *run) enter(phase v1alpha1.RolloutPhase, event EventType, domains []string) {
	if r.before != phase && event != "" {
		r.say(Event{Type: event, Domains: domains, Failure: r.memory.Failure})
	}
	r.memory.Phase = phase
}

// complete ends the rollout: all pods are of the revision.
func (r *run) complete() {
	event := RolloutComplete
	if r.Memory.Revision == "" { // complete before the first step
		event = ""
	}
	r.enter(v1alpha1.PhaseComplete, event, nil)
	r.memory.Failure, r.memory.RollingBack, r.memory.BakingSince = nil, false, nil
}

// isStopped reports whether a person stopped the rollout of the revision.
func (r *run) isStopped() bool {
	return r.Spec.Stop.Revision != "" && r.Spec.Stop.Revision == r.memory.Revision
}

// stops returns how a stopped rollout ends.
func (r *run) stops() StopAction {
	if r.isStopped() {
		return r.Spec.Stop.Action
	}
	return Abort
}

// stop carries out the stop.
func (r *run) stop() {
	switch {
	case r.Spec.Stop.Action == Abort:
		r.enter(v1alpha1.PhaseAborted, RolloutAborted, r.memory.CurrentDomains)
		r.halt(v1alpha1.PhaseAborted, Wait{For: WaitAborted})
	case r.memory.PreviousRevision == "":
		r.halt(v1alpha1.PhasePaused, Wait{For: WaitNoPrevious})
	default:
		r.restore()
	}
}

// halt takes no pod down, and withdraws pending requests.
func (r *run) halt(phase v1alpha1.RolloutPhase, wait Wait) {
	r.enter(phase, "", nil)
	r.step.Wait = wait
	for i := range r.memory.Replacements {
		if e := &r.memory.Replacements[i]; e.Stage == Evicting {
			if p := r.pod(e.Slot, e.UID); p != nil && !p.Terminating {
				r.step.Withdraw = append(r.step.Withdraw, r.target(p, e.Domain))
			}
		}
	}
}

// restore asks for the template of the previous revision, until Revision shows it.
func (r *run) restore() {
	r.halt(v1alpha1.PhaseRollingBack, Wait{For: WaitRestore, Failure: r.memory.Failure})
	r.step.Restore = r.memory.PreviousRevision
}

// fail reacts to a failure.
func (r *run) fail() {
	if r.Spec.RollsBack && r.memory.PreviousRevision != "" {
		r.restore()
		return
	}
	r.halt(v1alpha1.PhaseFailed, Wait{For: WaitFailure, Failure: r.memory.Failure})
}

// goOn continues the rollout.
func (r *run) goOn() {
	if len(r.memory.CurrentDomains) > 0 {
		if !r.isDone() {
			r.memory.BakingSince = nil
			r.replace()
			return
		}
		if !r.hasBaked() {
			return
		}
		r.say(Event{Type: WaveDone, Domains: r.memory.CurrentDomains})
		r.memory.ProvenDomains += int32(len(r.memory.CurrentDomains))
		r.memory.LastDomains, r.memory.CurrentDomains, r.memory.BakingSince = r.memory.CurrentDomains, nil, nil
	}
	if r.isAllUpdated() {
		r.complete()
		return
	}
	if r.begin() {
		r.replace()
	}
}

// isAllUpdated reports whether nothing is left to replace.
func (r *run) isAllUpdated() bool {
	return len(r.outstanding) == 0 && len(r.memory.Replacements) == 0
}

// isDone reports whether all pods of the wave are of the revision and healthy.
func (r *run) isDone() bool {
	for _, name := range r.memory.CurrentDomains {
		if d := r.byName[name]; len(d.old) > 0 || d.Unavailable > 0 || d.inFlight > 0 {
			return false
		}
	}
	return true
}

// hasBaked reports whether the wave has been healthy for long enough.
func (r *run) hasBaked() bool {
	if r.memory.RollingBack {
		return true
	}
	if r.memory.BakingSince == nil {
		r.memory.BakingSince = &metav1.Time{Time: r.stored}
	}
	r.enter(v1alpha1.PhaseBaking, "", nil)
	if end := r.memory.BakingSince.Add(r.Spec.Bake); r.now.Before(end) {
		r.step.Wait = Wait{For: WaitBake, Until: end}
		r.again(end)
		return false
	}
	return r.queryAllows()
}

// queryAllows reports whether the query is true, or absent.
func (r *run) queryAllows() bool {
	switch {
	case !r.Spec.HasQuery || r.memory.RollingBack:
		return true
	case r.Query == True:
		r.memory.QueryPassed = true
		return true
	case r.Query == False:
		r.step.Wait = Wait{For: WaitQuery}
	default:
		r.step.Wait = Wait{For: WaitQueryAnswer}
	}
	return false
}
