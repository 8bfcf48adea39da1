package allocate_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/topology"
)

// failer has the common methods of *testing.T and *rapid.T.
type failer interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// checkPlan fails unless the plan is well-formed, has each endpoint of the region once, reaches
// every zone with traffic, and is balanced or within the outcome's threshold. It does not fit plans
// with hard tiers.
func checkPlan(t failer, r allocate.Region, plan allocate.Plan, outcome allocate.Outcome) {
	t.Helper()
	checkForm(t, r, plan)
	figures := measure(plan, capacities(r))
	if !sameFigures(outcome.Figures, figures) {
		t.Errorf("figures are %+v, measured by endpoint %+v", outcome.Figures, figures)
	}
	n := r.Endpoints()
	if outcome.Endpoints != n {
		t.Errorf("outcome has %d endpoints of %d", outcome.Endpoints, n)
	}
	if n > 0 && figures.Unreached > 0 {
		t.Errorf("%s: %d zones reach nothing", render(plan), figures.Unreached)
	}
	if outcome.IsBalanced() {
		checkBalanced(t, r, plan, outcome)
		return
	}
	nodesOnly := outcome.Rule == allocate.RuleTiers && outcome.Zones == 1
	if outcome.Rule != allocate.RulePlanned && outcome.Rule != allocate.RuleKept && outcome.Rule != allocate.RuleRenewed && !nodesOnly {
		t.Errorf("rule %s in state %s", outcome.Rule, outcome.State)
	}
	limit := outcome.Threshold
	if outcome.Algorithm == allocate.Auto {
		limit += 2e-9
	}
	if figures.Overload >= limit {
		t.Errorf("%s: overload %g, the threshold is %g", render(plan), figures.Overload, outcome.Threshold)
	}
}

// checkBalanced fails unless all zones share all endpoints, and the rule is a valid reason.
func checkBalanced(t failer, r allocate.Region, plan allocate.Plan, outcome allocate.Outcome) {
	t.Helper()
	if r.Endpoints() > 0 && (len(plan.Groups) != 1 || len(plan.Groups[0].Consumers) != len(r.Zones)) {
		t.Errorf("%s is not balanced, rule %s", render(plan), outcome.Rule)
	}
	switch outcome.Rule {
	case allocate.RulePlanned, allocate.RuleKept, allocate.RuleRenewed, allocate.RuleTiers:
		t.Errorf("rule %s in state %s", outcome.Rule, outcome.State)
	case allocate.RuleOverload:
		if outcome.Overload < outcome.Threshold-1e-6 {
			t.Errorf("balanced because of an overload of %g, the threshold is %g", outcome.Overload, outcome.Threshold)
		}
		if outcome.State != allocate.Downgraded {
			t.Errorf("state %s after an overload", outcome.State)
		}
	}
}

// checkForm fails unless the plan is in its canonical form and has each endpoint
// of the region once.
func checkForm(t failer, r allocate.Region, plan allocate.Plan) {
	t.Helper()
	if !slices.IsSorted(plan.Zones) || len(plan.Zones) != len(r.Zones) {
		t.Fatalf("zones are %q", plan.Zones)
	}
	homes := map[string]int{}
	for _, g := range plan.Groups {
		if len(g.Members) == 0 {
			t.Errorf("%s has an empty group", render(plan))
		}
		for i, m := range g.Members {
			if m.Endpoints <= 0 || m.Endpoints > r.Endpoints() || i > 0 && m.Zone <= g.Members[i-1].Zone {
				t.Fatalf("%s: members %v", render(plan), g.Members)
			}
			homes[plan.Zones[m.Zone]] += m.Endpoints
		}
		for i, c := range g.Consumers {
			if !(c.Weight > 0) || math.IsInf(c.Weight, 1) || i > 0 && c.Zone <= g.Consumers[i-1].Zone {
				t.Errorf("%s: consumers %v", render(plan), g.Consumers)
			}
		}
	}
	for _, z := range r.Zones {
		if homes[z.Name] != z.Endpoints {
			t.Errorf("%s has %d endpoints of zone %q, the region has %d", render(plan), homes[z.Name], z.Name, z.Endpoints)
		}
	}
}

