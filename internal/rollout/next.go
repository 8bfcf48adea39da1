package rollout

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// Next says what to do now.
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
		r.memory.BakingSince = nil // pods are not looked after meanwhile
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
	before v1alpha1.RolloutPhase // of the last step, Waiting if the revision is another one
	step   Step

	index map[string]int // of slots
	pods  map[string][]*Pod
	// domains have their numbers, in the order of updates.
	domains     []*domain
	byName      map[string]*domain
	outstanding []*domain // with pods that are not of the revision
	// anywhere are slots that lack a pod of which it is not known where it was or will be.
	anywhere []string
	// broken is the first slot without an available pod, len(Slots) if there is none.
	broken int
	// unapproved is the domain of its pod, if that is not replaced because a person has to approve the domain.
	unapproved string
}

// domain is what is known of one now.
type domain struct {
	Name                                string
	Pods, Updated, Healthy, Unavailable int

	old      []*Pod // not of the revision, and not terminating
	inFlight int    // replacements
	down     []string
}

func newRun(s *State, now time.Time) *run {
	// A stored time has whole seconds, and a step that changes nothing must not look as if it did.
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

// phaseBefore is the phase that a rollout had before it could not be followed, as far as it matters: one that
// was complete leaves a revision to go back to.
func phaseBefore(m *Memory) v1alpha1.RolloutPhase {
	isLeft := func(d v1alpha1.RolloutDomain) bool { return d.State != v1alpha1.DomainDone }
	if len(m.CurrentDomains) > 0 || len(m.Replacements) > 0 || m.Failure != nil || slices.ContainsFunc(m.Domains, isLeft) {
		return v1alpha1.PhaseWaiting
	}
	return v1alpha1.PhaseComplete
}

// isHealthy reports whether a pod has been ready for long enough.
func (r *run) isHealthy(p *Pod) bool {
	// Since is by the clock of a node, which may be ahead.
	return p.Ready && !p.Terminating && (r.Spec.ReadyFor == 0 || !r.now.Before(p.Since.Add(r.Spec.ReadyFor)))
}

// isAvailable reports whether a pod serves, and is trusted to go on.
func (r *run) isAvailable(p *Pod) bool {
	return p.Ready && !p.Terminating && (p.Revision != r.Revision || r.isHealthy(p))
}

// again has the next step made by a time.
func (r *run) again(at time.Time) {
	if at.After(r.now) && (r.step.Again.IsZero() || at.Before(r.step.Again)) {
		r.step.Again = at
	}
}

func (r *run) say(e Event) { r.step.Events = append(r.step.Events, e) }

// enter sets the phase, and says so once.
func (r *run) enter(phase v1alpha1.RolloutPhase, event EventType, domains []string) {
	if r.before != phase && event != "" {
		r.say(Event{Type: event, Domains: domains, Failure: r.memory.Failure})
	}
	r.memory.Phase = phase
}

// complete ends the rollout: all pods are of the revision.
func (r *run) complete() {
	event := RolloutComplete
	if r.Memory.Revision == "" { // it was complete before it was asked for
		event = ""
	}
	r.enter(v1alpha1.PhaseComplete, event, nil)
	r.memory.Failure, r.memory.RollingBack, r.memory.BakingSince = nil, false, nil
}

// isStopped reports whether a person ended the rollout of the revision.
func (r *run) isStopped() bool {
	return r.Spec.Stop.Revision != "" && r.Spec.Stop.Revision == r.memory.Revision
}

// stops is how the rollout ends, if it is stopped.
func (r *run) stops() StopAction {
	if r.isStopped() {
		return r.Spec.Stop.Action
	}
	return Abort
}

// stop does what a person wants instead of the rollout.
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

// halt takes no pod down, and calls off what is not known to be done.
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

// restore asks for the template of the revision before. It is asked for until Revision says so.
func (r *run) restore() {
	r.halt(v1alpha1.PhaseRollingBack, Wait{For: WaitRestore, Failure: r.memory.Failure})
	r.step.Restore = r.memory.PreviousRevision
}

// fail does what is to be done about a failure.
func (r *run) fail() {
	if r.Spec.RollsBack && r.memory.PreviousRevision != "" {
		r.restore()
		return
	}
	r.halt(v1alpha1.PhaseFailed, Wait{For: WaitFailure, Failure: r.memory.Failure})
}

// goOn takes the rollout further.
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

// isAllUpdated reports whether there is nothing left to replace.
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

// hasBaked reports whether the wave was healthy for long enough.
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

// queryAllows reports whether the query is true or does not count.
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
