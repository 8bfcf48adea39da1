package allocate_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"vicinity.dev/vicinity/internal/allocate"
)

// region reads "a=2/5 b@east=1/0": the zone a has capacity 2 and 5 endpoints; b is in the region
// east. The zone "-" has no name.
func region(t testing.TB, text string) allocate.Region {
	t.Helper()
	var r allocate.Region
	for field := range strings.FieldsSeq(text) {
		place, amounts, _ := strings.Cut(field, "=")
		name, wider, _ := strings.Cut(place, "@")
		capacity, endpoints, _ := strings.Cut(amounts, "/")
		z := allocate.Zone{Name: strings.TrimPrefix(name, "-"), Region: wider}
		var err error
		if z.Capacity, err = strconv.ParseFloat(capacity, 64); err != nil {
			t.Fatalf("region %q: %v", text, err)
		}
		if z.Endpoints, err = strconv.Atoi(endpoints); err != nil {
			t.Fatalf("region %q: %v", text, err)
		}
		r.Zones = append(r.Zones, z)
	}
	return r
}

// render writes a plan with its groups in the order of their text: "a: 3a 1c | b,c: 2b" has a group
// that zone a consumes, of three endpoints of a and one of c. A weight other than 1 follows its
// consumer, rounded: "a*0.333".
func render(plan allocate.Plan) string {
	name := func(zone int) string {
		if plan.Zones[zone] == "" {
			return "-"
		}
		return plan.Zones[zone]
	}
	var groups []string
	for _, g := range plan.Groups {
		var consumers, members []string
		for _, c := range g.Consumers {
			text := name(c.Zone)
			if c.Weight != 1 {
				text += fmt.Sprintf("*%.3g", c.Weight)
			}
			consumers = append(consumers, text)
		}
		for _, m := range g.Members {
			members = append(members, fmt.Sprint(m.Endpoints)+name(m.Zone))
		}
		groups = append(groups, strings.Join(consumers, ",")+": "+strings.Join(members, " "))
	}
	slices.Sort(groups)
	return strings.Join(groups, " | ")
}

// bound returns a bound with this algorithm and no starting threshold.
func bound(algorithm allocate.Algorithm) *allocate.Bound {
	b := &allocate.Bound{Algorithm: algorithm, OverloadThreshold: allocate.DefaultOverloadThreshold}
	if algorithm == allocate.Auto {
		b.OverloadThreshold = allocate.DefaultAutoOverloadThreshold
	}
	return b
}

// check runs a property often enough to meet combinations with a probability of one in a thousand.
func check(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	for range 10 {
		rapid.Check(t, property)
	}
}

// individual is one endpoint of a plan.
type individual struct {
	home      string
	consumers map[string]float64 // weights
}

// individuals lists the endpoints of a plan.
func individuals(plan allocate.Plan) []individual {
	var all []individual
	for _, g := range plan.Groups {
		consumers := map[string]float64{}
		for _, c := range g.Consumers {
			consumers[plan.Zones[c.Zone]] = c.Weight
		}
		for _, m := range g.Members {
			for range m.Endpoints {
				all = append(all, individual{plan.Zones[m.Zone], consumers})
			}
		}
	}
	return all
}

// measure computes the figures of a plan endpoint by endpoint, directly from the model: each zone
// spreads its traffic over all endpoints that it may use, by weight.
func measure(plan allocate.Plan, capacity map[string]float64) allocate.Figures {
	endpoints := individuals(plan)
	total := 0.0
	for _, c := range capacity {
		total += c
	}
	received := make([]float64, len(endpoints))
	var figures allocate.Figures
	for zone, c := range capacity {
		if c == 0 {
			continue
		}
		sum := 0.0
		for _, e := range endpoints {
			sum += e.consumers[zone]
		}
		if sum == 0 {
			figures.Unreached++
			continue
		}
		for i, e := range endpoints {
			traffic := c / total * e.consumers[zone] / sum
			received[i] += traffic
			if e.home == zone {
				figures.InZone += traffic
			}
		}
	}
	n := float64(len(endpoints))
	for _, traffic := range received {
		load := traffic * n
		figures.Overload = math.Max(figures.Overload, load-1)
		figures.Deviation += math.Abs(load-1) / n
	}
	return figures
}

func capacities(r allocate.Region) map[string]float64 {
	byName := map[string]float64{}
	for _, z := range r.Zones {
		byName[z.Name] = z.Capacity
	}
	return byName
}

func sameFigures(a, b allocate.Figures) bool {
	near := func(x, y float64) bool { return math.Abs(x-y) <= 1e-6 }
	return near(a.InZone, b.InZone) && near(a.Overload, b.Overload) && near(a.Deviation, b.Deviation) && a.Unreached == b.Unreached
}
