package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"vicinity.dev/vicinity/internal/allocate"
)

// Limits of a picture. Beyond them zones are drawn as one, and dots stand for
// several endpoints.
const (
	mostPlaces = 8
	mostDots   = 65 // of one place
)

// place is a zone in a picture, or several that are drawn as one.
type place struct {
	name  string
	zones int
	// capacity and endpoints are sums over the zones, share is the part of the
	// traffic that comes from them.
	capacity  float64
	endpoints int
	share     float64
}

// load is a class of endpoints by their load.
type load struct {
	Class, Words string
	below        float64 // the least load that is no longer in the class
}

// loads are the classes of load, for a threshold of overload.
func loads(threshold float64) []load {
	const even = 0.1 // around the even share, what is as good as it
	return []load{
		{"load-idle", "less than half of it", 0.5},
		{"load-low", "below it", 1 - even},
		{"load-even", "within " + shortPercent(100*even) + " of it", 1 + even},
		{"load-high", "above it", 1 + threshold - 1e-9},
		{"load-over", "at or above the threshold", 0},
	}
}

// loadClass is the class of an endpoint.
func loadClass(value, threshold float64) string {
	classes := loads(threshold)
	for _, l := range classes[:len(classes)-1] {
		if value < l.below {
			return l.Class
		}
	}
	return classes[len(classes)-1].Class
}

// flow is the traffic from one place to another, as a share of all traffic.
type flow struct {
	from, to int
	// inZone is traffic that stays in its zone. Between zones that are drawn as
	// one place there is also other traffic.
	inZone bool
	share  float64
}

// bunch is a number of endpoints of one place that have the same load.
type bunch struct {
	endpoints int
	load      float64
}

// scene is what a plan does in a region, ready to be drawn.
type scene struct {
	flows   []flow
	bunches [][]bunch // by place
	// received is the share of the traffic that ends at each place.
	received []float64
}

// ground is the region in which the scenes of several plans are drawn, all to the
// same scale, so that they can be compared.
type ground struct {
	places  []place
	of      map[string]int // places by name of zone
	dotSize int            // endpoints that a dot stands for
	tops    []float64      // of the places' lanes
	height  float64
}

// Measures of a picture.
const (
	flowWidth  = 360.0
	thickness  = 130.0 // of all traffic
	laneHead   = 30.0
	laneGap    = 14.0
	sourceX    = 0.0
	sourceW    = 10.0
	targetX    = 206.0
	targetW    = 4.0
	dotsX      = 221.0
	dotPitch   = 10.6
	dotRadius  = 4.1
	dotsPerRow = 13
)

// newGround arranges the zones of a region, and makes room for the plans.
func newGround(zones []allocate.Zone) *ground {
	g := &ground{of: map[string]int{}}
	sorted := slices.Clone(zones)
	slices.SortFunc(sorted, func(a, b allocate.Zone) int { return cmp.Compare(a.Name, b.Name) })
	capacity, endpoints := 0.0, 0
	for _, z := range sorted {
		capacity += z.Capacity
		endpoints += z.Endpoints
	}
	drawn := g.choose(sorted, capacity, endpoints)
	rest := place{}
	for _, z := range sorted {
		share := 0.0
		if capacity > 0 {
			share = z.Capacity / capacity
		}
		if !drawn[z.Name] {
			rest.zones++
			rest.capacity += z.Capacity
			rest.endpoints += z.Endpoints
			rest.share += share
			g.of[z.Name] = -1
			continue
		}
		g.of[z.Name] = len(g.places)
		g.places = append(g.places, place{cmp.Or(z.Name, "no zone"), 1, z.Capacity, z.Endpoints, share})
	}
	if rest.zones > 0 {
		rest.name = plural(rest.zones, "other zone", "other zones")
		for name, i := range g.of {
			if i < 0 {
				g.of[name] = len(g.places)
			}
		}
		g.places = append(g.places, rest)
	}
	most := 0
	for _, p := range g.places {
		most = max(most, p.endpoints)
	}
	g.dotSize = int(nice(math.Ceil(float64(max(most, 1)) / mostDots)))
	return g
}

// choose says which zones are drawn on their own: all, or those with the most
// traffic and endpoints.
func (g *ground) choose(zones []allocate.Zone, capacity float64, endpoints int) map[string]bool {
	weight := func(z allocate.Zone) float64 {
		return z.Capacity/max(capacity, 1e-300) + float64(z.Endpoints)/float64(max(endpoints, 1))
	}
	largest := slices.Clone(zones)
	slices.SortStableFunc(largest, func(a, b allocate.Zone) int { return cmp.Compare(weight(b), weight(a)) })
	if len(largest) > mostPlaces {
		largest = largest[:mostPlaces-1]
	}
	drawn := map[string]bool{}
	for _, z := range largest {
		drawn[z.Name] = true
	}
	return drawn
}

