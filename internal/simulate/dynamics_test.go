package simulate

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vicinity.dev/vicinity/internal/allocate"
)

// story returns a scenario of these events.
func story(length time.Duration, events ...Event) Scenario {
	return Scenario{Name: "test", Events: events, Length: length}
}

// at returns an event so many seconds after the start.
func at(seconds int, changes ...Change) Event {
	return Event{At: time.Duration(seconds) * time.Second, Changes: changes}
}

func change(subject Subject, zones ...ZoneChange) Change { return Change{subject, zones} }

func to(zone string, amount int) ZoneChange { return ZoneChange{Zone: zone, Amount: amount} }

func more(zone string, amount int) ZoneChange {
	return ZoneChange{Zone: zone, Amount: amount, Relative: true}
}

// dynamics runs one scenario and returns its runs by algorithm and variant.
func dynamics(t *testing.T, scenario Scenario, o DynamicsOptions) map[string]DynamicsRun {
	t.Helper()
	o.Scenarios = []Scenario{scenario}
	results, err := Dynamics(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	runs := map[string]DynamicsRun{}
	for _, run := range results.Scenarios[0].Runs {
		runs[run.Algorithm+" "+run.Variant] = run
	}
	return runs
}

func bounds(algorithms ...allocate.Algorithm) []allocate.Bound {
	var list []allocate.Bound
	for _, a := range algorithms {
		list = append(list, allocate.DefaultBound(a))
	}
	return list
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

func TestTimeIsAccountedForOnTheVirtualClock(t *testing.T) {
	scenario := story(2*time.Minute,
		at(0, change(SubjectNodes, to("a", 1), to("b", 1)), change(SubjectEndpoints, to("a", 3), to("b", 3))),
		at(10, change(SubjectTraffic, to("a", 1))), // all traffic from a: half of it in zone
		at(30, change(SubjectTraffic, to("a", 1), to("b", 3))),
		at(40, change(SubjectEndpoints, to("a", 0), to("b", 0))), // an outage does not count
		at(60, change(SubjectEndpoints, to("a", 1))),
		at(90, change(SubjectNodes, to("a", 0), to("b", 0)), change(SubjectTraffic)), // no nodes, no traffic
	)
	run := dynamics(t, scenario, DynamicsOptions{Bounds: bounds(allocate.Balanced)})["balanced full"]
	if run.Served != 70*time.Second {
		t.Errorf("served for %s, want 70s", run.Served)
	}
	// Half for 40 s, then a quarter for 30 s: the only endpoint is in zone a.
	if want := (0.5*40 + 0.25*30) / 70; !near(run.InZone, want) {
		t.Errorf("in-zone %g, want %g", run.InZone, want)
	}
	if run.WorstOverload != 0 || run.AboveThreshold != 0 {
		t.Errorf("overload %g and %s above the threshold of a balanced Service", run.WorstOverload, run.AboveThreshold)
	}
	var series []string
	for _, m := range run.Series {
		series = append(series, fmt.Sprintf("%s %d %.2f", m.At, m.Endpoints, m.InZone))
	}
	want := []string{"0s 6 0.50", "10s 6 0.50", "30s 6 0.50", "40s 0 0.00", "1m0s 1 0.25", "1m30s 1 0.00"}
	if !slices.Equal(series, want) {
		t.Errorf("series %q, want %q", series, want)
	}
}

func TestChangesAreCounted(t *testing.T) {
	scenario := story(time.Minute,
		// a expects 4, so b gives it one.
		at(0, change(SubjectNodes, to("a", 2), to("b", 1)), change(SubjectEndpoints, to("a", 3), to("b", 3))),
		at(10, change(SubjectEndpoints, to("a", 1))),   // 4 endpoints: too few, so balanced
		at(20, change(SubjectEndpoints, to("a", 5))),   // allocated again
		at(30, change(SubjectEndpoints, more("c", 1))), // c has no nodes: another zone uses its endpoint
	)
	for _, test := range []struct {
		delivery allocate.Delivery
		want     []string
	}{
		// Endpoints, reallocated, slices written, allocated.
		{allocate.DeliveryHints, []string{"6 0 0 true", "4 4 1 false", "8 4 1 true", "9 0 1 true"}},
		// Two groups become one for all zones: one slice is rewritten, the other deleted. Then the
		// reverse.
		{allocate.DeliveryGroups, []string{"6 0 0 true", "4 4 2 false", "8 4 2 true", "9 0 1 true"}},
	} {
		bound := allocate.DefaultBound(allocate.Local)
		bound.Padding = 0
		run := dynamics(t, scenario, DynamicsOptions{Bounds: []allocate.Bound{bound}, Delivery: test.delivery})["local full"]
		var got []string
		for _, m := range run.Series {
			got = append(got, fmt.Sprintf("%d %d %d %v", m.Endpoints, m.Reallocated, m.SlicesWritten, m.Allocated))
		}
		if run.Flips != 2 {
			t.Errorf("%s: %d flips, want 2", test.delivery, run.Flips)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", test.delivery, got, test.want)
		}
	}
}

func TestPaddingPreventsFlapping(t *testing.T) {
	scenario := play(t, "wavering", DefaultScenarioOptions())
	runs := dynamics(t, scenario, DynamicsOptions{Bounds: bounds(allocate.Local, allocate.LocalShared), Without: []Saving{Padding}})
	for _, algorithm := range []string{"local", "local-shared"} {
		with, without := runs[algorithm+" full"], runs[algorithm+" no-padding"]
		if with.Flips != 0 {
			t.Errorf("%s: %d flips with padding", algorithm, with.Flips)
		}
		if without.Flips < 10 || without.Reallocated < 10*max(1, with.Reallocated) {
			t.Errorf("%s without padding: %d flips and %d reallocated, with it %d reallocated",
				algorithm, without.Flips, without.Reallocated, with.Reallocated)
		}
	}
}

func TestLazinessAndMinimalMovesSpareReallocations(t *testing.T) {
	algorithms := []allocate.Algorithm{allocate.Local, allocate.LocalShared, allocate.LocalWeighted, allocate.LocalOpt, allocate.Auto, allocate.Optimal}
	runs := dynamics(t, play(t, "churn", DefaultScenarioOptions()),
		DynamicsOptions{Bounds: bounds(algorithms...), Without: []Saving{Laziness, AllSavings}, Delivery: allocate.DeliveryGroups})
	for _, a := range algorithms {
		full, eager, none := runs[string(a)+" full"], runs[string(a)+" no-laziness"], runs[string(a)+" no-savings"]
		if 2*full.Reallocated >= eager.Reallocated {
			t.Errorf("%s: laziness spares less than half: %d instead of %d", a, full.Reallocated, eager.Reallocated)
		}
		// Only minimal moves can make a difference here, since churn never comes near the starting
		// threshold.
		if eager.Reallocated >= none.Reallocated {
			t.Errorf("%s: minimal moves spare nothing: %d instead of %d", a, eager.Reallocated, none.Reallocated)
		}
	}
}

func TestFlowMovesTrafficAndNoEndpoints(t *testing.T) {
	for _, name := range ScenarioNames() {
		o := DynamicsOptions{Bounds: bounds(allocate.Flow), Without: []Saving{Laziness}, Delivery: allocate.DeliveryGroups}
		runs := dynamics(t, play(t, name, DefaultScenarioOptions()), o)
		full, eager := runs["flow full"], runs["flow no-laziness"]
		if full.Reallocated != 0 || full.Flips != 0 {
			t.Errorf("%s: %d endpoints reallocated, %d flips", name, full.Reallocated, full.Flips)
		}
		if name != "one-zone-traffic" && full.WorstOverload >= 0.01 {
			t.Errorf("%s: an overload of %g", name, full.WorstOverload)
		}
		if full.SlicesWritten > eager.SlicesWritten || full.Rerouted > 1.01*eager.Rerouted {
			t.Errorf("%s: %d slices written and %.3f rerouted, %d and %.3f if weights were always exact",
				name, full.SlicesWritten, full.Rerouted, eager.SlicesWritten, eager.Rerouted)
		}
	}
}

// One of twelve endpoints with even loads goes, and its twelfth of the traffic moves. Traffic that
// had no endpoint before, or that comes from another zone now, does not count as rerouted.
func TestRerouted(t *testing.T) {
	four := change(SubjectEndpoints, to("a", 4), to("b", 4), to("c", 4))
	scenario := story(50*time.Second,
		at(0, change(SubjectNodes, to("a", 1), to("b", 1), to("c", 1)), four),
		at(10, change(SubjectEndpoints, to("a", 3))),
		at(20, change(SubjectEndpoints, to("a", 0), to("b", 0), to("c", 0))),
		at(30, four),
		at(40, change(SubjectTraffic, to("a", 1))),
	)
	runs := dynamics(t, scenario, DynamicsOptions{Bounds: bounds(allocate.Balanced, allocate.Local, allocate.Flow), Delivery: allocate.DeliveryGroups})
	const want = 1. / 12
	for name, run := range runs {
		if got := run.Rerouted; !near(got, want) || !near(run.Series[1].Rerouted, want) {
			t.Errorf("%s: %g rerouted, %g by the first event, want %g", name, got, run.Series[1].Rerouted, want)
		}
	}
}

func TestDynamicsIsDeterministic(t *testing.T) {
	options := DynamicsOptions{Bounds: bounds(allocate.Algorithms()...), Upstream: true, Without: Savings(), Delivery: allocate.DeliveryGroups, Seed: 7}
	for _, name := range ScenarioNames() {
		options.Scenarios = append(options.Scenarios, play(t, name, small()))
	}
	one, err := Dynamics(context.Background(), options)
	if err != nil {
		t.Fatal(err)
	}
	two, err := Dynamics(context.Background(), options)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(one, two) {
		t.Error("two runs differ")
	}
}

// drawScenario draws any sequence of changes that removes only existing endpoints and nodes.
func drawScenario(t *rapid.T) Scenario {
	names := []string{"a", "b", "c", "d"}[:rapid.IntRange(1, 4).Draw(t, "zones")]
	endpoints := map[string]int{}
	var nodes, ready []ZoneChange
	for _, name := range names {
		nodes = append(nodes, to(name, rapid.IntRange(0, 9).Draw(t, "nodes")))
		endpoints[name] = rapid.IntRange(0, 9).Draw(t, "endpoints")
		ready = append(ready, to(name, endpoints[name]))
	}
	s := story(time.Hour, at(0, change(SubjectNodes, nodes...), change(SubjectEndpoints, ready...)))
	for i := range rapid.IntRange(1, 25).Draw(t, "events") {
		zone := rapid.SampledFrom(names).Draw(t, "zone")
		subject := rapid.SampledFrom([]Subject{SubjectNodes, SubjectEndpoints, SubjectEndpoints, SubjectRetire, SubjectTraffic}).Draw(t, "subject")
		z := to(zone, rapid.IntRange(0, 9).Draw(t, "amount"))
		switch subject {
		case SubjectEndpoints:
			if z.Relative = rapid.Bool().Draw(t, "relative"); z.Relative {
				z.Amount = max(z.Amount-3, -endpoints[zone])
				endpoints[zone] += z.Amount
			} else {
				endpoints[zone] = z.Amount
			}
		case SubjectRetire:
			z.Amount = min(z.Amount, endpoints[zone])
			endpoints[zone] -= z.Amount
		}
		s.Events = append(s.Events, at(60*(i+1), change(subject, z)))
	}
	return s
}

func TestPlansAndSlicesHaveAllEndpoints(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scenario := drawScenario(t)
		o := DynamicsOptions{
			Bounds:    bounds(allocate.Algorithms()...),
			Upstream:  true,
			Without:   Savings(),
			Delivery:  rapid.SampledFrom([]allocate.Delivery{allocate.DeliveryGroups, allocate.DeliveryHints}).Draw(t, "delivery"),
			SliceSize: rapid.IntRange(1, 8).Draw(t, "slice size"),
			Seed:      rapid.Uint64().Draw(t, "seed"),
		}
		for _, c := range o.contestants() {
			router := c.router(o)
			w := newWorld(scenario.ZoneNames())
			for i, event := range scenario.Events {
				reaction, err := router.react(w, w.apply(i, event.Changes))
				if err != nil {
					t.Fatalf("%s %s: %v", c.algorithm, c.variant, err)
				}
				planned := make([]int, len(w.names))
				for _, group := range reaction.plan.Groups {
					for _, member := range group.Members {
						planned[member.Zone] += member.Endpoints
					}
				}
				for z, zone := range w.region().Zones {
					if planned[z] != zone.Endpoints {
						t.Fatalf("%s %s: after event %d the plan has %d endpoints of zone %s, there are %d",
							c.algorithm, c.variant, i, planned[z], zone.Name, zone.Endpoints)
					}
				}
				checkLedger(t, router, w, o)
			}
		}
	})
}

