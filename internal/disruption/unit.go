package disruption

import (
	"slices"
	"time"
)

// unit is a set of pods that can only be disrupted together. It is down if one of them is.
type unit struct {
	isDown bool
	// stuck says that not only reservations have it down. Otherwise it is down until end.
	stuck bool
	end   time.Time
	cells []cell
}

// cell is a domain of a group.
type cell struct {
	group  string
	domain int32
}

func (t *Tally) gatherUnits() {
	for i := range t.state.Pods {
		p := &t.state.Pods[i]
		if p.Unit == "" || p.Finished {
			continue
		}
		u := t.units[p.Unit]
		if u == nil {
			u = &unit{}
			t.units[p.Unit] = u
		}
		if !p.isHealthy() || p.Place == Unplaced {
			u.isDown, u.stuck = true, true
		} else if r, found := t.reserved[p.UID]; found {
			u.reserve(r)
		}
		if at := (cell{p.Group, t.places[i]}); p.Place == Covered && !slices.Contains(u.cells, at) {
			u.cells = append(u.cells, at)
		}
	}
}

// reserve takes the unit down with one of its pods.
func (u *unit) reserve(r Reservation) {
	u.isDown = true
	if r.Expires.After(u.end) {
		u.end = r.Expires
	}
}

// cells are the domains in which the eviction of a pod takes something down.
func (t *Tally) cells(i int32) []cell {
	p := &t.state.Pods[i]
	switch {
	case p.Unit != "":
		return t.units[p.Unit].cells
	case p.Place == Covered:
		return []cell{{p.Group, t.places[i]}}
	}
	return nil
}
