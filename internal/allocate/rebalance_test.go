package allocate_test

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"vicinity.dev/vicinity/internal/allocate"
)

func TestLazyRebalance(t *testing.T) {
	for _, test := range []struct {
		name, before, region string
		rule                 allocate.Rule
		plan                 string
	}{
		{"nothing changed", "a: 4a | b: 4b | c: 4c", "a=1/4 b=1/4 c=1/4", allocate.RuleKept, "a: 4a | b: 4b | c: 4c"},
		{"no need to undo", "a: 4a 1c | b: 4b | c: 3c", "a=1/4 b=1/4 c=1/4", allocate.RuleKept, "a: 4a 1c | b: 4b | c: 3c"},
		{"a new one joins its own zone", "a: 4a 1c | b: 4b | c: 3c", "a=1/4 b=1/4 c=1/6", allocate.RuleKept, "a: 4a 1c | b: 4b | c: 5c"},
		{"survivors stay", "a: 4a 1c | b: 3b | c: 3c", "a=1/4 b=1/3 c=1/4", allocate.RuleKept, "a: 4a 1c | b: 3b | c: 3c"},
		// b expects 3.333 and has 2.
		{"above the threshold", "a: 4a | b: 2b | c: 4c", "a=1/4 b=1/2 c=1/4", allocate.RulePlanned, "a: 3a | b: 1a 2b | c: 4c"},
		// b expects 1.5 of 3 and has 1, and a cannot give one either.
		{"at the threshold", "a: 2a | b: 1b", "a=1/2 b=1/1", allocate.RuleOverload, "a,b: 2a 1b"},
		{"a zone is lost", "a: 4a | b: 4b 1c | c: 3c", "a=1/4 b=1/4", allocate.RuleKept, "a: 4a | b: 4b"},
		{"endpoints of a group without consumers come home", "a: 4a | b: 4b | c: 2a 2b", "a=1/6 b=1/6", allocate.RuleKept, "a: 6a | b: 6b"},
		{"a zone is new", "a: 4a | b: 4b", "a=1/4 b=1/4 c=1/4", allocate.RuleKept, "a: 4a | b: 4b | c: 4c"},
		{"a zone without endpoints is new", "a: 4a | b: 4b", "a=1/4 b=1/4 c=1/0", allocate.RulePlanned, "a: 3a | b: 3b | c: 1a 1b"},
		{"nothing was divided", "a,b,c: 4a 4b 4c", "a=1/4 b=1/4 c=1/4", allocate.RulePlanned, "a: 4a | b: 4b | c: 4c"},
		{"nothing was divided among the remaining zones", "a,b: 4a 4b | c: 4c", "a=1/4 b=1/4", allocate.RulePlanned, "a: 4a | b: 4b"},
		{"nothing can be divided for one", "a,b: 4a 4b", "a=1/4 b=0/4", allocate.RuleKept, "a,b: 4a 4b"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := region(t, test.region)
			plan, outcome, err := allocate.Allocate(r, allocate.Intent{Bound: bound(allocate.Local)},
				allocate.Previous{State: allocate.Allocated, Plan: parsePlan(t, test.before)})
			if err != nil {
				t.Fatal(err)
			}
			if render(plan) != test.plan || outcome.Rule != test.rule {
				t.Errorf("%s by %s, want %s by %s", render(plan), outcome.Rule, test.plan, test.rule)
			}
		})
	}
}

// kept counts the endpoints that can keep their consumers.
func kept(before, after byHomeAndSet) int {
	n := 0
	for home, sets := range before {
		for set, count := range sets {
			n += min(count, after[home][set])
		}
	}
	return n
}