// checkLedger checks that the slices have each endpoint once, with its assigned consumers.
func checkLedger(t *rapid.T, r router, w *world, o DynamicsOptions) {
	var l *ledger
	hints := true
	switch r := r.(type) {
	case *plannedRouter:
		l, hints = &r.ledger, r.delivery == allocate.DeliveryHints
	case *upstreamRouter:
		l = &r.ledger
	}
	assigned := map[string]allocate.ConsumerSet{}
	for _, s := range l.slices {
		if len(s.entries) == 0 || len(s.entries) > o.SliceSize {
			t.Fatalf("a slice has %d endpoints, at most %d are allowed", len(s.entries), o.SliceSize)
		}
		for _, entry := range s.entries {
			if _, twice := assigned[entry.id]; twice {
				t.Fatalf("endpoint %s is in two slices", entry.id)
			}
			assigned[entry.id] = s.kind
			if hints {
				assigned[entry.id] = entry.hint
			}
		}
	}
	for _, e := range w.endpoints {
		if set, there := assigned[e.ID]; !there || set != e.Assigned {
			t.Fatalf("endpoint %s is assigned to %s, its slice says %s (there: %v)", e.ID, e.Assigned, set, there)
		}
	}
	if len(assigned) != len(w.endpoints) {
		t.Fatalf("%d endpoints in slices, there are %d", len(assigned), len(w.endpoints))
	}
}

