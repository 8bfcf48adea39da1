package rollout

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// Normal returns a target with the group of its kind instead of the version, and without one for the kinds of Kubernetes. So references
// to one workload are equal.
func Normal(ref v1alpha1.RolloutTarget) v1alpha1.RolloutTarget {
	ref.APIVersion, _, _ = strings.Cut(ref.APIVersion, "/")
	if ref.APIVersion == "apps" {
		ref.APIVersion = ""
	}
	return ref
}

// IsCustom reports whether a target is of another kind than those of Kubernetes.
func IsCustom(ref v1alpha1.RolloutTarget) bool { return Normal(ref).APIVersion != "" }

// AssignSlots gives slots to the pods of a workload whose new pods have new names. The slot of a pod is its own name, but a new pod
// that is not healthy takes the slot of a pod that was taken down, preferably of its domain.
//
// The pods do not say which one they replace. So while a new pod of another domain is not healthy, or a pod is missing, no replacement
// ends: each of them may be the one that is still down.
func AssignSlots(s *State, desired int, now time.Time) {
	r := run{State: s, now: now}
	taken, active := map[string]bool{}, 0
	var candidates []*Pod
	for i := range s.Pods {
		p := &s.Pods[i]
		p.Slot = p.Name
		at := slices.IndexFunc(s.Memory.Replacements, func(e v1alpha1.RolloutReplacement) bool { return string(e.UID) == p.UID || e.Slot == p.Name })
		if at >= 0 {
			p.Slot = s.Memory.Replacements[at].Slot
		}
		if p.Terminating {
			continue
		}
		active++
		if at < 0 && r.isNew(p) && !r.isHealthy(p) {
			candidates = append(candidates, p)
		} else {
			taken[p.Slot] = true
		}
	}
	isUnclear := active < desired
	for _, inDomain := range []bool{true, false} {
		for _, e := range s.Memory.Replacements {
			at := slices.IndexFunc(candidates, func(p *Pod) bool { return !inDomain || p.Placed && p.Domain == e.Domain })
			if taken[e.Slot] || at < 0 {
				continue
			}
			candidates[at].Slot, taken[e.Slot] = e.Slot, true
			candidates = slices.Delete(candidates, at, at+1)
			isUnclear = isUnclear || !inDomain
		}
	}
	for _, p := range candidates {
		taken[p.Slot] = true
	}
	for _, e := range s.Memory.Replacements {
		if isUnclear {
			taken[e.Slot] = true
		}
	}
	s.Slots = Slots(taken, desired)
}

// isNew reports whether the workload may have created a pod during the rollout.
func (r *run) isNew(p *Pod) bool {
	m := &r.Memory
	return !p.Placed || p.Revision == r.Revision || p.Revision == m.Revision || slices.Contains(m.AbandonedRevisions, p.Revision)
}

// Slots returns slots with the given names, and slots for pods that do not exist yet, which count in all domains.
func Slots(names map[string]bool, desired int) (slots []Slot) {
	for n := 1; len(names) < desired; n++ {
		names["that has not come ("+strconv.Itoa(n)+")"] = true
	}
	for name := range names {
		slots = append(slots, Slot{Name: name})
	}
	slices.SortFunc(slots, func(a, b Slot) int { return strings.Compare(a.Name, b.Name) })
	return slots
}