// mostKept tries all plans with the same groups, group sizes, and numbers of members at home with
// their consumers. These plans have the same traffic in zone, and therefore the same score. It does
// not try plans whose score is the same by coincidence, because one zone gains what another loses.
func mostKept(plan allocate.Plan, before byHomeAndSet) int {
	best, want := 0, atHome(plan)
	homes := make([]int, len(plan.Zones))
	sizes := make([]int, len(plan.Groups))
	trial := allocate.Plan{Zones: plan.Zones}
	for i, g := range plan.Groups {
		for _, m := range g.Members {
			homes[m.Zone] += m.Endpoints
		}
		sizes[i] = g.Size()
		trial.Groups = append(trial.Groups, allocate.Group{Consumers: g.Consumers})
	}
	var try func(home, group int)
	try = func(home, group int) {
		switch {
		case home == len(homes):
			if reflect.DeepEqual(atHome(trial), want) {
				best = max(best, kept(before, ofPlan(trial)))
			}
		case group == len(sizes):
			if homes[home] == 0 {
				try(home+1, 0)
			}
		default:
			g := &trial.Groups[group]
			members := g.Members
			for n := 0; n <= min(homes[home], sizes[group]); n++ {
				g.Members = append(slices.Clone(members), allocate.Member{Zone: home, Endpoints: n})
				homes[home] -= n
				sizes[group] -= n
				try(home, group+1)
				homes[home] += n
				sizes[group] += n
			}
			g.Members = members
		}
	}
	try(0, 0)
	return best
}

// atHome counts by group and zone the members that are consumed at home.
func atHome(plan allocate.Plan) map[[2]int]int {
	counts := map[[2]int]int{}
	for i, g := range plan.Groups {
		for _, m := range g.Members {
			if m.Endpoints > 0 && g.Consumes(m.Zone) {
				counts[[2]int{i, m.Zone}] = m.Endpoints
			}
		}
	}
	return counts
}

// sameScore reports whether the optimal algorithm rates the figures as equal. Between such plans
// the previous plan decides.
func sameScore(a, b allocate.Figures) bool {
	w := allocate.DefaultWeights()
	return math.Abs(w.Score(a, 1)-w.Score(b, 1)) <= 1e-6 && a.Unreached == b.Unreached
}

// Among plans with the same groups, sizes and endpoints at home, a full rebalance picks one that
// keeps most endpoints in place.
func TestRebalanceMovesNoMoreThanNeeded(t *testing.T) {
	check(t, func(t *rapid.T) {
		r := regions(4, 5).Draw(t, "region")
		for i := range r.Zones {
			// This avoids idle endpoints in zones without traffic.
			r.Zones[i].Capacity++
		}
		if r.Endpoints() > 9 {
			return
		}
		b := dividingBounds().Draw(t, "bound")
		var list []allocate.Endpoint
		for _, z := range r.Zones {
			for range z.Endpoints {
				e := allocate.Endpoint{ID: fmt.Sprint(len(list)), Zone: z.Name}
				switch rapid.IntRange(0, 3).Draw(t, "assigned") {
				case 1, 2:
					e.Assigned = allocate.NewConsumerSet(rapid.SampledFrom(r.Zones).Draw(t, "to").Name)
				case 3:
					e.Assigned = allocate.NewConsumerSet(rapid.SampledFrom(r.Zones).Draw(t, "to").Name, rapid.SampledFrom(r.Zones).Draw(t, "and").Name)
				}
				list = append(list, e)
			}
		}
		intent := allocate.Intent{Bound: b}
		previous := allocate.Previous{State: allocate.Allocated, Plan: allocate.Survivors(list)}
		eager := allocate.Planner{Eager: true}
		plan, outcome, err := eager.Allocate(r, intent, previous)
		if err != nil {
			t.Fatal(err)
		}
		checkPlan(t, r, plan, outcome)
		if outcome.Rule != allocate.RulePlanned || len(plan.Groups) > 5 {
			return
		}
		forgetful := allocate.Planner{Eager: true, Forgetful: true}
		other, otherOutcome, err := forgetful.Allocate(r, intent, previous)
		if err != nil || !sameFigures(outcome.Figures, otherOutcome.Figures) && (b.Algorithm != allocate.Optimal || !sameScore(outcome.Figures, otherOutcome.Figures)) {
			t.Fatalf("figures %+v, without looking at the past %+v, %v", outcome.Figures, otherOutcome.Figures, err)
		}
		before := ofEndpoints(list)
		had := 0
		for _, e := range list {
			if !e.Assigned.IsZero() {
				had++
			}
		}
		most := mostKept(plan, before)
		if got := kept(before, ofPlan(plan)); got != most {
			t.Fatalf("%s keeps %d of %v, %d could stay; without the past it is %s", render(plan), got, before, most, render(other))
		}
		moved, err := allocate.Assign(plan, list)
		if err != nil || moved != had-most {
			t.Fatalf("%d moved, %v, want %d", moved, err, had-most)
		}
	})
}

