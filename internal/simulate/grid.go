package simulate

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"vicinity.dev/vicinity/internal/allocate"
)

// Range is the numbers From, From+Step, From+2*Step and so on, up to To.
type Range struct {
	From, To, Step int
}

// ParseRange reads the form that String writes.
func ParseRange(s string) (Range, error) {
	refused := func(reason string) (Range, error) {
		return Range{}, fmt.Errorf("range %q %s; allowed are a number, FROM..TO, and FROM..TO/STEP", s, reason)
	}
	bounds, step, stepped := strings.Cut(s, "/")
	from, to, isRange := strings.Cut(bounds, "..")
	r := Range{Step: 1}
	var err error
	if r.From, err = strconv.Atoi(from); err != nil {
		return refused("begins with no number")
	}
	r.To = r.From
	if isRange {
		if r.To, err = strconv.Atoi(to); err != nil {
			return refused("ends with no number")
		}
	}
	if stepped {
		if r.Step, err = strconv.Atoi(step); err != nil || !isRange {
			return refused("has no step that is a number")
		}
	}
	return r, r.validate()
}

// maxValue bounds the numbers of a range, far beyond any cluster.
const maxValue = 1_000_000

func (r Range) validate() error {
	switch {
	case r.From < 0 || r.From > maxValue:
		return fmt.Errorf("range %s begins with %d; allowed are numbers from 0 to %d", r, r.From, maxValue)
	case r.To < r.From || r.To > maxValue:
		return fmt.Errorf("range %s ends with %d; allowed are numbers from %d to %d", r, r.To, r.From, maxValue)
	case r.Step < 1:
		return fmt.Errorf("range %s has step %d; it must be 1 or more", r, r.Step)
	}
	return nil
}

// String returns the form in which users write the range: "7", "1..10" or "1..10/3".
func (r Range) String() string {
	switch {
	case r.From == r.To:
		return strconv.Itoa(r.From)
	case r.Step == 1:
		return fmt.Sprintf("%d..%d", r.From, r.To)
	}
	return fmt.Sprintf("%d..%d/%d", r.From, r.To, r.Step)
}

// values returns the count of numbers in the range.
func (r Range) values() int {
	return (r.To-r.From)/r.Step + 1
}

// Grid is the data set of all ways to give so many zones their nodes and endpoints from two ranges, without cases that
// have no node or no endpoint at all.
//
// Nodes ascend from zone to zone, and so do endpoints: each combination stands for all its permutations.
type Grid struct {
	Zones            int
	Nodes, Endpoints Range
}

// maxZones bounds the zones of a grid, since its cases must be counted.
const maxZones = 1000

// maxCases bounds data sets, so that sums over all cases are exact.
const maxCases = 1 << 32

// NewGrid checks the grid and returns its data set.
func NewGrid(g Grid) (Dataset, error) {
	return newGrids("grid", g)
}

// Published returns the data set of the published study.
func Published() Dataset {
	return mustGrids("published",
		Grid{Zones: 3, Nodes: Range{1, 10, 1}, Endpoints: Range{0, 100, 1}},
		Grid{Zones: 3, Nodes: Range{30, 30, 1}, Endpoints: Range{100, 1000, 7}})
}

// Small returns the part of the published data set that the study uses for starting thresholds.
func Small() Dataset {
	return mustGrids("small", Grid{Zones: 3, Nodes: Range{1, 10, 1}, Endpoints: Range{0, 20, 1}})
}

// Medium returns a data set between Small and Published.
func Medium() Dataset {
	return mustGrids("medium", Grid{Zones: 3, Nodes: Range{1, 10, 1}, Endpoints: Range{0, 50, 1}})
}

// grids are one or several grids with the same number of zones, in sequence.
type grids struct {
	name  string
	parts []Grid
	sizes []int64 // of parts
	total int64
}

func mustGrids(name string, parts ...Grid) *grids {
	g, err := newGrids(name, parts...)
	if err != nil {
		panic(err)
	}
	return g
}

func newGrids(name string, parts ...Grid) (*grids, error) {
	g := &grids{name: name, parts: parts}
	for _, part := range parts {
		if part.Zones < 1 || part.Zones > maxZones {
			return nil, fmt.Errorf("zones: %d is not allowed; it must be from 1 to %d", part.Zones, maxZones)
		}
		if err := part.Nodes.validate(); err != nil {
			return nil, fmt.Errorf("nodes: %w", err)
		}
		if err := part.Endpoints.validate(); err != nil {
			return nil, fmt.Errorf("endpoints: %w", err)
		}
		nodes, endpoints := part.odometers(make([]int, 2*part.Zones))
		size := float64(nodes.size()) * float64(endpoints.size())
		switch {
		case size > maxCases:
			return nil, fmt.Errorf("%d zones with nodes %s and endpoints %s make %.3g cases; at most %d are allowed",
				part.Zones, part.Nodes, part.Endpoints, size, int64(maxCases))
		case nodes.size() == 0:
			return nil, fmt.Errorf("nodes: %s gives no zone a node", part.Nodes)
		case endpoints.size() == 0:
			return nil, fmt.Errorf("endpoints: %s gives no zone an endpoint", part.Endpoints)
		}
		g.sizes = append(g.sizes, nodes.size()*endpoints.size())
		g.total += nodes.size() * endpoints.size()
	}
	return g, nil
}