func TestLedger(t *testing.T) {
	endpoints := func(kinds string) []allocate.Endpoint {
		var list []allocate.Endpoint
		for i, kind := range kinds {
			if kind != ' ' {
				list = append(list, allocate.Endpoint{ID: fmt.Sprint(i), Assigned: allocate.NewConsumerSet(string(kind))})
			}
		}
		return list
	}
	// A letter is an endpoint with that consumer; its position is its ID. A space is no endpoint.
	for _, test := range []struct {
		name          string
		before, after string
		want          int
	}{
		{"nothing changes", "aaabbb", "aaabbb", 0},
		{"one more has room", "aaab", "aaabb", 1},
		{"one more has no room", "aaaa", "aaaaa", 1},
		{"many more need slices", "aaa", "aaaaaaaaaa", 2},
		{"one goes", "aaaabb", " aaabb", 1},
		{"the last one goes", "aaaab", "aaaa ", 1},
		{"one is replaced in its slice", "aaaabbbb", " aaabbbba", 1},
		{"one moves between groups", "aaabbb", "aabbbb", 2},
		{"a group is renamed", "aaabbb", "aaaccc", 1},
		{"all become one group", "aabb", "cccc", 2},
		{"one group becomes two", "cccc", "aabb", 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := ledger{perSlice: 4}
			kind := func(e *allocate.Endpoint) allocate.ConsumerSet { return e.Assigned }
			l.layOut(endpoints(test.before), kind, nil)
			l.layOut(endpoints(test.after), kind, nil)
			if got := l.written(); got != test.want {
				t.Errorf("%d slices written, want %d", got, test.want)
			}
		})
	}
}