// history is a Service over time.
type history struct {
	zones     []allocate.Zone
	endpoints []allocate.Endpoint
	state     allocate.State
	next      int
}

func (h *history) region() allocate.Region {
	r := allocate.Region{Zones: slices.Clone(h.zones)}
	for i := range r.Zones {
		r.Zones[i].Endpoints = 0
		for _, e := range h.endpoints {
			if e.Zone == r.Zones[i].Name {
				r.Zones[i].Endpoints++
			}
		}
	}
	return r
}

// event changes nodes or endpoints, as happens in clusters.
func (h *history) event(t *rapid.T) {
	zone := rapid.IntRange(0, len(h.zones)-1).Draw(t, "zone")
	switch rapid.SampledFrom([]string{"up", "up", "down", "roll", "node", "lose", "regain"}).Draw(t, "event") {
	case "up":
		for range rapid.IntRange(1, 5).Draw(t, "new") {
			h.start(h.zones[zone].Name)
		}
	case "down":
		for range rapid.IntRange(1, 5).Draw(t, "gone") {
			h.stop(t)
		}
	case "roll":
		for range rapid.IntRange(1, 5).Draw(t, "replaced") {
			h.start(rapid.SampledFrom(h.zones).Draw(t, "to").Name)
			h.stop(t)
		}
	case "node":
		h.zones[zone].Capacity = float64(rapid.IntRange(0, 6).Draw(t, "nodes"))
	case "lose":
		name := h.zones[zone].Name
		if len(h.zones) > 1 {
			h.zones = slices.Delete(slices.Clone(h.zones), zone, zone+1)
			h.endpoints = slices.DeleteFunc(h.endpoints, func(e allocate.Endpoint) bool { return e.Zone == name })
		}
	case "regain":
		name := fmt.Sprintf("z%02d", rapid.IntRange(0, 5).Draw(t, "name"))
		if !slices.ContainsFunc(h.zones, func(z allocate.Zone) bool { return z.Name == name }) {
			h.zones = append(slices.Clone(h.zones), allocate.Zone{Name: name, Capacity: float64(rapid.IntRange(0, 6).Draw(t, "nodes"))})
		}
	}
}

func (h *history) start(zone string) {
	h.endpoints = append(h.endpoints, allocate.Endpoint{ID: fmt.Sprintf("%04d", h.next), Zone: zone})
	h.next++
}

func (h *history) stop(t *rapid.T) {
	if len(h.endpoints) > 0 {
		i := rapid.IntRange(0, len(h.endpoints)-1).Draw(t, "stopped")
		h.endpoints = slices.Delete(slices.Clone(h.endpoints), i, i+1)
	}
}

// carriedOver returns the sets that the lazy rebalance tries first: survivors keep their remaining
// zones, and new endpoints join their own zone. It is a second implementation, by endpoint.
// possible is false if an endpoint cannot join because its zone has no group of its own.
func (h *history) carriedOver() (sets []allocate.ConsumerSet, possible bool) {
	own := map[string]bool{}
	there := func(zone string) bool {
		return slices.ContainsFunc(h.zones, func(z allocate.Zone) bool { return z.Name == zone })
	}
	for _, e := range h.endpoints {
		var zones []string
		for _, zone := range e.Assigned.Zones() {
			if there(zone) {
				zones = append(zones, zone)
			}
		}
		if len(zones) == 1 {
			own[zones[0]] = true
		}
		sets = append(sets, allocate.NewConsumerSet(zones...))
	}
	possible = true
	for i, e := range h.endpoints {
		if sets[i].IsZero() {
			sets[i] = allocate.NewConsumerSet(e.Zone)
			possible = possible && own[e.Zone]
		}
	}
	return sets, possible
}

