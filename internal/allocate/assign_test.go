package allocate_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"vicinity.dev/vicinity/internal/allocate"
)

// endpoints reads "a1:a,b a2 b1:b": the endpoints a1, a2 and b1 of the zones that
// their first letters name, a1 assigned to a and b.
func endpoints(text string) []allocate.Endpoint {
	var list []allocate.Endpoint
	for field := range strings.FieldsSeq(text) {
		id, zones, assigned := strings.Cut(field, ":")
		e := allocate.Endpoint{ID: id, Zone: id[:1]}
		if assigned {
			e.Assigned = allocate.NewConsumerSet(strings.Split(zones, ",")...)
		}
		list = append(list, e)
	}
	return list
}

// parsePlan reads the form of render, without weights.
func parsePlan(t testing.TB, text string) allocate.Plan {
	t.Helper()
	plan := allocate.Plan{Zones: []string{"a", "b", "c"}}
	for group := range strings.SplitSeq(text, " | ") {
		consumers, members, _ := strings.Cut(group, ": ")
		var g allocate.Group
		for zone := range strings.SplitSeq(consumers, ",") {
			g.Consumers = append(g.Consumers, allocate.Consumer{Zone: slices.Index(plan.Zones, zone), Weight: 1})
		}
		for member := range strings.FieldsSeq(members) {
			var n int
			var zone string
			if _, err := fmt.Sscanf(member, "%d%s", &n, &zone); err != nil {
				t.Fatal(err)
			}
			g.Members = append(g.Members, allocate.Member{Zone: slices.Index(plan.Zones, zone), Endpoints: n})
		}
		plan.Groups = append(plan.Groups, g)
	}
	return plan
}

func TestAssignToAnotherPlan(t *testing.T) {
	for _, test := range []struct {
		name, plan, endpoints string
		want                  []string
	}{
		{"one too many", "a: 1a | b: 1b", "a1:a a2 b1:b", []string{`zone "a"`, "+1"}},
		{"two missing", "a: 1a | b: 3b", "a1:b b1:a", []string{`zone "b"`, "-2"}},
		{"another zone", "a: 1a", "z1:a", []string{`zone "a"`, "-1"}},
		{"none", "a: 1a", "", []string{`zone "a"`, "-1"}},
		{"twice", "a: 2a | b: 1b", "a1:b b1:a a1:b", []string{`"a1"`, `zone "a"`, "twice"}},
		{"twice and too many", "a: 1a", "a1:b a1:b", []string{`"a1"`, "twice"}},
	} {
		list := endpoints(test.endpoints)
		moved, err := allocate.Assign(parsePlan(t, test.plan), list)
		if err == nil {
			t.Errorf("%s: no error", test.name)
			continue
		}
		for _, part := range test.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not contain %q", test.name, err, part)
			}
		}
		if moved != 0 || !reflect.DeepEqual(list, endpoints(test.endpoints)) {
			t.Errorf("%s: %v, %d moved", test.name, list, moved)
		}
	}
	// IDs are unique within a zone only.
	list := []allocate.Endpoint{{ID: "1", Zone: "a"}, {ID: "1", Zone: "b"}}
	if _, err := allocate.Assign(parsePlan(t, "a: 1a | b: 1b"), list); err != nil {
		t.Errorf("the same ID in two zones: %v", err)
	}
}

// byHomeAndSet counts the endpoints of a plan or list, weights left out.
type byHomeAndSet map[string]map[string]int

func (c byHomeAndSet) add(home string, set allocate.ConsumerSet) {
	if c[home] == nil {
		c[home] = map[string]int{}
	}
	c[home][set.String()]++
}

func ofPlan(plan allocate.Plan) byHomeAndSet {
	counts := byHomeAndSet{}
	for i, g := range plan.Groups {
		for _, m := range g.Members {
			for range m.Endpoints {
				counts.add(plan.Zones[m.Zone], plan.ConsumerSet(i))
			}
		}
	}
	return counts
}

func ofEndpoints(list []allocate.Endpoint) byHomeAndSet {
	counts := byHomeAndSet{}
	for _, e := range list {
		if !e.Assigned.IsZero() {
			counts.add(e.Zone, e.Assigned)
		}
	}
	return counts
}

// fewestMoves tries all ways to give endpoints the sets of the plan.
func fewestMoves(plan allocate.Plan, list []allocate.Endpoint) int {
	left := ofPlan(plan)
	best := len(list) + 1
	var try func(i, moved int)
	try = func(i, moved int) {
		if i == len(list) {
			best = min(best, moved)
			return
		}
		for set, n := range left[list[i].Zone] {
			if n == 0 {
				continue
			}
			cost := 0
			if !list[i].Assigned.IsZero() && list[i].Assigned.String() != set {
				cost = 1
			}
			left[list[i].Zone][set]--
			try(i+1, moved+cost)
			left[list[i].Zone][set]++
		}
	}
	try(0, 0)
	return best
}

