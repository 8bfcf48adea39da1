package allocate_test

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/topology"
)

// The expected plans were worked out by hand: each zone uses its own endpoints up to the even share
// and sends the excess to zones with room.
func TestFlow(t *testing.T) {
	for _, test := range []struct {
		name, region, tiers, plan string
		inZone                    float64
	}{
		{"balanced endpoints", "a=5/4 b=5/4 c=5/4", "", "a: 4a | b: 4b | c: 4c", 100},
		{"one endpoint", "a=1/1 b=1/0 c=2/0", "", "a,b,c: 1a", 25},
		// c sends a sixth of all traffic to each of the two, which bear a half.
		{"two endpoints in three zones", "a=1/1 b=1/1 c=1/0", "", "a,c: 1a | b,c: 1b", 66.667},
		// 4 of 12 are expected of each; c sends the 2 that it lacks to the 6 of a.
		{"six, four, two", "a=1/6 b=1/4 c=1/2", "", "a,c*0.333: 6a | b: 4b | c: 2c", 83.333},
		{"two zones without endpoints", "a=1/4 b=1/0 c=1/0", "", "a,b,c: 4a", 33.333},
		// b sends 0.2 of the 1.2 that are expected of it, c its 1.6.
		{"several to one", "a=3/3 b=3/1 c=4/0", "", "a,b*0.0667,c: 3a | b: 1b", 55},
		// a lacks 2 and b lacks 1; c has room for 2 and d for 1.
		{"several to several", "a=4/2 b=3/2 c=1/3 d=1/2", "", "a*0.667,c: 3c | a: 2a | b*0.5,d: 2d | b: 2b", 66.667},
		{"a zone without capacity", "a=0/2 b=1/2 c=1/2", "", "a,b*0.5,c*0.5: 2a | b: 2b | c: 2c", 66.667},
		{"endpoints without a zone", "-=0/3 a=1/3", "", "-,a: 3- | a: 3a", 50},
		{"all where no endpoint is", "a=0/6 b=0/6 c=6/0", "", "a,c: 6a | b,c: 6b", 0},
		// Otherwise a would send to b, which comes before c.
		{"the region first", "a@east=3/2 b@west=1/2 c@east=1/2 d@west=1/0", "", "a*0.5,c: 2c | a: 2a | b,d: 2b", 66.667},
		{"the region preferred", "a@east=3/1 b@east=1/1 c@west=1/4", "zone,region,*", "a*0.65,b*0.05,c: 4c | a: 1a | b: 1b", 0},
		{"the region required", "a@east=3/1 b@east=1/1 c@west=1/4", "zone,region", "a*0.5,b: 1b | a: 1a | c: 4c", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := region(t, test.region)
			b := bound(allocate.Flow)
			b.Start.PerZone, b.Padding = 30, 3 // flow ignores both
			plan, outcome, err := allocate.Allocate(r, allocate.Intent{Tiers: parseTiers(t, test.tiers), Bound: b}, allocate.Previous{})
			if err != nil {
				t.Fatal(err)
			}
			checkForm(t, r, plan)
			if got := render(plan); got != test.plan || !plan.AtHome || outcome.Rule != allocate.RulePlanned {
				t.Errorf("the plan is %s by %s, want %s", got, outcome.Rule, test.plan)
			}
			if test.tiers != "" {
				return
			}
			if got := 100 * outcome.Figures.InZone; math.Abs(got-test.inZone) > 0.001 || outcome.Figures.Overload > 1e-6 {
				t.Errorf("figures %+v, want %.3f %% in zone and no overload", outcome.Figures, test.inZone)
			}
		})
	}
}