// regions draws regions of up to this many zones and endpoints, from equal zones to all endpoints
// in one zone.
func regions(zones, endpoints int) *rapid.Generator[allocate.Region] {
	return rapid.Custom(func(t *rapid.T) allocate.Region {
		var r allocate.Region
		capacity := rapid.OneOf(
			rapid.Just(1.0),
			rapid.Map(rapid.IntRange(0, 10), func(i int) float64 { return float64(i) }),
			rapid.Float64Range(0.01, 100),
		)
		if rapid.IntRange(0, 3).Draw(t, "alike") == 0 {
			capacity = rapid.Just(float64(rapid.IntRange(1, 30).Draw(t, "nodes")))
		}
		most := rapid.IntRange(0, endpoints).Draw(t, "most endpoints")
		for i := range rapid.IntRange(1, zones).Draw(t, "zones") {
			r.Zones = append(r.Zones, allocate.Zone{
				Name:      fmt.Sprintf("z%02d", i),
				Region:    rapid.SampledFrom([]string{"east", "west"}).Draw(t, "region"),
				Capacity:  capacity.Draw(t, "capacity"),
				Endpoints: rapid.IntRange(0, most).Draw(t, "endpoints"),
			})
		}
		if rapid.IntRange(0, 19).Draw(t, "homeless") == 0 {
			r.Zones = append(r.Zones, allocate.Zone{Endpoints: rapid.IntRange(0, 3).Draw(t, "endpoints")})
		}
		return r
	})
}

func bounds() *rapid.Generator[*allocate.Bound] {
	return rapid.Custom(func(t *rapid.T) *allocate.Bound {
		b := bound(rapid.SampledFrom(allocate.Algorithms()).Draw(t, "algorithm"))
		b.OverloadThreshold = rapid.SampledFrom([]float64{0.05, 0.2, 0.5, 0.5, 1, 3}).Draw(t, "threshold")
		return b
	})
}

// dividingBounds draws bounds of algorithms that move endpoints. Flow does not.
func dividingBounds() *rapid.Generator[*allocate.Bound] {
	return bounds().Filter(func(b *allocate.Bound) bool { return b.Algorithm != allocate.Flow })
}

// Most drawn regions are small: they meet corner cases often.
func anyRegion() *rapid.Generator[allocate.Region] {
	return rapid.OneOf(regions(4, 12), regions(4, 12), regions(5, 200), regions(40, 20))
}

func TestPlansAreSound(t *testing.T) {
	check(t, func(t *rapid.T) {
		r := anyRegion().Draw(t, "region")
		b := bounds().Draw(t, "bound")
		tiers := rapid.SampledFrom([]topology.Tiers{
			nil,
			{topology.Anywhere},
			{topology.Zone, topology.Anywhere},
			{topology.Hostname, topology.Zone, topology.Anywhere},
			{topology.Zone, topology.Region, topology.Anywhere},
		}).Draw(t, "tiers")
		plan, outcome, err := allocate.Allocate(r, allocate.Intent{Tiers: tiers, Bound: b}, allocate.Previous{})
		if err != nil {
			t.Fatal(err)
		}
		checkPlan(t, r, plan, outcome)
	})
}

// In the balanced plan every endpoint has the even share.
func TestBalancedIsEven(t *testing.T) {
	check(t, func(t *rapid.T) {
		r := anyRegion().Draw(t, "region")
		plan, outcome, err := allocate.Allocate(r, allocate.Intent{}, allocate.Previous{})
		if err != nil {
			t.Fatal(err)
		}
		checkPlan(t, r, plan, outcome)
		if f := outcome.Figures; !noCapacity(r) && (f.Overload > 1e-9 || f.Deviation > 1e-9) {
			t.Fatalf("figures %+v", f)
		}
	})
}