// Through any events Survivors, Allocate and Assign agree: a plan that is kept keeps the survivors,
// a plan that can be kept is kept, and no overload reaches the threshold.
func TestChainsOfEvents(t *testing.T) {
	check(t, func(t *rapid.T) {
		b := dividingBounds().Draw(t, "bound")
		h := &history{}
		for i := range rapid.IntRange(2, 5).Draw(t, "zones") {
			h.zones = append(h.zones, allocate.Zone{Name: fmt.Sprintf("z%02d", i), Capacity: float64(rapid.IntRange(1, 6).Draw(t, "nodes"))})
			for range rapid.IntRange(0, 8).Draw(t, "endpoints") {
				h.start(h.zones[i].Name)
			}
		}
		var planner allocate.Planner
		for range rapid.IntRange(1, 12).Draw(t, "events") {
			h.step(t, &planner, b)
			h.event(t)
		}
	})
}

// step allocates and assigns once, and checks the result.
func (h *history) step(t *rapid.T, planner *allocate.Planner, b *allocate.Bound) {
	r := h.region()
	before := slices.Clone(h.endpoints)
	plan, outcome, err := planner.Allocate(r, allocate.Intent{Bound: b}, allocate.Previous{State: h.state, Plan: allocate.Survivors(h.endpoints)})
	if err != nil {
		t.Fatal(err)
	}
	checkPlan(t, r, plan, outcome)
	if _, err := allocate.Assign(plan, h.endpoints); err != nil {
		t.Fatal(err)
	}
	if got, want := exactly(allocate.Survivors(h.endpoints)), exactly(plan); !reflect.DeepEqual(got, want) {
		t.Fatalf("the survivors are %v, the plan is %v", got, want)
	}
	carried, possible := h.carry(before)
	if outcome.Rule == allocate.RuleKept {
		for i, e := range h.endpoints {
			if !slices.Equal(e.Assigned.Zones(), carried[i].Zones()) {
				t.Fatalf("kept, and endpoint %s of zone %s is assigned to %s after %s", e.ID, e.Zone, e.Assigned, before[i].Assigned)
			}
		}
	}
	// carry loses weights, so only plans without them can be predicted.
	if h.state == allocate.Allocated && possible && divided(before, r) && !b.Algorithm.Weighted() && (outcome.Rule == allocate.RulePlanned || outcome.Rule == allocate.RuleOverload) {
		var was allocate.Plan
		list := slices.Clone(h.endpoints)
		for i := range list {
			list[i].Assigned = carried[i]
		}
		was = allocate.Survivors(list)
		if f := measure(was, capacities(r)); f.Unreached == 0 && f.Overload < b.OverloadThreshold-1e-6 {
			t.Fatalf("%s by %s, though %s has an overload of %g", render(plan), outcome.Rule, render(was), f.Overload)
		}
	}
	h.state = outcome.State
}

// divided reports whether a zone with traffic does not use all endpoints.
func divided(endpoints []allocate.Endpoint, r allocate.Region) bool {
	return slices.ContainsFunc(endpoints, func(e allocate.Endpoint) bool {
		zones := e.Assigned.Zones()
		return len(zones) > 0 && slices.ContainsFunc(r.Zones, func(z allocate.Zone) bool { return z.Capacity > 0 && !slices.Contains(zones, z.Name) })
	})
}

// carry calls carriedOver with earlier endpoints.
func (h *history) carry(before []allocate.Endpoint) ([]allocate.ConsumerSet, bool) {
	was := history{zones: h.zones, endpoints: before}
	return was.carriedOver()
}