// A new plan is the one nearest to the plan in force.
func TestFlowChangesLittle(t *testing.T) {
	for _, test := range []struct {
		name, before, after, plan string
		rule                      allocate.Rule
	}{
		{"nothing happens", "a=1/6 b=1/4 c=1/2", "a=1/6 b=1/4 c=1/2", "a,c*0.333: 6a | b: 4b | c: 2c", allocate.RuleKept},
		{"one more of a hundred", "a=1/100 b=1/100 c=1/100", "a=1/101 b=1/100 c=1/100", "a: 101a | b: 100b | c: 100c", allocate.RuleKept},
		{"one more of four", "a=1/4 b=1/4 c=1/4", "a=1/5 b=1/4 c=1/4", "a,b*0.0667,c*0.0667: 5a | b: 4b | c: 4c", allocate.RulePlanned},
		// The overflow of b still goes to c, though a comes first by name.
		{"among equals the one in force", "a=2/2 b=2/0 c=2/4 d=2/2", "a=2/4 b=2/1 c=2/4 d=2/1", "a,d*0.375: 4a | b*0.375,c: 4c | b: 1b | d: 1d", allocate.RulePlanned},
		{"a zone lost", "a=1/4 b=1/4 c=1/4", "a=1/4 b=1/4", "a: 4a | b: 4b", allocate.RuleKept},
		{"the endpoints of a zone lost", "a=1/4 b=1/4 c=1/4", "a=1/4 b=1/4 c=1/0", "a,c: 4a | b,c: 4b", allocate.RulePlanned},
		{"a zone regained", "a=1/4 b=1/4 c=1/0", "a=1/4 b=1/4 c=1/4", "a: 4a | b: 4b | c: 4c", allocate.RulePlanned},
		// The endpoint takes only a thousandth of the traffic, but would be idle.
		{"a first endpoint without a zone", "a=1/500 b=1/500", "-=0/1 a=1/500 b=1/500", "", allocate.RulePlanned},
	} {
		t.Run(test.name, func(t *testing.T) {
			intent := allocate.Intent{Bound: bound(allocate.Flow)}
			before, _, err := allocate.Allocate(region(t, test.before), intent, allocate.Previous{})
			if err != nil {
				t.Fatal(err)
			}
			r := region(t, test.after)
			plan, outcome, err := allocate.Allocate(r, intent, allocate.Previous{State: allocate.Allocated, Plan: survivingOf(before, r)})
			if err != nil {
				t.Fatal(err)
			}
			checkFlow(t, r, plan, outcome)
			if got := render(plan); outcome.Rule != test.rule || test.plan != "" && got != test.plan {
				t.Errorf("the plan is %s by %s, want %s by %s", got, outcome.Rule, test.plan, test.rule)
			}
		})
	}
}

// survivingOf returns a plan with no more endpoints than the region has.
func survivingOf(plan allocate.Plan, r allocate.Region) allocate.Plan {
	plan = plan.Clone()
	for g := range plan.Groups {
		for m := range plan.Groups[g].Members {
			member := &plan.Groups[g].Members[m]
			i := slices.IndexFunc(r.Zones, func(z allocate.Zone) bool { return z.Name == plan.Zones[member.Zone] })
			if i < 0 {
				member.Endpoints = 0
			} else {
				member.Endpoints = min(member.Endpoints, r.Zones[i].Endpoints)
			}
		}
	}
	return plan
}

// checkFlow fails unless the plan has the properties of every flow plan: each home zone's endpoints
// are a group that it uses, no load differs from the even share by a hundredth, and nearly all
// traffic that can stay at home does.
func checkFlow(t failer, r allocate.Region, plan allocate.Plan, outcome allocate.Outcome) {
	t.Helper()
	checkPlan(t, r, plan, outcome)
	if outcome.IsBalanced() && outcome.Rule != allocate.RuleOneZone { // nothing to choose
		if n := r.Endpoints(); n > 0 && !noCapacity(r) {
			t.Fatalf("balanced by %s with %d endpoints", outcome.Rule, n)
		}
		return
	}
	for g, group := range plan.Groups {
		if len(group.Members) != 1 || !group.Consumes(group.Members[0].Zone) ||
			slices.ContainsFunc(plan.Groups[:g], func(other allocate.Group) bool { return other.Members[0].Zone == group.Members[0].Zone }) {
			t.Fatalf("%s is not by home zones", render(plan))
		}
	}
	for g, load := range new(allocate.Meter).Loads(plan, r.Shares(plan.Zones)) {
		if math.Abs(load-1) >= 0.01 {
			t.Fatalf("%s: the load of group %d is %g", render(plan), g, load)
		}
	}
	most := 0.0
	for z, share := range r.Shares(plan.Zones) {
		i := slices.IndexFunc(r.Zones, func(zone allocate.Zone) bool { return zone.Name == plan.Zones[z] })
		most += min(share, float64(r.Zones[i].Endpoints)/float64(r.Endpoints()))
	}
	if got := outcome.Figures.InZone; got < most-0.01 || got > most+0.01 {
		t.Fatalf("%s: %g in zone, %g can be", render(plan), got, most)
	}
}

// Without a previous plan all loads are exact, and as much traffic as possible stays in its region.
func TestFlowIsExact(t *testing.T) {
	check(t, func(t *rapid.T) {
		r := anyRegion().Draw(t, "region")
		plan, outcome, err := allocate.Allocate(r, allocate.Intent{Bound: bound(allocate.Flow)}, allocate.Previous{})
		if err != nil {
			t.Fatal(err)
		}
		checkFlow(t, r, plan, outcome)
		if outcome.IsBalanced() {
			return
		}
		if outcome.Figures.Deviation > 1e-6 {
			t.Fatalf("%s: %+v", render(plan), outcome.Figures)
		}
		total, lacks, rooms := 0.0, map[string]float64{}, map[string]float64{}
		for _, z := range r.Zones {
			total += z.Capacity
		}
		want := 0.0
		for _, z := range r.Zones {
			expected := float64(r.Endpoints()) * z.Capacity / total
			want += min(expected, float64(z.Endpoints))
			lacks[z.Region] += max(0, expected-float64(z.Endpoints))
			rooms[z.Region] += max(0, float64(z.Endpoints)-expected)
		}
		for name, lack := range lacks {
			if name != "" {
				want += min(lack, rooms[name])
			}
		}
		if got := inRegion(plan, r); math.Abs(got-want/float64(r.Endpoints())) > 1e-6 {
			t.Fatalf("%s: %g in the region, %g can be", render(plan), got, want/float64(r.Endpoints()))
		}
	})
}