func noCapacity(r allocate.Region) bool {
	for _, z := range r.Zones {
		if z.Capacity > 0 {
			return false
		}
	}
	return true
}

// shuffled returns the region with its zones in another order.
func shuffled(r allocate.Region, seed uint64) allocate.Region {
	r.Zones = slices.Clone(r.Zones)
	rand.New(rand.NewPCG(seed, 1)).Shuffle(len(r.Zones), func(i, j int) { r.Zones[i], r.Zones[j] = r.Zones[j], r.Zones[i] })
	return r
}

// question is the input of an allocation.
type question struct {
	region   allocate.Region
	intent   allocate.Intent
	previous allocate.Previous
}

// questions draws inputs of all kinds. The previous plan was made for another region, which shares
// some zones and endpoints with this one.
func questions() *rapid.Generator[question] {
	return rapid.Custom(func(t *rapid.T) question {
		q := question{region: anyRegion().Draw(t, "region")}
		keys := []string{topology.Hostname, topology.Zone, topology.Region, "rack"}
		q.intent.Tiers = rapid.SliceOfNDistinct(rapid.SampledFrom(keys), 0, 3, rapid.ID).Draw(t, "tiers")
		if rapid.Bool().Draw(t, "soft") {
			q.intent.Tiers = append(q.intent.Tiers, topology.Anywhere)
		}
		if rapid.IntRange(0, 4).Draw(t, "bounded") > 0 {
			q.intent.Bound = bounds().Draw(t, "bound")
			q.intent.Bound.Start.PerZone = rapid.SampledFrom([]float64{0, 0, 3}).Draw(t, "start")
			q.intent.Bound.Padding = rapid.IntRange(0, 3).Draw(t, "padding")
			if q.intent.Validate() != nil { // nothing to divide in a hard zone
				q.intent.Tiers = append(q.intent.Tiers, topology.Anywhere)
			}
		}
		q.previous.State = rapid.SampledFrom([]allocate.State{allocate.Waiting, allocate.Allocated, allocate.Allocated, allocate.Downgraded}).Draw(t, "state")
		if q.previous.State == allocate.Allocated {
			before := q.region
			before.Zones = nil
			for _, z := range q.region.Zones {
				z.Endpoints = max(0, z.Endpoints-rapid.IntRange(0, 3).Draw(t, "new"))
				if rapid.IntRange(0, 9).Draw(t, "zone is old") > 0 {
					before.Zones = append(before.Zones, z)
				}
			}
			plan, _, err := allocate.Allocate(before, allocate.Intent{Bound: bounds().Draw(t, "previous bound")}, allocate.Previous{})
			if err != nil {
				t.Fatal(err)
			}
			q.previous.Plan = plan.Clone()
		}
		return q
	})
}

// clone returns a deep copy, for comparison.
func (q question) clone() question {
	c := q
	c.region.Zones = slices.Clone(q.region.Zones)
	c.intent.Tiers = slices.Clone(q.intent.Tiers)
	if q.intent.Bound != nil {
		b := *q.intent.Bound
		c.intent.Bound = &b
	}
	c.previous.Plan = q.previous.Plan.Clone()
	return c
}

func TestOrderOfZonesDoesNotMatter(t *testing.T) {
	check(t, func(t *rapid.T) {
		q := questions().Draw(t, "question")
		plan, outcome, err := allocate.Allocate(q.region, q.intent, q.previous)
		if err != nil {
			t.Fatal(err)
		}
		mixed, mixedOutcome, err := allocate.Allocate(shuffled(q.region, rapid.Uint64().Draw(t, "seed")), q.intent, q.previous)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(plan, mixed) || outcome != mixedOutcome {
			t.Fatalf("%s, %+v; in another order\n%s, %+v", render(plan), outcome, render(mixed), mixedOutcome)
		}
	})
}

