package rollout

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/bools"
)

// replace takes down pods of the wave, and sets what the rollout waits for.
func (r *run) replace() {
	r.enter(v1alpha1.PhaseProgressing, "", nil)
	if r.memory.RollingBack {
		r.memory.Phase = v1alpha1.PhaseRollingBack
	}
	if r.memory.QueryPassed && r.Query != True && !r.queryAllows() {
		return
	}
	wait := r.replaceFirst()
	for _, name := range r.memory.CurrentDomains {
		d := r.byName[name]
		wait = firstWait(wait, r.replaceIn(d))
	}
	for _, name := range r.memory.CurrentDomains {
		if d := r.byName[name]; len(d.down) > 0 {
			wait = firstWait(wait, Wait{For: WaitUnready, Domain: d.Name, Pod: d.down[0], More: len(d.down) - 1})
		}
	}
	r.requestAll(wait)
}

// requestAll requests the eviction of all pods to replace. It sets what the rollout waits for: those pods, or else the limit that keeps
// it from taking down more.
func (r *run) requestAll(wait Wait) {
	for _, e := range r.lastSlotsFirst() {
		if e.Stage == Evicting {
			r.request(e)
		}
	}
	progress := r.progress()
	// A budget that refuses a pod probably refuses the others that are only requested.
	if isOnlyAsked := progress.For == WaitEvicting && progress.Until.IsZero(); progress.For != WaitNone && (!isOnlyAsked || wait.For != WaitRefused) {
		wait = progress
	}
	r.step.Wait = wait
	r.againHealthy()
}

func firstWait(a, b Wait) Wait {
	if a.For == WaitNone {
		return b
	}
	return a
}

// replaceIn adds replacements of a domain as far as they are allowed, and returns why it adds no more.
func (r *run) replaceIn(d *domain) (wait Wait) {
	wait = r.replaceAgain(d)
	most := r.Spec.MaxUnavailable.Of(d.Pods)
	// Pods that are down already come first, then those of the last slots.
	slices.SortStableFunc(d.old, func(a, b *Pod) int {
		return cmp.Or(bools.Compare(a.Ready, b.Ready), -cmp.Compare(r.index[a.Slot], r.index[b.Slot]), cmp.Compare(a.Name, b.Name))
	})
	for _, p := range d.old {
		refusal, refused := r.refusal(p)
		switch {
		case r.replacement(p.Slot) != nil:
		case refused:
			wait = firstWait(wait, Wait{For: WaitRefused, Domain: d.Name, Pod: p.Name, Reason: refusal.Reason, Until: refusal.Until})
		case r.Kind == Ordered && (len(r.memory.Replacements) > 0 || r.broken < r.index[p.Slot]):
			if r.broken < r.index[p.Slot] {
				wait = firstWait(wait, Wait{For: WaitOrder, Domain: d.Name, Pod: r.Slots[r.broken].Name, Approve: r.unapproved})
			}
		case d.inFlight >= most || len(r.memory.Replacements) >= maxReplacements:
			return wait
		case r.isAvailable(p) && d.Unavailable+len(r.anywhere) >= most:
			down := slices.Concat(d.down, r.anywhere)
			return firstWait(wait, Wait{For: WaitDown, Domain: d.Name, Pod: down[0], More: len(down) - 1, Down: len(down), Most: most})
		default:
			r.takeDown(d, p)
		}
	}
	return wait
}

// replaceFirst takes down the first unready pod of an Ordered workload, even out of turn: no pod of a later slot is created before it is
// ready, so nothing else could continue. In a domain without approval it takes down only pods of a bad revision.
func (r *run) replaceFirst() (wait Wait) {
	if r.Kind != Ordered || r.broken == len(r.Slots) {
		return wait
	}
	slot := r.Slots[r.broken].Name
	p, e := r.newest(slot, ""), r.replacement(slot)
	if p == nil || p.Ready || p.Revision == r.Revision || e != nil && (!e.IfUnready || e.Stage != Replaced) {
		return wait
	}
	d := r.domain(r.domainOf(p))
	if e == nil && !r.deletes(p) && !slices.Contains(r.memory.CurrentDomains, d.Name) && r.needsApproval(d.Name) {
		r.unapproved = d.Name
		return wait
	}
	if refusal, refused := r.refusal(p); refused {
		return Wait{For: WaitRefused, Domain: d.Name, Pod: p.Name, Reason: refusal.Reason, Until: refusal.Until}
	}
	if e != nil {
		e.Pod, e.UID, e.Stage = p.Name, types.UID(p.UID), Evicting
		return wait
	}
	r.takeDown(d, p)
	r.replacement(slot).IfUnready = true
	return wait
}

// replaceAgain replaces replacements that have an outdated revision. They count in the domain where their slots were taken down, wherever
// they are.
func (r *run) replaceAgain(d *domain) (wait Wait) {
	for i := range r.memory.Replacements {
		e := &r.memory.Replacements[i]
		p := r.present(e.Slot)
		if e.Domain != d.Name || e.Stage != Replaced || p == nil || p.Revision == r.Revision {
			continue
		}
		if refusal, refused := r.refusal(p); refused {
			wait = firstWait(wait, Wait{For: WaitRefused, Domain: d.Name, Pod: p.Name, Reason: refusal.Reason, Until: refusal.Until})
			continue
		}
		e.Pod, e.UID, e.Stage = p.Name, types.UID(p.UID), Evicting
	}
	return wait
}

