package rollout

import (
	"cmp"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// observeRevision starts over for a new revision.
func (r *run) observeRevision() {
	m := r.memory
	if m.Revision == r.Revision {
		return
	}
	old := *m
	m.Revision, m.RollingBack, m.Failure, m.BakingSince, m.QueryPassed = r.Revision, false, nil, nil, false
	m.Wave, m.ProvenDomains = 0, 0
	// The revision gets another chance: once it is complete, budgets decide about its unready pods as about any other.
	m.AbandonedRevisions = slices.DeleteFunc(m.AbandonedRevisions, func(name string) bool { return name == r.Revision })
	switch {
	case old.Revision == "":
		if m.PreviousRevision = r.commonest(); m.PreviousRevision != "" {
			r.say(Event{Type: RolloutBegan, From: m.PreviousRevision})
		}
		return
	case old.Phase == v1alpha1.PhaseComplete:
		m.PreviousRevision, m.LastDomains = old.Revision, nil
		m.Phase = v1alpha1.PhaseWaiting
		r.say(Event{Type: RolloutBegan, From: old.Revision})
		return
	case old.PreviousRevision == r.Revision:
		m.PreviousRevision, m.RollingBack = "", true
		r.abandon(old.Revision)
		r.say(Event{Type: RollbackBegan, From: old.Revision})
	default:
		if old.RollingBack {
			m.PreviousRevision = old.Revision
		}
		if old.Failure != nil || !old.RollingBack && r.hasUnready(old.Revision) {
			r.abandon(old.Revision)
		}
		r.say(Event{Type: RolloutRestarted, From: old.Revision})
	}
	m.Phase = v1alpha1.PhaseWaiting
	// Running replacements get their whole time again.
	for i := range m.Replacements {
		m.Replacements[i].Since = metav1.NewTime(r.stored)
	}
	r.resume()
}

// hasUnready reports whether a replacement of a revision is not ready, or may be about to be created. It would use up the budget that must
// admit its eviction, even if the revision is replaced before it fails.
func (r *run) hasUnready(revision string) bool {
	return slices.ContainsFunc(r.memory.Replacements, func(e v1alpha1.RolloutReplacement) bool {
		p := r.newest(e.Slot, e.UID)
		return p == nil && e.Stage == Gone || p != nil && p.Revision == revision && !p.Ready
	})
}

// abandon marks a revision as abandoned.
func (r *run) abandon(revision string) {
	m := r.memory
	m.AbandonedRevisions = append(slices.DeleteFunc(m.AbandonedRevisions, func(name string) bool { return name == revision }), revision)
	m.AbandonedRevisions = m.AbandonedRevisions[max(0, len(m.AbandonedRevisions)-maxAbandoned):]
}

// resume starts a new revision where the last one stopped: in all domains where the rollout has pods down, or else in the first domains of
// its last wave. The others follow in order. If all domains are updated at once, the whole last wave goes on.
func (r *run) resume() {
	m := r.memory
	at := m.CurrentDomains
	if len(at) == 0 {
		at = m.LastDomains
	}
	var down []string
	for i := range m.Replacements {
		e := &m.Replacements[i]
		if r.Kind == Ordered && e.IfUnready {
			continue // it was replaced out of turn, and stays so
		}
		if !slices.Contains(down, e.Domain) {
			down = append(down, e.Domain)
		}
	}
	if r.Spec.Waves.All {
		for _, name := range at {
			if r.holds(name).For == WaitNone {
				down = append(down, name) // the others begin like those of a new wave
			}
		}
	}
	slices.SortFunc(down, r.compareDomains)
	down = slices.Compact(down)
	at = slices.SortedFunc(slices.Values(at), r.compareDomains)
	switch {
	case len(down) > 0 || r.Spec.Waves.All:
		m.CurrentDomains = down
	case len(at) > 0:
		m.CurrentDomains = at[:min(len(at), r.waveSize())]
	}
	m.LastDomains = nil
	if len(m.CurrentDomains) > 0 {
		m.Wave = 1
	}
}

// commonest returns the revision of most outdated pods.
func (r *run) commonest() string {
	counts := map[string]int{}
	for i := range r.Pods {
		if p := &r.Pods[i]; p.Revision != r.Revision {
			counts[p.Revision]++
		}
	}
	most := ""
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if counts[name] > counts[most] {
			most = name
		}
	}
	return most
}

// compareDomains orders domains by their updates.
func (r *run) compareDomains(a, b string) int {
	place := func(name string) int {
		if i := slices.Index(r.Spec.Order, name); i >= 0 {
			return i
		}
		if name == "" {
			return len(r.Spec.Order) + 1
		}
		return len(r.Spec.Order)
	}
	return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a, b))
}
