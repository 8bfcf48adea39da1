package allocate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Endpoint is one endpoint of a Service.
type Endpoint struct {
	// ID distinguishes endpoints and orders them; it means nothing else.
	ID string
	// Zone is the endpoint's home, "" if unknown.
	Zone string
	// Assigned is the set of zones that use the endpoint. It is zero before the first assignment.
	Assigned ConsumerSet
}

// Survivors returns the plan by which the endpoints are assigned, for Previous. Endpoints that were never assigned are
// left out.
func Survivors(endpoints []Endpoint) Plan {
	counts := map[ConsumerSet]map[string]int{}
	var zones []string
	for i := range endpoints {
		e := &endpoints[i]
		if e.Assigned.IsZero() {
			continue
		}
		homes := counts[e.Assigned]
		if homes == nil {
			homes = map[string]int{}
			counts[e.Assigned] = homes
			zones = append(zones, e.Assigned.Zones()...)
		}
		if homes[e.Zone] == 0 {
			zones = append(zones, e.Zone)
		}
		homes[e.Zone]++
	}
	slices.Sort(zones)
	plan := Plan{Zones: slices.Compact(zones)}
	sets := make([]ConsumerSet, 0, len(counts))
	for set := range counts {
		sets = append(sets, set)
	}
	slices.SortFunc(sets, func(a, b ConsumerSet) int { return cmp.Compare(a.joined, b.joined) })
	for _, set := range sets {
		var g Group
		homes := counts[set]
		for i, zone := range plan.Zones {
			if homes[zone] > 0 {
				g.Members = append(g.Members, Member{i, homes[zone]})
			}
		}
		for zone, weight := range set.All() {
			i, _ := slices.BinarySearch(plan.Zones, zone)
			g.Consumers = append(g.Consumers, Consumer{i, weight})
		}
		plan.Groups = append(plan.Groups, g)
	}
	return plan
}

// Assign gives each endpoint its consumer set in the plan, in place. As many endpoints as the plan allows keep their
// zones; the others are taken in the order of their IDs, so the order of endpoints does not matter. It returns how many
// endpoints changed from one set of zones to another. If the plan is for other endpoints, nothing is assigned.
func Assign(plan Plan, endpoints []Endpoint) (moved int, err error) {
	homes := byHome(endpoints)
	zones := slices.Sorted(maps.Keys(homes))
	for _, zone := range zones {
		order := homes[zone]
		for i := 1; i < len(order); i++ {
			if id := endpoints[order[i]].ID; id == endpoints[order[i-1]].ID {
				return 0, fmt.Errorf("endpoint %q of zone %q is given twice", id, zone)
			}
		}
	}
	a := newAssigner(plan)
	if err := a.check(homes); err != nil {
		return 0, err
	}
	for _, zone := range zones {
		moved += a.home(zone, endpoints, homes[zone])
	}
	return moved, nil
}

// byHome returns the indexes of the endpoints of each home, in the order of IDs.
func byHome(endpoints []Endpoint) map[string][]int {
	homes := map[string][]int{}
	for i := range endpoints {
		homes[endpoints[i].Zone] = append(homes[endpoints[i].Zone], i)
	}
	for _, order := range homes {
		slices.SortFunc(order, func(a, b int) int { return cmp.Compare(endpoints[a].ID, endpoints[b].ID) })
	}
	return homes
}

// assigner indexes the groups of a plan by their consumer sets.
type assigner struct {
	plan       Plan
	sets       []ConsumerSet         // of groups
	exact      map[ConsumerSet][]int // groups by set
	unweighted map[ConsumerSet][]int // groups by set without weights
	present    map[ConsumerSet]ConsumerSet
	left       []int // endpoints of the current home that each group still wants
}

func newAssigner(plan Plan) *assigner {
	a := &assigner{
		plan:       plan,
		exact:      map[ConsumerSet][]int{},
		unweighted: map[ConsumerSet][]int{},
		present:    map[ConsumerSet]ConsumerSet{},
		left:       make([]int, len(plan.Groups)),
	}
	for g := range plan.Groups {
		set := plan.ConsumerSet(g)
		a.sets = append(a.sets, set)
		a.exact[set] = append(a.exact[set], g)
		a.unweighted[set.unweighted()] = append(a.unweighted[set.unweighted()], g)
	}
	return a
}

// stillPresent returns the zones of a set that the plan still has, without weights. If one of its
// zones is gone, an endpoint stays with the others.
func (a *assigner) stillPresent(set ConsumerSet) ConsumerSet {
	part, known := a.present[set]
	if !known {
		part = NewConsumerSet(slices.DeleteFunc(set.Zones(), func(zone string) bool {
			_, found := slices.BinarySearch(a.plan.Zones, zone)
			return !found
		})...)
		a.present[set] = part
	}
	return part
}

// check compares the number of endpoints in each home with the plan.
func (a *assigner) check(homes map[string][]int) error {
	missing := map[string]int{}
	for i := range a.plan.Groups {
		for _, m := range a.plan.Groups[i].Members {
			missing[a.plan.Zones[m.Zone]] += m.Endpoints
		}
	}
	for zone, order := range homes {
		missing[zone] -= len(order)
	}
	for _, zone := range slices.Sorted(maps.Keys(missing)) {
		if n := missing[zone]; n != 0 {
			return fmt.Errorf("the plan is not for these endpoints: zone %q has %+d endpoints compared to the plan", zone, -n)
		}
	}
	return nil
}

// moves reports whether an endpoint would change its zones by joining a group. In a plan that is
// AtHome an endpoint moves only to its own zone.
func (a *assigner) moves(e *Endpoint, g int) bool {
	switch {
	case e.Assigned.IsZero() || e.Assigned == a.sets[g]:
		return false
	case a.plan.AtHome:
		return !slices.Contains(e.Assigned.Zones(), e.Zone)
	}
	return e.Assigned.unweighted() != a.sets[g].unweighted()
}

// home assigns the endpoints of one home zone. Their indexes must be in the order of IDs.
func (a *assigner) home(zone string, endpoints []Endpoint, order []int) (moved int) {
	for g := range a.plan.Groups {
		a.left[g] = 0
		for _, m := range a.plan.Groups[g].Members {
			if a.plan.Zones[m.Zone] == zone {
				a.left[g] = m.Endpoints
			}
		}
	}
	assigned := make([]bool, len(order))
	assign := func(i, g int) {
		e := &endpoints[order[i]]
		if a.moves(e, g) {
			moved++
		}
		a.left[g]--
		e.Assigned, assigned[i] = a.sets[g], true
	}
	keep := func(groups func(ConsumerSet) []int) {
		// Neighbours often have the same set, so its groups are looked up once.
		var last ConsumerSet
		known := groups(last)
		for i, e := range order {
			if assigned[i] {
				continue
			}
			if set := endpoints[e].Assigned; set != last {
				last, known = set, groups(set)
			}
			for _, g := range known {
				if a.left[g] > 0 {
					assign(i, g)
					break
				}
			}
		}
	}
	keep(func(set ConsumerSet) []int { return a.exact[set] })
	keep(func(set ConsumerSet) []int { return a.unweighted[set.unweighted()] })
	keep(func(set ConsumerSet) []int { return a.unweighted[a.stillPresent(set)] })
	next := 0
	for i := range order {
		if assigned[i] {
			continue
		}
		for a.left[next] == 0 {
			next++
		}
		assign(i, next)
	}
	return moved
}
