package main

import (
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/lab/shape"
)

// somePlans returns Services on nodes of three zones.
func somePlans(t *testing.T, n int) (*planner, []plan) {
	t.Helper()
	s, err := shape.FromOptions(shape.Options{Name: "test", NodesPerZone: []int{0}, FakeNodes: 10})
	if err != nil {
		t.Fatal(err)
	}
	p := newPlanner(s.FakeNodeList())
	var plans []plan
	for i := range n {
		plans = append(plans, p.plan(i))
	}
	return p, plans
}

// hint returns a slice with hints for all endpoints except the last ones.
func hint(slice *discoveryv1.EndpointSlice, without int) *discoveryv1.EndpointSlice {
	slice = slice.DeepCopy()
	for i := range slice.Endpoints {
		slice.Endpoints[i].Hints = nil
		if i < len(slice.Endpoints)-without {
			slice.Endpoints[i].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: *slice.Endpoints[i].Zone}}}
		}
	}
	return slice
}

// After a change, a watch shows the change itself, then the hints for it.
func TestChangesAreAnswered(t *testing.T) {
	p, plans := somePlans(t, 2)
	routed := hint(plans[1].slices[0], 0)
	more, err := newChange(plans[1], true, p.endpoint(3))
	if err != nil {
		t.Fatal(err)
	}
	changed := routed.DeepCopy()
	changed.Endpoints = append(changed.Endpoints, discoveryv1.Endpoint{Addresses: []string{more.address}, Zone: routed.Endpoints[0].Zone})
	fewer := routed.DeepCopy()
	fewer.Endpoints = fewer.Endpoints[1:]
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	less := func() *change {
		c, err := newChange(plans[1], false, p.endpoint(0))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, test := range []struct {
		name           string
		change         *change
		updates        []*discoveryv1.EndpointSlice
		seen, answered int64
	}{
		{"before the change", more, []*discoveryv1.EndpointSlice{routed, routed}, 0, 0},
		{"no hint yet", more, []*discoveryv1.EndpointSlice{routed, changed, changed}, 2, 0},
		{"a hint", more, []*discoveryv1.EndpointSlice{routed, changed, changed, hint(changed, 0), hint(changed, 0)}, 2, 4},
		{"no hints for all", more, []*discoveryv1.EndpointSlice{changed, hint(changed, 7)}, 1, 2},
		{"one less, and nothing to do", less(), []*discoveryv1.EndpointSlice{routed, fewer}, 2, 0},
		{"one less, and others move", less(), []*discoveryv1.EndpointSlice{fewer, hint(fewer, 0)}, 1, 2},
	} {
		c := *test.change
		before := routed
		for i, after := range test.updates {
			c.see(before, after, at(int64(i+1)))
			before = after
		}
		want := func(second int64) time.Time {
			if second == 0 {
				return time.Time{}
			}
			return at(second)
		}
		if !c.seen.Equal(want(test.seen)) || !c.answered.Equal(want(test.answered)) {
			t.Errorf("%s: seen %s, answered %s; want %d, %d", test.name, c.seen, c.answered, test.seen, test.answered)
		}
		wanted := test.answered == 0 && test.change.adds || test.seen == 0
		if got := unanswered([]*change{&c}) != ""; got != wanted {
			t.Errorf("%s: waiting is %t", test.name, got)
		}
	}
}
