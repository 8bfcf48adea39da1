package groups

import (
	"slices"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/internal/routing/intent"
)

// If two pods in slices have one address, the pod that has it now counts, in any order. A terminating pod may be ready,
// too, if the Service publishes addresses that are not ready.
func TestAddressOfTwoPods(t *testing.T) {
	conditions := func(ready, serving, terminating bool) discoveryv1.EndpointConditions {
		return discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating}
	}
	slice := func(name string, c discoveryv1.EndpointConditions) *discoveryv1.EndpointSlice {
		node := name
		s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, NodeName: &node, Conditions: c}}}
		s.Name = name
		return s
	}
	for name, test := range map[string]struct {
		old, new discoveryv1.EndpointConditions
	}{
		"ready":                    {conditions(false, true, true), conditions(true, true, false)},
		"not ready yet":            {conditions(false, true, true), conditions(false, false, false)},
		"published though it goes": {conditions(true, true, true), conditions(true, true, false)},
		"published though it goes, not ready yet": {conditions(true, true, true), conditions(false, false, false)},
		"the last that serves of two that go":     {conditions(false, false, true), conditions(false, true, true)},
	} {
		both := []*discoveryv1.EndpointSlice{slice("old", test.old), slice("new", test.new)}
		for range 2 {
			both[0].Name, both[1].Name = "a", "b"
			parts, notes := partsOf(&Input{Slices: both, Cluster: intent.NewCluster(nil)}, "IPv4")
			if len(parts) != 1 || len(parts[0].endpoints) != 1 || parts[0].endpoints[0].Node != "new" || len(notes) > 0 {
				t.Errorf("%s: got %+v, notes %q", name, parts, notes)
			}
			slices.Reverse(both)
		}
	}
}