func TestUpstream(t *testing.T) {
	for _, test := range []struct {
		name      string
		events    []Event
		sliceSize int
		// For each event: endpoints reallocated, slices written, whether allocated, and the in-zone
		// share, which shows how many hints are for other zones.
		want []string
	}{
		{
			name: "equal zones without an even number",
			events: []Event{
				at(0, change(SubjectNodes, to("a", 3), to("b", 3), to("c", 3)), change(SubjectEndpoints, to("a", 4), to("b", 4), to("c", 3))),
				at(1, change(SubjectEndpoints, more("c", 1))),
			},
			want: []string{"0 0 false 0.33", "11 1 true 1.00"},
		},
		{
			name: "one zone",
			events: []Event{
				at(0, change(SubjectNodes, to("a", 5)), change(SubjectEndpoints, to("a", 3))),
				at(1, change(SubjectNodes, to("b", 5))),
				at(2, change(SubjectEndpoints, to("b", 3))),
				at(3, change(SubjectNodes, to("b", 0))),
			},
			// A change of nodes gives no hints to a Service that has none; a lost zone removes all
			// hints.
			want: []string{"0 0 false 1.00", "0 0 false 0.50", "3 1 true 1.00", "6 1 false 0.50"},
		},
		{
			name: "slices that are not touched keep their hints", sliceSize: 4,
			events: []Event{
				at(0, change(SubjectNodes, to("a", 5), to("b", 5)), change(SubjectEndpoints, to("a", 4))),
				at(1, change(SubjectEndpoints, to("b", 4))),
			},
			// b uses two of a's four endpoints, and keeps them when it has its own. Then a uses two
			// of b's.
			want: []string{"0 0 true 0.50", "0 1 true 0.50"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			run := dynamics(t, story(time.Minute, test.events...), DynamicsOptions{Upstream: true, SliceSize: test.sliceSize})[UpstreamAuto+" full"]
			var got []string
			for _, m := range run.Series {
				got = append(got, fmt.Sprintf("%d %d %v %.2f", m.Reallocated, m.SlicesWritten, m.Allocated, m.InZone))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}
