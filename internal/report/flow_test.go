package report

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"vicinity.dev/vicinity/internal/allocate"
)

// regions draws regions, with more zones than a picture shows among them.
func regions(t *rapid.T) allocate.Region {
	n := rapid.IntRange(1, 14).Draw(t, "zones")
	var region allocate.Region
	for i := range n {
		region.Zones = append(region.Zones, allocate.Zone{
			Name:      fmt.Sprintf("zone-%02d", i),
			Capacity:  float64(rapid.IntRange(0, 10).Draw(t, "nodes")),
			Endpoints: rapid.IntRange(0, 300).Draw(t, "endpoints"),
		})
	}
	return region
}

func TestScenesShowAllTrafficAndEndpoints(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		region := regions(t)
		algorithm := rapid.SampledFrom([]allocate.Algorithm{allocate.Balanced, allocate.Local, allocate.LocalWeighted, allocate.LocalOpt}).Draw(t, "algorithm")
		bound := &allocate.Bound{Algorithm: algorithm, OverloadThreshold: 0.5}
		plan, outcome, err := allocate.Allocate(region, allocate.Intent{Bound: bound}, allocate.Previous{})
		if err != nil {
			t.Fatal(err)
		}
		shares := region.Shares(plan.Zones)
		g := newGround(region.Zones)
		s := g.scene(plan, shares)

		want := 0.0
		if region.Endpoints() > 0 {
			for _, share := range shares {
				want += share
			}
		}
		all, inZone := 0.0, 0.0
		for _, f := range s.flows {
			all += f.share
			if f.inZone {
				inZone += f.share
				if f.from != f.to {
					t.Errorf("traffic within a zone goes from place %d to %d", f.from, f.to)
				}
			}
		}
		if math.Abs(all-want) > 1e-9 {
			t.Errorf("the flows add up to %g of the traffic, want %g", all, want)
		}
		if math.Abs(inZone-outcome.Figures.InZone) > 1e-9 {
			t.Errorf("%g of the traffic is shown in its zone, want %g", inZone, outcome.Figures.InZone)
		}
		endpoints, served, busiest := 0, 0.0, 0.0
		for i := range s.bunches {
			served += s.received[i]
			for _, b := range s.bunches[i] {
				endpoints += b.endpoints
				busiest = max(busiest, b.load)
			}
		}
		if endpoints != region.Endpoints() {
			t.Errorf("%d endpoints are shown, want %d", endpoints, region.Endpoints())
		}
		if math.Abs(served-all) > 1e-9 {
			t.Errorf("places receive %g, the flows carry %g", served, all)
		}
		if overload := max(0, busiest-1); math.Abs(overload-outcome.Figures.Overload) > 1e-9 {
			t.Errorf("the busiest endpoint has an overload of %g, want %g", overload, outcome.Figures.Overload)
		}

		g.arrange([]scene{s})
		f := g.draw("x", "title", s, 0.5)
		dots := 0
		for _, shape := range f.Shapes {
			if shape.Kind == dot {
				dots++
				if shape.Y+shape.Round > f.Height || shape.X+shape.Round > f.Width {
					t.Errorf("a dot at %g,%g is outside of %g by %g", shape.X, shape.Y, f.Width, f.Height)
				}
			}
		}
		if most := len(g.places)*mostDots + 2*len(plan.Groups)*len(region.Zones); dots > most {
			t.Errorf("%d dots", dots)
		}
	})
}

func TestManyZonesAreDrawnAsOne(t *testing.T) {
	var zones []allocate.Zone
	for i := range 100 {
		zones = append(zones, allocate.Zone{Name: fmt.Sprintf("z%03d", i), Capacity: 1, Endpoints: 1})
	}
	zones[42].Capacity, zones[77].Endpoints = 50, 500
	g := newGround(zones)
	var names []string
	zonesDrawn, endpoints, share := 0, 0, 0.0
	for _, p := range g.places {
		names = append(names, p.name)
		zonesDrawn += p.zones
		endpoints += p.endpoints
		share += p.share
	}
	if len(g.places) != mostPlaces || zonesDrawn != 100 || endpoints != 599 || math.Abs(share-1) > 1e-9 {
		t.Errorf("%d places stand for %d zones, %d endpoints and %g of the traffic", len(g.places), zonesDrawn, endpoints, share)
	}
	for _, want := range []string{"z042", "z077", "93 other zones"} {
		if !slices.Contains(names, want) {
			t.Errorf("%q is not drawn: %q", want, names)
		}
	}
}

func TestLoadClasses(t *testing.T) {
	for load, want := range map[float64]string{
		0: "load-idle", 0.49: "load-idle", 0.5: "load-low", 0.95: "load-even", 1: "load-even",
		1.2: "load-high", 1.499: "load-high", 1.5: "load-over", 9: "load-over",
	} {
		if got := loadClass(load, 0.5); got != want {
			t.Errorf("load %g: got %s, want %s", load, got, want)
		}
	}
}
