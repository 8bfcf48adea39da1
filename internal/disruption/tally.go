package disruption

import (
	"slices"
	"time"
)

// Tally counts a State at one moment, once for many decisions. It stays correct after Reserve.
type Tally struct {
	state *State
	now   time.Time

	domains  []string         // of the State, then others that have a pod
	pods     map[string]int32 // by UID
	places   []int32          // by pod: its domain, -1 for none
	owners   []ownerCount     // by owner
	ownerOf  []int32          // by pod: its owner, -1 if it is expected as it is
	byGroup  map[string][]int32
	reserved map[string]Reservation
	groups   map[string]*group // counted so far
}

// ownerCount counts the placed pods of an owner that are not finished.
type ownerCount struct {
	covered, terminating int // in domains, in the owner's group
	elsewhere            int // on other nodes or in other groups, without terminating ones
}

// NewTally counts a State, which must not change while the Tally is in use.
func NewTally(s *State, now time.Time) *Tally {
	t := &Tally{
		state: s, now: now,
		pods:     make(map[string]int32, len(s.Pods)),
		places:   make([]int32, len(s.Pods)),
		ownerOf:  make([]int32, len(s.Pods)),
		owners:   make([]ownerCount, len(s.Owners)),
		reserved: make(map[string]Reservation, len(s.Reservations)),
		byGroup:  map[string][]int32{},
		groups:   map[string]*group{},
	}
	for _, r := range s.Reservations {
		if r.isActive(now) {
			t.reserved[r.UID] = r
		}
	}
	t.placePods()
	t.countOwners()
	return t
}

func (t *Tally) placePods() {
	t.domains = slices.Clone(t.state.Domains)
	index := make(map[string]int32, len(t.domains))
	for i, name := range t.domains {
		index[name] = int32(i)
	}
	for i := range t.state.Pods {
		p := &t.state.Pods[i]
		if _, known := index[p.Domain]; !known && p.Place == Covered {
			index[p.Domain] = int32(len(t.domains))
			t.domains = append(t.domains, p.Domain)
		}
	}
	for i := range t.state.Pods {
		p := &t.state.Pods[i]
		t.pods[p.UID] = int32(i)
		if !p.Finished {
			t.byGroup[p.Group] = append(t.byGroup[p.Group], int32(i))
		}
		at, known := index[p.Domain]
		if !known || p.Place == Uncovered || p.Place == Unplaced && p.Domain == "" {
			at = -1
		}
		t.places[i] = at
	}
}

func (t *Tally) countOwners() {
	index := make(map[string]int32, len(t.state.Owners))
	for i := range t.state.Owners {
		index[t.state.Owners[i].ID] = int32(i)
	}
	for i := range t.state.Pods {
		p := &t.state.Pods[i]
		at, known := index[p.Owner]
		if !known || p.Owner == "" {
			t.ownerOf[i] = -1
			continue
		}
		t.ownerOf[i] = at
		count := &t.owners[at]
		inGroup := t.state.Owners[at].has(p.Group)
		switch {
		case p.Finished || p.Place == Unplaced:
		case p.Place == Covered && inGroup && p.Terminating:
			count.terminating++
		case p.Place == Covered && inGroup:
			count.covered++
		case !p.Terminating:
			count.elsewhere++
		}
	}
}

// has reports whether a group may have pods of the owner.
func (o *Owner) has(group string) bool { return o.ManyGroups || o.Group == group }

// expects returns how many pods of an owner are expected in domains. Pods on other nodes count towards its replicas. If it has more pods
// than replicas, as during a rollout, any of them may be the surplus.
func (t *Tally) expects(owner int) int {
	asked, count := t.state.Owners[owner].Replicas, t.owners[owner]
	return max(0, asked-count.elsewhere, min(asked, count.covered))
}

func (t *Tally) group(name string) *group {
	g := t.groups[name]
	if g == nil {
		g = t.count(name)
		t.groups[name] = g
	}
	return g
}