// assignedEndpoints draws the endpoints of a plan. Some are assigned to sets, which the plan may
// have or not.
func assignedEndpoints(plan allocate.Plan) *rapid.Generator[[]allocate.Endpoint] {
	sets := []allocate.ConsumerSet{{}, allocate.NewConsumerSet("gone"), allocate.NewConsumerSet("z00", "z01")}
	for i := range plan.Groups {
		zones := plan.ConsumerSet(i).Zones()
		sets = append(sets, plan.ConsumerSet(i), allocate.NewConsumerSet(zones...), allocate.NewConsumerSet(append(zones, "gone")...))
	}
	for _, zone := range plan.Zones {
		sets = append(sets, allocate.NewConsumerSet(zone))
	}
	return rapid.Custom(func(t *rapid.T) []allocate.Endpoint {
		var list []allocate.Endpoint
		for i, e := range individuals(plan) {
			list = append(list, allocate.Endpoint{
				ID: fmt.Sprintf("%c%d", 'a'+(i*7)%13, i), Zone: e.home,
				Assigned: rapid.SampledFrom(sets).Draw(t, "assigned"),
			})
		}
		rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 2)).Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		return list
	})
}

func TestAssignMovesNoMoreThanNeeded(t *testing.T) {
	check(t, func(t *rapid.T) {
		r := regions(4, 4).Draw(t, "region")
		plan, _, err := allocate.Allocate(r, allocate.Intent{Bound: dividingBounds().Draw(t, "bound")}, allocate.Previous{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Endpoints() > 8 {
			return
		}
		list := assignedEndpoints(plan).Draw(t, "endpoints")
		want := fewestMoves(plan, list)
		moved, err := allocate.Assign(plan, list)
		if err != nil {
			t.Fatal(err)
		}
		if moved != want {
			t.Fatalf("%d moved for %s, %d would do", moved, render(plan), want)
		}
		if got := ofEndpoints(list); !reflect.DeepEqual(got, ofPlan(plan)) {
			t.Fatalf("assigned are %v, the plan is %s", got, render(plan))
		}
	})
}

func TestAssignIgnoresOrder(t *testing.T) {
	check(t, func(t *rapid.T) {
		r := regions(5, 20).Draw(t, "region")
		plan, _, err := allocate.Allocate(r, allocate.Intent{Bound: bounds().Draw(t, "bound")}, allocate.Previous{})
		if err != nil {
			t.Fatal(err)
		}
		list := assignedEndpoints(plan).Draw(t, "endpoints")
		other := slices.Clone(list)
		rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 3)).Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
		before := slices.Clone(list)
		moved, err := allocate.Assign(plan, list)
		if err != nil {
			t.Fatal(err)
		}
		otherMoved, err := allocate.Assign(plan, other)
		if err != nil {
			t.Fatal(err)
		}
		byID := map[string]allocate.Endpoint{}
		for _, e := range list {
			byID[e.ID] = e
		}
		for _, e := range other {
			if byID[e.ID] != e {
				t.Fatalf("endpoint %s is %+v, in another order %+v", e.ID, byID[e.ID], e)
			}
		}
		changed := 0
		for i, e := range before {
			if e.ID != list[i].ID || e.Zone != list[i].Zone {
				t.Fatalf("endpoint %d was %+v and is %+v", i, e, list[i])
			}
			switch {
			case e.Assigned.IsZero():
			case plan.AtHome && slices.Contains(e.Assigned.Zones(), e.Zone):
			case !slices.Equal(e.Assigned.Zones(), list[i].Assigned.Zones()):
				changed++
			}
		}
		if moved != changed || moved != otherMoved {
			t.Fatalf("%d moved, in another order %d, %d changed", moved, otherMoved, changed)
		}
		// A second Assign changes nothing, weights included.
		before = slices.Clone(list)
		if moved, err = allocate.Assign(plan, list); err != nil || moved != 0 || !slices.Equal(list, before) {
			t.Fatalf("the second time %d moved, %v: %v after %v", moved, err, list, before)
		}
	})
}

