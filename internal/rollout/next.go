package rollout

import (
	"slices"
	"time"
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
		r.memory.Current, r.memory.Replacements = nil, nil
		r.complete()
	case len(r.memory.Current) == 0 && r.isAllUpdated() && r.stops() != Rollback:
		r.complete()
	case r.isStopped():
		r.stop()
	case s.Spec.Paused:
		r.memory.BakingSince = time.Time{} // pods are not looked after meanwhile
		r.enter(Paused, RolloutPaused, nil)
		r.halt(Paused, Wait{For: WaitPaused})
	case r.hasFailed():
		r.fail()
	default:
		r.goOn()
	}
	if r.before == Paused && r.memory.Phase != Paused && r.memory.Phase != Aborted {
		r.step.Events = slices.Insert(r.step.Events, 0, Event{Type: RolloutResumed})
	}
	r.describe()
	return r.step
}

// run is one Next.
type run struct {
	*State
	now    time.Time
	stored time.Time // now, as Memory keeps it
	memory *Memory   // of the step
	before Phase     // of the last step, Waiting if the revision is another one
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
	Domain
	old      []*Pod // not of the revision, and not terminating
	inFlight int    // replacements
	down     []string
}

func newRun(s *State, now time.Time) *run {
	// A stored time has whole seconds, and a step that changes nothing must not look as if it did.
	r := &run{State: s, now: now, stored: now.Truncate(time.Second), index: map[string]int{}, pods: map[string][]*Pod{}, byName: map[string]*domain{}}
	r.step.Memory = s.Memory
	r.memory = &r.step.Memory
	r.memory.Abandoned = slices.Clone(s.Memory.Abandoned)
	r.memory.Current = slices.Clone(s.Memory.Current)
	r.memory.Replacements = slices.Clone(s.Memory.Replacements)
	for i := range s.Slots {
		r.index[s.Slots[i].Name] = i
	}
	for i := range s.Pods {
		p := &s.Pods[i]
		r.pods[p.Slot] = append(r.pods[p.Slot], p)
	}
	return r
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
func (r *run) enter(phase Phase, event EventType, domains []string) {
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
	r.enter(Complete, event, nil)
	r.memory.Failure, r.memory.RollingBack, r.memory.BakingSince = nil, false, time.Time{}
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
		r.enter(Aborted, RolloutAborted, r.memory.Current)
		r.halt(Aborted, Wait{For: WaitAborted})
	case r.memory.Previous == "":
		r.halt(Paused, Wait{For: WaitNoPrevious})
	default:
		r.restore()
	}
}

// halt takes no pod down, and calls off what is not known to be done.
func (r *run) halt(phase Phase, wait Wait) {
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
	r.halt(RollingBack, Wait{For: WaitRestore, Failure: r.memory.Failure})
	r.step.Restore = r.memory.Previous
}

// fail does what is to be done about a failure.
func (r *run) fail() {
	if r.Spec.RollsBack && r.memory.Previous != "" {
		r.restore()
		return
	}
	r.halt(Failed, Wait{For: WaitFailure, Failure: r.memory.Failure})
}

// goOn takes the rollout further.
func (r *run) goOn() {
	if len(r.memory.Current) > 0 {
		if !r.isDone() {
			r.memory.BakingSince = time.Time{}
			r.replace()
			return
		}
		if !r.hasBaked() {
			return
		}
		r.say(Event{Type: WaveDone, Domains: r.memory.Current})
		r.memory.Proven += len(r.memory.Current)
		r.memory.Last, r.memory.Current, r.memory.BakingSince = r.memory.Current, nil, time.Time{}
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
	for _, name := range r.memory.Current {
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
	if r.memory.BakingSince.IsZero() {
		r.memory.BakingSince = r.stored
	}
	r.enter(Baking, "", nil)
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
