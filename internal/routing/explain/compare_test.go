package explain

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/topology"
)

func threeZones(a, b, c int) allocate.Region {
	return allocate.Region{Zones: []allocate.Zone{
		{Name: "zone-a", Capacity: 2, Endpoints: a},
		{Name: "zone-b", Capacity: 2, Endpoints: b},
		{Name: "zone-c", Capacity: 2, Endpoints: c},
	}}
}

func ask(region allocate.Region, asked allocate.Intent, algorithms ...allocate.Algorithm) Question {
	none := 0
	return Question{
		Region: region, CPU: region, Asked: asked, Algorithms: algorithms, Delivery: allocate.DeliveryHints,
		Thresholds: allocate.Thresholds{Start: &allocate.Start{}, Padding: &none},
	}
}

func TestCompareKnowsWhatIsAsked(t *testing.T) {
	for _, test := range []struct {
		name         string
		asked        allocate.Intent
		algorithms   []allocate.Algorithm
		options      string
		asks, showed int
	}{
		{
			name:       "nothing",
			algorithms: []allocate.Algorithm{allocate.Balanced, allocate.Local, allocate.Optimal},
			options:    "balanced local optimal", showed: 2,
		},
		{
			name:       "nothing, and balanced is not compared",
			algorithms: []allocate.Algorithm{allocate.Local},
			options:    "balanced local", showed: 1,
		},
		{
			name:       "one of the algorithms",
			asked:      allocate.Intent{Tiers: anyZone, Bound: bound(allocate.Local)},
			algorithms: []allocate.Algorithm{allocate.Balanced, allocate.Local, allocate.Optimal},
			options:    "balanced local optimal", asks: 1, showed: 1,
		},
		{
			name:       "another algorithm",
			asked:      allocate.Intent{Tiers: anyZone, Bound: bound(allocate.Auto)},
			algorithms: []allocate.Algorithm{allocate.Local},
			options:    "auto local",
		},
		{
			name:       "tiers alone",
			asked:      allocate.Intent{Tiers: topology.Tiers{topology.Zone}},
			algorithms: []allocate.Algorithm{allocate.Local},
			options:    " local",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := Compare(ask(threeZones(5, 4, 3), test.asked, test.algorithms...))
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, o := range c.Options {
				names = append(names, string(o.Algorithm))
			}
			if got := strings.Join(names, " "); got != test.options || c.Asked != test.asks || c.Shown != test.showed {
				t.Errorf("got %q, asked %d, shown %d; want %q, %d, %d", got, c.Asked, c.Shown, test.options, test.asks, test.showed)
			}
		})
	}
}

func TestCompareMeasuresAllByTheSameTraffic(t *testing.T) {
	q := ask(threeZones(4, 4, 4), allocate.Intent{}, allocate.Auto)
	q.CPU = threeZones(4, 4, 4)
	q.CPU.Zones[2].Capacity = 4
	c, err := Compare(q)
	if err != nil {
		t.Fatal(err)
	}
	auto := c.Options[1]
	// By CPU, zone-c should have 6 of 12 endpoints. By nodes, its load is then half that of the others.
	if sizes := groupSizes(auto.Plan); sizes != "3 3 6" {
		t.Fatalf("auto made groups of %s, want 3 3 6", sizes)
	}
	if math.Abs(auto.Figures.Overload-1.0/3) > 1e-9 || auto.Outcome.Figures.Overload > 1e-9 {
		t.Errorf("overload %v by nodes and %v by CPU, want 1/3 and 0", auto.Figures.Overload, auto.Outcome.Figures.Overload)
	}
}

func groupSizes(plan allocate.Plan) string {
	var sizes []string
	for _, g := range plan.Groups {
		sizes = append(sizes, fmt.Sprint(g.Size()))
	}
	return strings.Join(sizes, " ")
}

func TestCompareCountsSlicesByDelivery(t *testing.T) {
	for delivery, want := range map[allocate.Delivery]int{allocate.DeliveryHints: 2, allocate.DeliveryGroups: 3} {
		q := ask(threeZones(40, 40, 40), allocate.Intent{Tiers: anyZone, Bound: bound(allocate.Local)})
		q.Delivery = delivery
		c, err := Compare(q)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Options[0].Slices; got != want {
			t.Errorf("%s: %d slices, want %d", delivery, got, want)
		}
		if got, want := c.Options[0].Total, 85+15*2/float64(want); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: total %v, want %v", delivery, got, want)
		}
	}
}