// A zone with neither nodes nor endpoints changes no decision, nor does the unit of capacity.
func TestEmptyZonesAndUnitsChangeNothing(t *testing.T) {
	check(t, func(t *rapid.T) {
		q := questions().Draw(t, "question")
		_, want, err := allocate.Allocate(q.region, q.intent, q.previous)
		if err != nil {
			t.Fatal(err)
		}
		more := q.clone()
		more.region.Zones = append(more.region.Zones, allocate.Zone{
			Name:   rapid.SampledFrom([]string{"empty", "zz"}).Draw(t, "name"),
			Region: rapid.SampledFrom([]string{"", "east", "north"}).Draw(t, "its region"),
		})
		_, outcome, err := allocate.Allocate(more.region, more.intent, more.previous)
		if err != nil {
			t.Fatal(err)
		}
		if !sameFigures(outcome.Figures, want.Figures) {
			t.Fatalf("figures %+v with an empty zone, %+v without", outcome.Figures, want.Figures)
		}
		outcome.Figures = want.Figures
		if outcome != want {
			t.Fatalf("%+v with an empty zone, %+v without", outcome, want)
		}
		scaled := q.clone()
		for i := range scaled.region.Zones {
			scaled.region.Zones[i].Capacity *= 1024
		}
		if _, outcome, err = allocate.Allocate(scaled.region, q.intent, q.previous); err != nil || outcome != want {
			t.Fatalf("%+v with 1024 times the capacity, %+v without, %v", outcome, want, err)
		}
	})
}

// A reused planner decides as a new one does. Its switches affect only its own calls.
func TestReusedPlannersDecideAlike(t *testing.T) {
	check(t, func(t *rapid.T) {
		var used allocate.Planner
		for range rapid.IntRange(2, 12).Draw(t, "calls") {
			q := questions().Draw(t, "question")
			used.Eager = rapid.Bool().Draw(t, "eager")
			used.Forgetful = rapid.Bool().Draw(t, "forgetful")
			fresh := allocate.Planner{Eager: used.Eager, Forgetful: used.Forgetful}
			plan, outcome, err := used.Allocate(q.region, q.intent, q.previous)
			want, wantOutcome, wantErr := fresh.Allocate(q.region, q.intent, q.previous)
			if err != nil || wantErr != nil {
				t.Fatal(err, wantErr)
			}
			if render(plan) != render(want) || !slices.Equal(plan.Zones, want.Zones) || outcome != wantOutcome {
				t.Fatalf("%s, %+v; a new planner has\n%s, %+v", render(plan), outcome, render(want), wantOutcome)
			}
			if rapid.IntRange(0, 4).Draw(t, "invalid") == 0 {
				if _, _, err := used.Allocate(allocate.Region{Zones: []allocate.Zone{{Name: "a", Endpoints: 3}, {Name: "b", Capacity: -1}}}, q.intent, q.previous); err == nil {
					t.Fatal("no error for a negative capacity")
				}
			}
		}
	})
}

func TestInputsStayAsTheyAre(t *testing.T) {
	check(t, func(t *rapid.T) {
		q := questions().Draw(t, "question")
		q.region = shuffled(q.region, rapid.Uint64().Draw(t, "seed"))
		before := q.clone()
		plan, _, err := allocate.Allocate(q.region, q.intent, q.previous)
		if err != nil {
			t.Fatal(err)
		}
		var endpoints []allocate.Endpoint
		for i, e := range individuals(plan) {
			endpoints = append(endpoints, allocate.Endpoint{ID: fmt.Sprint(i), Zone: e.home})
		}
		planBefore := plan.Clone()
		if _, err := allocate.Assign(plan, endpoints); err != nil {
			t.Fatal(err)
		}
		allocate.Survivors(endpoints)
		if !reflect.DeepEqual(plan, planBefore) {
			t.Fatalf("Assign changed the plan %s to %s", render(planBefore), render(plan))
		}
		if !reflect.DeepEqual(q.clone(), before) {
			t.Fatalf("the question is %+v after the answer, before it was %+v", q, before)
		}
	})
}