// inRegion returns the share of traffic that stays in its zone or its region.
func inRegion(plan allocate.Plan, r allocate.Region) float64 {
	sum := 0.0
	for pair, amount := range traffic(plan, r) {
		if pair[0] == pair[1] || regionOf(r, pair[0]) != "" && regionOf(r, pair[0]) == regionOf(r, pair[1]) {
			sum += amount
		}
	}
	return sum
}

func regionOf(r allocate.Region, zone string) string {
	i := slices.IndexFunc(r.Zones, func(z allocate.Zone) bool { return z.Name == zone })
	return r.Zones[i].Region
}

// traffic returns the share of traffic from each zone to each home.
func traffic(plan allocate.Plan, r allocate.Region) map[[2]string]float64 {
	width := make([]float64, len(plan.Zones))
	for _, g := range plan.Groups {
		for _, c := range g.Consumers {
			width[c.Zone] += c.Weight * float64(g.Size())
		}
	}
	sent, shares := map[[2]string]float64{}, r.Shares(plan.Zones)
	for _, g := range plan.Groups {
		for _, c := range g.Consumers {
			for _, m := range g.Members {
				sent[[2]string{plan.Zones[c.Zone], plan.Zones[m.Zone]}] += shares[c.Zone] * c.Weight * float64(m.Endpoints) / width[c.Zone]
			}
		}
	}
	return sent
}

// After any events and any previous plan, endpoints stay at home, loads stay even, and planning
// again gives the same plan.
func TestFlowThroughEvents(t *testing.T) {
	check(t, func(t *rapid.T) {
		b := bound(allocate.Flow)
		b.OverloadThreshold = rapid.SampledFrom([]float64{0.005, 0.05, 0.5}).Draw(t, "threshold")
		h := &history{}
		most := rapid.SampledFrom([]int{8, 8, 150}).Draw(t, "most")
		for i := range rapid.IntRange(2, 5).Draw(t, "zones") {
			h.zones = append(h.zones, allocate.Zone{
				Name: fmt.Sprintf("z%02d", i), Capacity: float64(rapid.IntRange(1, 6).Draw(t, "nodes")),
				Region: rapid.SampledFrom([]string{"", "east", "west"}).Draw(t, "region"),
			})
			for range rapid.IntRange(0, most).Draw(t, "endpoints") {
				h.start(h.zones[i].Name)
			}
		}
		if other := bounds().Draw(t, "before"); other.Algorithm != allocate.Flow {
			h.step(t, new(allocate.Planner), other)
			h.event(t)
		}
		var planner allocate.Planner
		was := false // flow
		for range rapid.IntRange(1, 8).Draw(t, "events") {
			r := h.region()
			intent := allocate.Intent{Bound: b}
			plan, outcome, err := planner.Allocate(r, intent, allocate.Previous{State: h.state, Plan: allocate.Survivors(h.endpoints)})
			if err != nil {
				t.Fatal(err)
			}
			plan = plan.Clone()
			checkFlow(t, r, plan, outcome)
			moved, err := allocate.Assign(plan, h.endpoints)
			if err != nil || was && !outcome.IsBalanced() && moved > 0 {
				t.Fatalf("%s moves %d, %v", render(plan), moved, err)
			}
			h.state, was = outcome.State, !outcome.IsBalanced()
			again, next, err := planner.Allocate(r, intent, allocate.Previous{State: h.state, Plan: allocate.Survivors(h.endpoints)})
			if err != nil || !reflect.DeepEqual(again, plan) || was && next.Rule != allocate.RuleKept {
				t.Fatalf("%s, and again %s by %s, %v", render(plan), render(again), next.Rule, err)
			}
			h.event(t)
		}
	})
}

// Traffic stays in a hard region, at any load.
func TestFlowStaysInHardRegions(t *testing.T) {
	check(t, func(t *rapid.T) {
		r := anyRegion().Draw(t, "region")
		intent := allocate.Intent{Tiers: topology.Tiers{topology.Zone, topology.Region}, Bound: bound(allocate.Flow)}
		plan, outcome, err := allocate.Allocate(r, intent, allocate.Previous{})
		if err != nil {
			t.Fatal(err)
		}
		checkForm(t, r, plan)
		if outcome.IsBalanced() {
			return
		}
		for pair, amount := range traffic(plan, r) {
			if amount > 0 && regionOf(r, pair[0]) != regionOf(r, pair[1]) {
				t.Fatalf("%s sends from %s to %s", render(plan), pair[0], pair[1])
			}
		}
	})
}
