package rollout

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// pod finds a pod of a slot.
func (r *run) pod(slot string, uid types.UID) *Pod {
	for _, p := range r.pods[slot] {
		if types.UID(p.UID) == uid {
			return p
		}
	}
	return nil
}

// newest returns the pod of a slot that is not terminating, except for one UID.
func (r *run) newest(slot string, but types.UID) *Pod {
	for _, p := range r.pods[slot] {
		if types.UID(p.UID) != but && !p.Terminating {
			return p
		}
	}
	return nil
}

// present returns the pod of a slot that counts: the old one as long as it exists.
func (r *run) present(slot string) *Pod {
	for _, p := range r.pods[slot] {
		if !p.Terminating && p.Revision != r.Revision {
			return p
		}
	}
	return r.newest(slot, "")
}

// trackReplacements updates the stages of the replacements in Memory.
func (r *run) trackReplacements() {
	left := r.memory.Replacements[:0]
	for _, e := range r.memory.Replacements {
		old, next := r.pod(e.Slot, e.UID), r.newest(e.Slot, e.UID)
		_, wanted := r.index[e.Slot]
		switch {
		case old == nil && next == nil && !wanted:
			continue
		case old != nil && r.Kind == Surge && old.Revision == r.Revision && !old.Terminating:
			continue // it stays, and its replacement goes
		case old != nil:
			if e.Stage == Evicting && r.Refusals[string(e.UID)].Denied && !old.Terminating {
				if e.IfUnready || r.isHealthy(old) {
					continue
				}
				// It was down already: a pod of another revision that had to be replaced again.
				e.Stage, e.UID = Replaced, ""
			}
		case next == nil:
			if e.Stage == Evicting {
				e.Stage, e.Since = Gone, metav1.NewTime(r.stored)
			}
		case r.isHealthy(next):
			continue
		case e.Stage != Replaced:
			e.Stage, e.Since = Replaced, metav1.NewTime(r.stored)
		}
		left = append(left, e)
	}
	r.memory.Replacements = left
}

// replacement finds the replacement of a slot.
func (r *run) replacement(slot string) *v1alpha1.RolloutReplacement {
	for i := range r.memory.Replacements {
		if r.memory.Replacements[i].Slot == slot {
			return &r.memory.Replacements[i]
		}
	}
	return nil
}

func (r *run) domain(name string) *domain {
	d := r.byName[name]
	if d == nil {
		d = &domain{Name: name}
		r.byName[name] = d
		r.domains = append(r.domains, d)
	}
	return d
}

// measure counts the pods of each domain.
func (r *run) measure() {
	for i := range r.memory.Replacements {
		r.domain(r.memory.Replacements[i].Domain).inFlight++
	}
	for _, name := range r.memory.CurrentDomains {
		r.domain(name)
	}
	r.broken = len(r.Slots)
	for i := range r.Slots {
		if !r.measureSlot(&r.Slots[i]) {
			r.broken = min(r.broken, i)
		}
	}
	slices.SortFunc(r.domains, func(a, b *domain) int { return r.compareDomains(a.Name, b.Name) })
	for _, d := range r.domains {
		if len(d.old) > 0 {
			r.outstanding = append(r.outstanding, d)
		}
	}
}

// domainOf returns the domain where a pod counts. A pod without a node counts where its slot was taken down.
func (r *run) domainOf(p *Pod) string {
	if e := r.replacement(p.Slot); !p.Placed && e != nil {
		return e.Domain
	}
	return p.Domain
}

// count adds a pod to the numbers of a domain.
func (r *run) count(name string, p *Pod) *domain {
	d := r.domain(name)
	d.Pods++
	switch {
	case p.Revision != r.Revision:
		d.old = append(d.old, p)
	case r.isHealthy(p):
		d.Updated++
		d.Healthy++
	default:
		d.Updated++
	}
	return d
}

// measureSlot counts the pod of a slot, and reports whether it is available.
func (r *run) measureSlot(slot *Slot) bool {
	e := r.replacement(slot.Name)
	p := r.present(slot.Name)
	if p != nil {
		d := r.count(r.domainOf(p), p)
		switch {
		case e != nil && e.Domain == d.Name:
		case e == nil && r.isAvailable(p):
		case p.Placed || slot.HasDomain:
			d.Unavailable++
			d.down = append(d.down, p.Name)
		case p.Revision == r.Revision:
			r.anywhere = append(r.anywhere, p.Name)
		}
	}
	switch {
	case e != nil:
		d := r.domain(e.Domain)
		d.Unavailable++
		d.down = append(d.down, e.Pod)
		if p == nil {
			d.Pods++
		}
	case p == nil && slot.HasDomain:
		d := r.domain(slot.Domain)
		d.Pods++
		d.Unavailable++
		d.down = append(d.down, slot.Name)
	case p == nil:
		r.missing(slot)
	}
	return e == nil && p != nil && r.isAvailable(p)
}

// missing counts a slot whose pod is gone or terminating, in the domain of a pod that is still terminating.
func (r *run) missing(slot *Slot) {
	if ending := r.pods[slot.Name]; len(ending) > 0 && ending[0].Placed {
		d := r.domain(ending[0].Domain)
		d.Pods++
		d.Unavailable++
		d.down = append(d.down, ending[0].Name)
		return
	}
	r.anywhere = append(r.anywhere, slot.Name)
}

// describe writes the numbers of the domains into Memory.
func (r *run) describe() {
	m := r.memory
	m.Domains = nil
	for _, d := range r.domains[:min(len(r.domains), maxDomains)] {
		state := v1alpha1.DomainDone
		switch {
		case m.Failure != nil && m.Failure.Pod != "" && m.Failure.Domain == d.Name:
			state = v1alpha1.DomainFailed
		case slices.Contains(m.CurrentDomains, d.Name) && m.BakingSince != nil:
			state = v1alpha1.DomainBaking
		case slices.Contains(m.CurrentDomains, d.Name):
			state = v1alpha1.DomainUpdating
		case len(d.old) > 0:
			state = v1alpha1.DomainWaiting
		}
		m.Domains = append(m.Domains, v1alpha1.RolloutDomain{
			Name: d.Name, Pods: int32(d.Pods), Updated: int32(d.Updated), Healthy: int32(d.Healthy), Unavailable: int32(d.Unavailable), State: state,
		})
	}
}
