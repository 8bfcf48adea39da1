package main

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/lab/shape"
)

// somePlans are Services on nodes of three zones.
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

// One in ten Services is larger and one in a hundred much larger.
func TestObjects(t *testing.T) {
	p, plans := somePlans(t, 200)
	if p.endpoints != 2000 {
		t.Errorf("200 Services have %d endpoints, want 10 each on average", p.endpoints)
	}
	addresses, zones, slices := map[string]bool{}, map[string]int{}, 0
	for _, made := range plans {
		slices += len(made.slices)
		for _, slice := range made.slices {
			if len(slice.Endpoints) == 0 || len(slice.Endpoints) > perSlice {
				t.Errorf("slice %s has %d endpoints", slice.Name, len(slice.Endpoints))
			}
			for _, e := range slice.Endpoints {
				addresses[e.Addresses[0]] = true
				zones[*e.Zone]++
				if *e.NodeName == "" {
					t.Errorf("endpoint %s has no node", e.Addresses[0])
				}
			}
		}
	}
	if len(addresses) != 2000 || len(zones) != 3 || slices != 202 {
		t.Errorf("%d addresses, zones %v, %d slices", len(addresses), zones, slices)
	}
	if plans[0].service.Namespace == plans[perNamespace].service.Namespace {
		t.Error("there is one namespace for all")
	}
}

// hint is a slice with hints for all endpoints but the last ones.
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

func newObserver() *observer {
	return &observer{services: map[types.NamespacedName]*observed{}, happened: make(chan struct{}, 1)}
}

func withReason(service *corev1.Service, reason string) *corev1.Service {
	service = service.DeepCopy()
	service.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionTopologyRouting, Reason: reason}}
	return service
}

// A Service is done when all endpoints of all slices have hints, or its condition says that
// it gets none.
func TestServicesAreCounted(t *testing.T) {
	_, plans := somePlans(t, 2)
	large, small := plans[0], plans[1]
	o := newObserver()
	expect := func(what string, hinted, told, done int) {
		t.Helper()
		if o.hinted != hinted || o.reported != told || o.done != done {
			t.Errorf("%s: hinted %d, told %d, done %d; want %d, %d, %d", what, o.hinted, o.reported, o.done, hinted, told, done)
		}
	}
	for _, p := range plans {
		o.service(nil, p.service)
		for _, slice := range p.slices {
			o.slice(nil, slice)
		}
	}
	expect("new", 0, 0, 0)
	first, second := hint(large.slices[0], 0), hint(large.slices[1], 0)
	o.slice(large.slices[0], first)
	expect("half", 0, 0, 0)
	o.slice(large.slices[1], second)
	expect("all", 1, 0, 1)
	o.service(large.service, withReason(large.service, "Allocated"))
	expect("told", 1, 1, 1)
	o.service(small.service, withReason(small.service, "Allocated"))
	expect("told too early", 1, 2, 1)
	o.service(small.service, withReason(small.service, "Waiting"))
	expect("not to be", 1, 2, 2)
	o.slice(second, hint(second, 1))
	expect("one less", 0, 2, 1)
	if slices, services := o.writes(); slices != 3 || services != 3 {
		t.Errorf("%d writes of slices, %d of Services", slices, services)
	}
}

// After a change a watch shows the change itself, then the hints for it.
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