// refusal returns why a pod is not requested now, or nil.
func (r *run) refusal(p *Pod) (Refusal, bool) {
	refusal, refused := r.Refusals[p.UID]
	if !refused || r.deletes(p) || !refusal.Until.IsZero() && !r.now.Before(refusal.Until) {
		return Refusal{}, false
	}
	r.again(refusal.Until)
	return refusal, true
}

func (r *run) takeDown(d *domain, p *Pod) {
	d.inFlight++
	if r.isAvailable(p) {
		d.Unavailable++
		d.down = append(d.down, p.Name)
	}
	e := v1alpha1.RolloutReplacement{Slot: p.Slot, Domain: d.Name, Pod: p.Name, UID: types.UID(p.UID), Stage: Evicting, Since: metav1.NewTime(r.stored)}
	at, _ := slices.BinarySearchFunc(r.memory.Replacements, e, func(a, b v1alpha1.RolloutReplacement) int { return cmp.Compare(a.Slot, b.Slot) })
	r.memory.Replacements = slices.Insert(r.memory.Replacements, at, e)
}

// request evicts or deletes a pod that is not terminating. It repeats until the pod goes, because the outcome of the last request may be
// unknown.
func (r *run) request(e *v1alpha1.RolloutReplacement) {
	p := r.pod(e.Slot, e.UID)
	switch {
	case p == nil || p.Terminating:
	case r.deletes(p):
		r.step.Delete = append(r.step.Delete, r.target(p, e.Domain))
	default:
		t := r.target(p, e.Domain)
		t.IfUnready = e.IfUnready
		r.step.Evict = append(r.step.Evict, t)
	}
}

// deletes reports whether a pod is deleted rather than evicted: unready pods of a bad revision use up the budget that would admit their
// eviction.
func (r *run) deletes(p *Pod) bool {
	return r.Kind != Surge && !p.Ready && p.Revision != r.Revision && slices.Contains(r.memory.AbandonedRevisions, p.Revision)
}

func (r *run) target(p *Pod, domain string) Target {
	return Target{UID: p.UID, Pod: p.Name, Domain: domain, Revision: p.Revision}
}

// lastSlotsFirst returns the replacements in the order in which their pods are taken down.
func (r *run) lastSlotsFirst() []*v1alpha1.RolloutReplacement {
	list := make([]*v1alpha1.RolloutReplacement, len(r.memory.Replacements))
	for i := range r.memory.Replacements {
		list[i] = &r.memory.Replacements[i]
	}
	slices.SortStableFunc(list, func(a, b *v1alpha1.RolloutReplacement) int { return cmp.Compare(r.index[b.Slot], r.index[a.Slot]) })
	return list
}

// progress returns the wait of the replacement that is furthest behind.
func (r *run) progress() (wait Wait) {
	rank := []WaitReason{WaitUnplaced, WaitMissing, WaitUnready, WaitEvicting, WaitReadyFor}
	for i := range r.memory.Replacements {
		w := r.progressOf(&r.memory.Replacements[i])
		switch at, best := slices.Index(rank, w.For), slices.Index(rank, wait.For); {
		case at < 0:
		case best < 0 || at < best:
			wait = w
		case at == best:
			wait.More++
		}
	}
	return wait
}

func (r *run) progressOf(e *v1alpha1.RolloutReplacement) Wait {
	p := r.newest(e.Slot, e.UID)
	if e.Stage == Evicting && (r.Kind != Surge || p == nil || r.isHealthy(p)) || e.Stage == Gone || p == nil {
		wait := Wait{For: WaitEvicting, Domain: e.Domain, Pod: e.Pod}
		if e.Stage != Evicting {
			wait.For, wait.Until = WaitMissing, r.deadline(e.Since.Time)
		} else if old := r.pod(e.Slot, e.UID); old != nil && old.Terminating && (r.Kind != Surge || p == nil) {
			wait.Until = r.deadline(old.Since)
		}
		return wait
	}
	wait := Wait{For: WaitUnready, Domain: e.Domain, Pod: p.Name, Until: r.deadline(latest(e.Since.Time, p.Released))}
	switch {
	case e.Stage == Replaced && p.Revision != r.Revision: // its wait is the refusal of the pod
		return Wait{}
	case !p.Placed:
		wait.For = WaitUnplaced
	case p.Ready:
		wait.For, wait.Until = WaitReadyFor, p.Since.Add(r.Spec.ReadyFor)
	}
	return wait
}

// againHealthy schedules the next step for when time alone makes a pod healthy.
func (r *run) againHealthy() {
	for i := range r.Pods {
		if p := &r.Pods[i]; p.Ready && !p.Terminating && p.Revision == r.Revision {
			r.again(p.Since.Add(r.Spec.ReadyFor))
		}
	}
}

// deadline is when something that began at a time has failed.
func (r *run) deadline(since time.Time) time.Time {
	if a := &r.Spec.Approved; a.Revision == r.memory.Revision && a.FailuresBefore.After(since) {
		since = a.FailuresBefore
	}
	return since.Add(r.Spec.Deadline)
}
