package simulate

import "vicinity.dev/vicinity/internal/allocate"

// plannedRouter routes as this project does.
type plannedRouter struct {
	planner  allocate.Planner
	intent   allocate.Intent
	state    allocate.State
	delivery allocate.Delivery
	ledger   ledger
}

// newPlannedRouter returns a router without one of the savings, if off names one.
func newPlannedRouter(bound allocate.Bound, off Saving, o DynamicsOptions) *plannedRouter {
	r := &plannedRouter{delivery: o.Delivery, ledger: ledger{perSlice: o.SliceSize}}
	without := func(saving Saving) bool { return off == saving || off == AllSavings }
	if without(Padding) {
		bound.Padding = 0
	}
	r.planner.Eager = without(Laziness)
	r.planner.Forgetful = without(MinimalMoves)
	r.intent.Bound = &bound
	return r
}

func (r *plannedRouter) react(w *world, _ touched) (reaction, error) {
	previous := allocate.Previous{State: r.state, Plan: allocate.Survivors(w.endpoints)}
	plan, outcome, err := r.planner.Allocate(w.region(), r.intent, previous)
	if err != nil {
		return reaction{}, err
	}
	r.state = outcome.State
	allocated := !outcome.IsBalanced()
	// Laziness keeps the endpoints of a kept plan. Only a new plan assigns all of them again.
	if !allocated || r.planner.Forgetful && outcome.Rule == allocate.RulePlanned {
		for i := range w.endpoints {
			w.endpoints[i].Assigned = allocate.ConsumerSet{}
		}
	}
	if allocated {
		if _, err := allocate.Assign(plan, w.endpoints); err != nil {
			return reaction{}, err
		}
	}
	return reaction{plan: plan, allocated: allocated, written: r.write(w)}, nil
}

// write updates the slices and returns the number written.
func (r *plannedRouter) write(w *world) int {
	if r.delivery == allocate.DeliveryGroups {
		r.ledger.layOut(w.endpoints, func(e *allocate.Endpoint) allocate.ConsumerSet { return e.Assigned }, nil)
		return r.ledger.written()
	}
	r.ledger.layOut(w.endpoints, oneKind, nil)
	for _, s := range r.ledger.slices {
		for i := range s.entries {
			entry := &s.entries[i]
			if hint := w.endpoints[entry.endpoint].Assigned; hint != entry.hint {
				entry.hint = hint
				s.touch()
			}
		}
	}
	return r.ledger.written()
}