// Survivors of assigned endpoints equal the plan, weights included.
func TestSurvivorsAreThePlan(t *testing.T) {
	check(t, func(t *rapid.T) {
		r := anyRegion().Draw(t, "region")
		plan, outcome, err := allocate.Allocate(r, allocate.Intent{Bound: bounds().Draw(t, "bound")}, allocate.Previous{})
		if err != nil {
			t.Fatal(err)
		}
		var list []allocate.Endpoint
		for i, e := range individuals(plan) {
			list = append(list, allocate.Endpoint{ID: fmt.Sprint(i), Zone: e.home})
		}
		if _, err := allocate.Assign(plan, list); err != nil {
			t.Fatal(err)
		}
		survivors := allocate.Survivors(list)
		if !slices.IsSorted(survivors.Zones) {
			t.Fatalf("zones are %q", survivors.Zones)
		}
		if got, want := exactly(survivors), exactly(plan); !reflect.DeepEqual(got, want) {
			t.Fatalf("survivors are %v of the plan %v", got, want)
		}
		if got := measure(survivors, capacities(r)); outcome.Figures.Unreached == 0 && len(list) > 0 && !sameFigures(got, outcome.Figures) {
			t.Fatalf("survivors have figures %+v, the plan has %+v", got, outcome.Figures)
		}
		rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 4)).Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		if again := allocate.Survivors(list); !reflect.DeepEqual(again, survivors) {
			t.Fatalf("in another order the survivors are %s, not %s", render(again), render(survivors))
		}
	})
}

// exactly counts the endpoints of a plan by consumer set and home.
func exactly(plan allocate.Plan) map[allocate.ConsumerSet]map[string]int {
	counts := map[allocate.ConsumerSet]map[string]int{}
	for i, g := range plan.Groups {
		set := plan.ConsumerSet(i)
		if counts[set] == nil {
			counts[set] = map[string]int{}
		}
		for _, m := range g.Members {
			counts[set][plan.Zones[m.Zone]] += m.Endpoints
		}
	}
	return counts
}

func TestSurvivorsLeaveOutTheUnassigned(t *testing.T) {
	if plan := allocate.Survivors(endpoints("a1 b1 a2")); len(plan.Groups) != 0 || len(plan.Zones) != 0 {
		t.Errorf("%s in zones %q", render(plan), plan.Zones)
	}
	plan := allocate.Survivors(endpoints("a1:b b1:b a2 a3:a,d a4:b"))
	if got := render(plan); got != "a,d: 1a | b: 2a 1b" || !slices.Equal(plan.Zones, []string{"a", "b", "d"}) {
		t.Errorf("%s in zones %q", got, plan.Zones)
	}
}

// If not all endpoints can stay, endpoints with the same weights stay first, then those with the
// same zones, then those with further zones that are gone.
func TestAssignPrefersTheSame(t *testing.T) {
	plan := allocate.Plan{Zones: []string{"a", "b"}, Groups: []allocate.Group{
		{Members: []allocate.Member{{Zone: 0, Endpoints: 1}}, Consumers: []allocate.Consumer{{Zone: 0, Weight: 0.25}, {Zone: 1, Weight: 0.75}}},
		{Members: []allocate.Member{{Zone: 0, Endpoints: 1}}, Consumers: []allocate.Consumer{{Zone: 0, Weight: 0.75}, {Zone: 1, Weight: 0.25}}},
		{Members: []allocate.Member{{Zone: 0, Endpoints: 1}}, Consumers: []allocate.Consumer{{Zone: 1, Weight: 1}}},
	}}
	little, much := plan.ConsumerSet(0), plan.ConsumerSet(1)
	both, more := allocate.NewConsumerSet("a", "b"), allocate.NewConsumerSet("a", "b", "gone")
	for _, test := range []struct {
		name   string
		before []allocate.ConsumerSet
		after  []allocate.ConsumerSet
		moved  int
	}{
		{"same weights", []allocate.ConsumerSet{much, little, {}}, []allocate.ConsumerSet{much, little, plan.ConsumerSet(2)}, 0},
		{"same weights before same zones", []allocate.ConsumerSet{both, much, little}, []allocate.ConsumerSet{plan.ConsumerSet(2), much, little}, 1},
		{"same zones before more", []allocate.ConsumerSet{more, much, both}, []allocate.ConsumerSet{plan.ConsumerSet(2), much, little}, 1},
	} {
		list := endpoints("a1 a2 a3")
		for i, set := range test.before {
			list[i].Assigned = set
		}
		moved, err := allocate.Assign(plan, list)
		if err != nil || moved != test.moved {
			t.Errorf("%s: %d moved, %v, want %d", test.name, moved, err, test.moved)
		}
		for i, e := range list {
			if e.Assigned != test.after[i] {
				t.Errorf("%s: %s is assigned to %v", test.name, e.ID, e.Assigned)
			}
		}
	}
}