func (g *grids) Name() string { return g.name }

func (g *grids) Cases() int64 { return g.total }

// open generates batches by their number; nothing is stored.
func (g *grids) open() source {
	names := zoneNames(g.parts[0].Zones)
	size := batchSize(len(names))
	var next atomic.Int64
	return func(b *batch) bool {
		b.first = (next.Add(1) - 1) * size
		if b.first >= g.total {
			return false
		}
		b.shape(names, min(size, g.total-b.first))
		filled, index := 0, b.first
		for i, part := range g.parts {
			if index >= g.sizes[i] {
				index -= g.sizes[i]
				continue
			}
			end := int(min(int64(len(b.cases)), int64(filled)+g.sizes[i]-index))
			part.fill(b.cases[filled:end], index, b.digits)
			filled, index = end, 0
			if filled == len(b.cases) {
				break
			}
		}
		return true
	}
}

// zoneNames returns names that sort in the order of the zones.
func zoneNames(zones int) []string {
	const letters = 26
	names := make([]string, zones)
	for i := range names {
		if zones <= letters {
			names[i] = "zone-" + string(rune('a'+i))
		} else {
			names[i] = fmt.Sprintf("zone-%04d", i+1)
		}
	}
	return names
}

// shape gives the batch n cases with these zones. The figures remain arbitrary.
func (b *batch) shape(names []string, n int64) {
	if cells := len(names) * int(n); len(b.zones) < cells {
		b.zones = make([]allocate.Zone, cells)
		for i := range b.zones {
			b.zones[i].Name = names[i%len(names)]
		}
		b.digits = make([]int, 2*len(names))
		b.cases = make([]Case, n)
		for i := range b.cases {
			b.cases[i].Zones = b.zones[i*len(names) : (i+1)*len(names)]
		}
	}
	b.cases = b.cases[:n]
}

// fill generates the cases of the grid from the given index on. It needs the memory of two digits
// for each zone.
func (g Grid) fill(cases []Case, index int64, digits []int) {
	nodes, endpoints := g.odometers(digits)
	nodes.seek(index / endpoints.size())
	endpoints.seek(index % endpoints.size())
	for i := range cases {
		zones := cases[i].Zones
		for z := range zones {
			zones[z].Capacity = float64(nodes.value(z))
			zones[z].Endpoints = endpoints.value(z)
		}
		if !endpoints.step() {
			nodes.step()
		}
	}
}

// odometer enumerates the ways to choose a value for each zone. The last zone changes fastest. It
// skips the choice in which all are zero, which can only be the first.
type odometer struct {
	values Range
	digits []int // by zone: the position in values
}

// odometers returns the odometers of nodes and endpoints, in the memory of two digits for each
// zone.
func (g Grid) odometers(digits []int) (nodes, endpoints odometer) {
	return odometer{g.Nodes, digits[:g.Zones]}, odometer{g.Endpoints, digits[g.Zones : 2*g.Zones]}
}

func (o odometer) value(zone int) int {
	return o.values.From + o.digits[zone]*o.values.Step
}

// skipped is 1 if the first choice is skipped, else 0.
func (o odometer) skipped() int64 {
	if o.values.From == 0 {
		return 1
	}
	return 0
}

// size returns the number of choices, capped above maxCases.
func (o odometer) size() int64 {
	return choices(len(o.digits), o.values.values()) - o.skipped()
}

// choices returns the number of ways to choose from so many values for so many zones.
func choices(zones, values int) int64 {
	n := 1.0
	for i := range zones {
		// This is exact: every step gives a binomial coefficient.
		n = n * float64(values+i) / float64(i+1)
		if n > 2*maxCases {
			break
		}
	}
	return int64(n)
}

// seek sets the odometer to a choice by its number.
func (o odometer) seek(index int64) {
	index += o.skipped()
	digit := 0
	for zone := range o.digits {
		rest := len(o.digits) - zone - 1
		for {
			// The number of choices for the later zones, if this zone has this digit.
			behind := choices(rest, o.values.values()-digit)
			if index < behind {
				break
			}
			index -= behind
			digit++
		}
		o.digits[zone] = digit
	}
}

// step advances to the next choice. After the last one it returns to the first and reports false.
func (o odometer) step() bool {
	last := o.values.values() - 1
	for zone := len(o.digits) - 1; zone >= 0; zone-- {
		if o.digits[zone] == last {
			continue
		}
		o.digits[zone]++
		for i := zone + 1; i < len(o.digits); i++ {
			o.digits[i] = o.digits[zone]
		}
		return true
	}
	o.seek(0)
	return false
}