// scene follows the traffic that the plan gives each endpoint.
func (g *ground) scene(plan allocate.Plan, shares []float64) scene {
	s := scene{
		bunches:  make([][]bunch, len(g.places)),
		received: make([]float64, len(g.places)),
	}
	width := make([]float64, len(plan.Zones))
	for i := range plan.Groups {
		size := float64(plan.Groups[i].Size())
		for _, c := range plan.Groups[i].Consumers {
			width[c.Zone] += c.Weight * size
		}
	}
	var meter allocate.Meter
	loads := meter.Loads(plan, shares)
	sums := map[flow]float64{}
	for i, group := range plan.Groups {
		for _, m := range group.Members {
			to := g.of[plan.Zones[m.Zone]]
			s.bunches[to] = append(s.bunches[to], bunch{m.Endpoints, loads[i]})
			for _, c := range group.Consumers {
				if width[c.Zone] == 0 || shares[c.Zone] == 0 {
					continue
				}
				share := shares[c.Zone] * c.Weight * float64(m.Endpoints) / width[c.Zone]
				sums[flow{from: g.of[plan.Zones[c.Zone]], to: to, inZone: c.Zone == m.Zone}] += share
				s.received[to] += share
			}
		}
	}
	for f, share := range sums {
		f.share = share
		s.flows = append(s.flows, f)
	}
	slices.SortFunc(s.flows, func(a, b flow) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to), compareBool(a.inZone, b.inZone))
	})
	for i := range s.bunches {
		slices.SortStableFunc(s.bunches[i], func(a, b bunch) int { return cmp.Compare(b.load, a.load) })
	}
	return s
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// arrange gives each place a lane that is high enough in all scenes.
func (g *ground) arrange(scenes []scene) {
	g.tops = make([]float64, len(g.places))
	y := 0.0
	for i, p := range g.places {
		body := thickness * p.share
		for _, s := range scenes {
			dots := 0
			for _, b := range s.bunches[i] {
				dots += g.dots(b.endpoints)
			}
			rows := (dots + dotsPerRow - 1) / dotsPerRow
			body = max(body, thickness*s.received[i], float64(rows)*dotPitch)
		}
		g.tops[i] = y + laneHead
		y += laneHead + max(body, 12) + laneGap
	}
	g.height = y
}

func (g *ground) dots(endpoints int) int {
	return (endpoints + g.dotSize - 1) / g.dotSize
}

// draw makes the picture of a scene.
func (g *ground) draw(id, title string, s scene, threshold float64) figure {
	f := figure{ID: id, Title: title, Class: "chart flows", Width: flowWidth, Height: g.height}
	if len(g.places) == 0 {
		f.Height = 60
		return empty(f, "no zones")
	}
	g.ribbons(&f, s.flows)
	for i, p := range g.places {
		top := g.tops[i]
		if i > 0 {
			f.add(shape{Kind: line, Class: "grid", X: 0, Y: top - laneHead, W: flowWidth})
		}
		f.label("name", sourceX, top-laneHead+14, "start", clip(p.name, 24))
		f.label("tick", sourceX, top-laneHead+26, "start",
			fmt.Sprintf("%s · %s of traffic", plural(int64(p.capacity), "node", "nodes"), percent(100*p.share)))
		f.add(shape{
			Kind: rect, Class: "source", X: sourceX, Y: top, W: sourceW, H: max(thickness*p.share, 1), Round: 2, From: i + 1,
			Hint: fmt.Sprintf("%s: %s of the traffic comes from here", p.name, percent(100*p.share)),
		})
		g.target(&f, i, s, threshold)
	}
	return f
}

// target draws the endpoints of a place.
func (g *ground) target(f *figure, i int, s scene, threshold float64) {
	p, top := g.places[i], g.tops[i]
	if p.endpoints == 0 {
		f.label("tick", dotsX-dotRadius, top-laneHead+26, "start", "no endpoints")
		f.add(shape{Kind: rect, Class: "nothing", X: dotsX - dotRadius, Y: top, W: flowWidth - dotsX + dotRadius - 1, H: 12, Round: 6})
		return
	}
	f.label("tick", dotsX-dotRadius, top-laneHead+14, "start", plural(p.endpoints, "endpoint", "endpoints"))
	f.label("tick", dotsX-dotRadius, top-laneHead+26, "start", "serves "+percent(100*s.received[i]))
	f.add(shape{Kind: rect, Class: "target", X: targetX, Y: top, W: targetW, H: max(thickness*s.received[i], 1), Round: 1.5})
	n := 0
	for _, b := range s.bunches[i] {
		for range g.dots(b.endpoints) {
			f.add(shape{
				Kind: dot, Class: loadClass(b.load, threshold), Round: dotRadius,
				X:    dotsX + dotPitch*float64(n%dotsPerRow),
				Y:    top + dotRadius + dotPitch*float64(n/dotsPerRow),
				Hint: fmt.Sprintf("load %s of the even share", percent(100*b.load)),
			})
			n++
		}
	}
}

// ribbons draws the flows: those that stay in their zone straight across, the
// others above them.
func (g *ground) ribbons(f *figure, flows []flow) {
	out, in := slices.Clone(g.tops), slices.Clone(g.tops)
	starts := make([]float64, len(flows))
	// What stays comes first at both ends, so that it need not bend.
	order := make([]int, len(flows))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return compareBool(flows[b].inZone, flows[a].inZone) })
	for _, i := range order {
		w := flows[i]
		starts[i] = out[w.from]
		out[w.from] += thickness * w.share
	}
	var above []shape
	for _, i := range order {
		w := flows[i]
		ribbon := shape{
			Kind: path, Class: "ribbon away", From: w.from + 1,
			Path: ribbonPath(starts[i], in[w.to], thickness*w.share),
			Hint: fmt.Sprintf("%s to %s: %s of all traffic", g.places[w.from].name, g.places[w.to].name, percent(100*w.share)),
		}
		in[w.to] += thickness * w.share
		if w.inZone {
			ribbon.Class = "ribbon home"
			f.add(ribbon)
		} else {
			above = append(above, ribbon)
		}
	}
	f.add(above...)
}

// ribbonPath is the outline of a ribbon between the heights from and to.
func ribbonPath(from, to, width float64) string {
	const (
		left, right = sourceX + sourceW + 1, targetX - 1
		middle      = (left + right) / 2
	)
	width = max(width, 0.6)
	var o outline
	o.op("M", left, from)
	o.op("C", middle, from, middle, to, right, to)
	o.op("V", to+width)
	o.op("C", middle, to+width, middle, from+width, left, from+width)
	o.op("Z")
	return o.String()
}