func TestCompareKeepsHardTiersForEveryAlgorithm(t *testing.T) {
	region := allocate.Region{Zones: []allocate.Zone{
		{Name: "a", Region: "north", Capacity: 1, Endpoints: 2},
		{Name: "b", Region: "south", Capacity: 1, Endpoints: 2},
	}}
	asked := allocate.Intent{Tiers: topology.Tiers{topology.Zone, topology.Region}, Bound: bound(allocate.Local)}
	c, err := Compare(ask(region, asked, allocate.Algorithms()...))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range c.Options {
		for _, g := range o.Plan.Groups {
			if len(g.Consumers) > 1 {
				t.Errorf("%s lets both regions use the same endpoints", o.Algorithm)
			}
		}
	}
}

func advise(t *testing.T, q Question) (Option, []Advice) {
	t.Helper()
	c, err := Compare(q)
	if err != nil {
		t.Fatal(err)
	}
	advice, err := Advise(q, c.Options[c.Shown])
	if err != nil {
		t.Fatal(err)
	}
	return c.Options[c.Shown], advice
}

func TestAdvice(t *testing.T) {
	local := allocate.Intent{Tiers: anyZone, Bound: bound(allocate.Local)}
	padded := allocate.Intent{Tiers: anyZone, Bound: bound(allocate.Local)}
	padded.Bound.Start.PerZone, padded.Bound.Padding = 3, 3
	for _, test := range []struct {
		name   string
		region allocate.Region
		asked  allocate.Intent
		pods   map[string]string
		want   []string
	}{
		{
			name:   "nothing to do",
			region: threeZones(4, 4, 4), asked: local,
		},
		{
			name:   "no endpoint",
			region: threeZones(0, 0, 0), asked: local,
		},
		{
			name:   "one move",
			region: threeZones(5, 4, 3), asked: local,
			pods: map[string]string{"zone-a": "web-abc"},
			want: []string{"move 1 pod from zone-a (e.g. web-abc) to zone-c: in-zone 91.7 % -> 100 %"},
		},
		{
			name:   "several moves, and what one of them gains",
			region: threeZones(8, 4, 0), asked: local,
			want: []string{
				"move 1 pod from zone-a to zone-c: in-zone 66.7 % -> 75 %",
				"move 4 pods from zone-a to zone-c: in-zone 66.7 % -> 100 %",
			},
		},
		{
			name:   "too few to start",
			region: threeZones(3, 3, 2), asked: padded,
			want: []string{"add 4 pods, 1 in zone-a, 1 in zone-b, 2 in zone-c: in-zone 33.3 % -> 100 %"},
		},
		{
			name:   "far too few to start",
			region: threeZones(2, 2, 2), asked: padded,
			want: []string{"add 6 pods, 2 in zone-a, 2 in zone-b, 2 in zone-c: in-zone 33.3 % -> 100 %"},
		},
		{
			name:   "a zone that reaches nothing",
			region: threeZones(2, 2, 0), asked: allocate.Intent{Tiers: topology.Tiers{topology.Zone}},
			want: []string{
				"move 1 pod from zone-a to zone-c: in-zone 66.7 % -> 100 %, overload 0 % -> 33.3 %, zones that reach nothing 1 -> 0",
				"add 2 pods in zone-c: in-zone 66.7 % -> 100 %, zones that reach nothing 1 -> 0",
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			q := ask(test.region, test.asked)
			q.Pods = test.pods
			_, advice := advise(t, q)
			var got []string
			for _, a := range advice {
				got = append(got, a.String())
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}

// After the advised change, the score is the promised one.
func TestAdviceKeepsItsPromises(t *testing.T) {
	for a := range 9 {
		for b := range 9 {
			region := threeZones(a, b, 1)
			region.Zones[0].Capacity = 3
			before := slices.Clone(region.Zones)
			q := ask(region, allocate.Intent{Tiers: anyZone, Bound: bound(allocate.Local)})
			option, advice := advise(t, q)
			if !reflect.DeepEqual(region.Zones, before) {
				t.Fatalf("[%d %d 1]: the region is changed", a, b)
			}
			last := option
			for _, piece := range advice {
				followed := region
				followed.Zones = slices.Clone(region.Zones)
				for _, m := range piece.Moves {
					for i := range followed.Zones {
						if followed.Zones[i].Name == m.To {
							followed.Zones[i].Endpoints += m.Pods
						}
						if !m.New && followed.Zones[i].Name == m.From {
							followed.Zones[i].Endpoints -= m.Pods
						}
					}
				}
				_, outcome, err := allocate.Allocate(followed, option.Intent, allocate.Previous{})
				if err != nil {
					t.Fatalf("[%d %d 1]: %s: %v", a, b, piece, err)
				}
				if outcome.Figures != piece.After.Figures {
					t.Errorf("[%d %d 1]: %s: promised %+v, came out %+v", a, b, piece, piece.After.Figures, outcome.Figures)
				}
				if piece.After.Total < last.Total+adviceGain {
					t.Errorf("[%d %d 1]: %s: total %v after %v is not worth it", a, b, piece, piece.After.Total, last.Total)
				}
				last = piece.After
			}
		}
	}
}
