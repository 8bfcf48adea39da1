package simulate

import (
	"slices"
	"testing"
)

func TestRangesAreReadAsTheyAreWritten(t *testing.T) {
	for _, test := range []struct {
		text  string
		want  Range
		back  string
		error string
	}{
		{text: "7", want: Range{7, 7, 1}, back: "7"},
		{text: "1..10", want: Range{1, 10, 1}, back: "1..10"},
		{text: "100..1000/7", want: Range{100, 1000, 7}, back: "100..1000/7"},
		{text: "", error: `range "" begins with no number; allowed are a number, FROM..TO, and FROM..TO/STEP`},
		{text: "1..9/", error: `range "1..9/" has no step that is a number; allowed are a number, FROM..TO, and FROM..TO/STEP`},
		{text: "1..9/0", error: "range 1..9/0 has step 0; it must be 1 or more"},
		{text: "-1..9", error: "range -1..9 begins with -1; allowed are numbers from 0 to 1000000"},
		{text: "9..1", error: "range 9..1 ends with 1; allowed are numbers from 9 to 1000000"},
	} {
		got, err := ParseRange(test.text)
		if message(err) != test.error {
			t.Errorf("%q: error %q, want %q", test.text, message(err), test.error)
		}
		if err == nil && (got != test.want || got.String() != test.back) {
			t.Errorf("%q: %+v, written %q; want %+v, written %q", test.text, got, got, test.want, test.back)
		}
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestInvalidGrids(t *testing.T) {
	some := Range{0, 10, 1}
	for _, test := range []struct {
		name  string
		grid  Grid
		error string
	}{
		{"no zone", Grid{Zones: 0, Nodes: some, Endpoints: some}, "zones: 0 is not allowed; it must be from 1 to 1000"},
		{"endpoints", Grid{Zones: 1, Nodes: some, Endpoints: Range{0, 1, 0}}, "endpoints: range 0..1/0 has step 0; it must be 1 or more"},
		{"no node", Grid{Zones: 2, Nodes: Range{0, 0, 1}, Endpoints: some}, "nodes: 0 gives no zone a node"},
		{
			"too many cases",
			Grid{Zones: 4, Nodes: Range{1, 100, 1}, Endpoints: Range{0, 100, 1}},
			"4 zones with nodes 1..100 and endpoints 0..100 make 2.03e+13 cases; at most 4294967296 are allowed",
		},
	} {
		if _, err := NewGrid(test.grid); message(err) != test.error {
			t.Errorf("%s: error %q, want %q", test.name, message(err), test.error)
		}
	}
}

func TestNamedGridsHaveTheirSizes(t *testing.T) {
	for _, test := range []struct {
		dataset Dataset
		name    string
		cases   int64
	}{
		// (10+2 choose 3) * ((101+2 choose 3) - 1) + (129+2 choose 3)
		{Published(), "published", 220*176_850 + 366_145},
		{Published(), "published", 39_273_145},
		{Small(), "small", 220 * 1770},
		{Medium(), "medium", 220 * 23_425},
	} {
		if cases := test.dataset.Cases(); test.dataset.Name() != test.name || cases != test.cases {
			t.Errorf("%s has %d cases; want %s with %d", test.dataset.Name(), cases, test.name, test.cases)
		}
	}
}

// naive enumerates a grid by nested loops.
func naive(g Grid) [][]int {
	var choices func(zones int, values Range, above int) [][]int
	choices = func(zones int, values Range, above int) [][]int {
		if zones == 0 {
			return [][]int{nil}
		}
		var all [][]int
		for v := values.From; v <= values.To; v += values.Step {
			if v < above {
				continue
			}
			for _, rest := range choices(zones-1, values, v) {
				all = append(all, append([]int{v}, rest...))
			}
		}
		return all
	}
	var cases [][]int
	for _, nodes := range choices(g.Zones, g.Nodes, 0) {
		for _, endpoints := range choices(g.Zones, g.Endpoints, 0) {
			if slices.Max(nodes) > 0 && slices.Max(endpoints) > 0 {
				cases = append(cases, slices.Concat(nodes, endpoints))
			}
		}
	}
	return cases
}

// figures returns a case in the form of naive.
func figures(c Case) []int {
	var nodes, endpoints []int
	for _, z := range c.Zones {
		nodes = append(nodes, int(z.Capacity))
		endpoints = append(endpoints, z.Endpoints)
	}
	return append(nodes, endpoints...)
}

// all reads a data set to its end.
func all(t testing.TB, d Dataset) []Case {
	t.Helper()
	s := d.open()
	var cases []Case
	var b batch
	for s(&b) {
		if b.first != int64(len(cases)) {
			t.Fatalf("a batch begins with case %d after %d cases", b.first, len(cases))
		}
		for _, c := range b.cases {
			cases = append(cases, c.Clone())
		}
	}
	return cases
}

func TestGridsHaveTheCasesOfLoops(t *testing.T) {
	for _, grid := range []Grid{
		{Zones: 1, Nodes: Range{1, 3, 1}, Endpoints: Range{0, 3, 1}},
		{Zones: 2, Nodes: Range{0, 4, 1}, Endpoints: Range{0, 9, 3}},
		{Zones: 3, Nodes: Range{1, 4, 1}, Endpoints: Range{0, 12, 2}},
		{Zones: 3, Nodes: Range{2, 2, 1}, Endpoints: Range{5, 11, 1}},
		{Zones: 3, Nodes: Range{0, 3, 1}, Endpoints: Range{0, 3, 1}},
		{Zones: 5, Nodes: Range{1, 2, 1}, Endpoints: Range{0, 4, 1}},
	} {
		d, err := NewGrid(grid)
		if err != nil {
			t.Fatal(err)
		}
		want, got := naive(grid), all(t, d)
		if n := d.Cases(); n != int64(len(want)) || len(got) != len(want) {
			t.Errorf("%+v says %d and has %d cases, want %d", grid, n, len(got), len(want))
			continue
		}
		for i := range want {
			if !slices.Equal(figures(got[i]), want[i]) {
				t.Errorf("%+v: case %d is %v, want %v", grid, i, figures(got[i]), want[i])
				break
			}
		}
	}
}
