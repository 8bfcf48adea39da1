package simulate

import (
	"slices"

	"vicinity.dev/vicinity/internal/allocate"
)

// Representative returns a data set of few cases that a reader can check by hand: common clusters,
// and clusters on bad days.
func Representative() Dataset {
	cases := []struct {
		name             string
		nodes, endpoints []int
	}{
		{"small, balanced", []int{1, 1, 1}, []int{1, 1, 1}},
		{"small, one more in a zone", []int{2, 2, 2}, []int{2, 1, 1}},
		{"small, one missing in a zone", []int{2, 2, 2}, []int{2, 2, 1}},
		{"medium, balanced", []int{3, 3, 3}, []int{4, 4, 4}},
		{"medium, one more in a zone", []int{3, 3, 3}, []int{5, 4, 4}},
		{"medium, one missing in a zone", []int{3, 3, 3}, []int{3, 4, 4}},
		{"medium, twice as many in a zone", []int{3, 3, 3}, []int{3, 3, 6}},
		{"large, balanced", []int{10, 10, 10}, []int{40, 40, 40}},
		{"large, slightly uneven", []int{10, 10, 10}, []int{37, 40, 43}},
		{"large, very uneven", []int{10, 10, 10}, []int{10, 30, 80}},
		{"huge, balanced", []int{100, 100, 100}, []int{1000, 1000, 1000}},
		{"huge, slightly uneven", []int{100, 100, 100}, []int{950, 1000, 1050}},
		{"huge, very uneven", []int{100, 100, 100}, []int{100, 900, 2000}},

		{"one endpoint", []int{1, 1, 1}, []int{0, 0, 1}},
		{"two endpoints in one zone", []int{1, 1, 1}, []int{0, 0, 2}},
		{"two endpoints in two zones", []int{1, 1, 1}, []int{0, 1, 1}},
		{"two zones empty", []int{3, 3, 3}, []int{0, 0, 12}},
		{"two zones empty, large", []int{10, 10, 10}, []int{0, 0, 120}},
		{"one zone empty", []int{3, 3, 3}, []int{0, 6, 6}},
		{"one zone empty, uneven", []int{3, 3, 3}, []int{0, 3, 9}},

		{"uneven nodes, endpoints alike", []int{1, 2, 3}, []int{2, 4, 6}},
		{"uneven nodes, even endpoints", []int{1, 2, 3}, []int{4, 4, 4}},
		{"uneven nodes, endpoints the other way", []int{1, 2, 3}, []int{6, 4, 2}},
		{"very uneven nodes, even endpoints", []int{1, 1, 10}, []int{4, 4, 4}},
		{"very uneven nodes, endpoints alike", []int{1, 1, 10}, []int{2, 2, 20}},
		{"a zone without nodes, with endpoints", []int{0, 3, 3}, []int{2, 4, 4}},
		{"a zone without nodes and endpoints", []int{0, 3, 3}, []int{0, 5, 5}},
		{"a new zone, nodes and no endpoints yet", []int{1, 9, 9}, []int{0, 12, 12}},
		{"all nodes where no endpoint is", []int{0, 0, 6}, []int{6, 6, 0}},

		{"one zone", []int{5}, []int{10}},
		{"two zones, balanced", []int{3, 3}, []int{5, 5}},
		{"two zones, uneven", []int{3, 3}, []int{2, 8}},
		{"two zones, one empty", []int{3, 3}, []int{0, 10}},
		{"four zones, one short", []int{3, 3, 3, 3}, []int{1, 5, 5, 5}},
		{"five zones, balanced", []int{4, 4, 4, 4, 4}, []int{6, 6, 6, 6, 6}},
		{"five zones, uneven", []int{2, 3, 4, 5, 6}, []int{9, 7, 5, 3, 1}},
		{"five zones, three endpoints", []int{2, 2, 2, 2, 2}, []int{1, 1, 1, 0, 0}},
		{"twelve zones, balanced", slices.Repeat([]int{5}, 12), slices.Repeat([]int{4}, 12)},
		{"twelve zones, one empty", slices.Repeat([]int{5}, 12), slices.Concat(slices.Repeat([]int{4}, 11), []int{0})},
		{"twelve zones, fewer endpoints than zones", slices.Repeat([]int{5}, 12), slices.Concat(slices.Repeat([]int{1}, 7), make([]int, 5))},
	}
	data := &list{name: "representative"}
	for _, c := range cases {
		zones := make([]allocate.Zone, len(c.nodes))
		for i, name := range zoneNames(len(zones)) {
			zones[i] = allocate.Zone{Name: name, Capacity: float64(c.nodes[i]), Endpoints: c.endpoints[i]}
		}
		data.cases = append(data.cases, Case{Name: c.name, Zones: zones})
	}
	return data
}
