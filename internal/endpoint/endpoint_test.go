package endpoint

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// The states are in order of precedence among endpoints with one address.
func TestStates(t *testing.T) {
	yes, no := true, false
	conditions := func(ready, serving, terminating *bool) discoveryv1.EndpointConditions {
		return discoveryv1.EndpointConditions{Ready: ready, Serving: serving, Terminating: terminating}
	}
	ordered := []struct {
		name                        string
		conditions                  []discoveryv1.EndpointConditions // all with the same meaning
		ready, serving, terminating bool
	}{
		{"ready", []discoveryv1.EndpointConditions{conditions(&yes, &yes, &no), conditions(nil, nil, nil)}, true, true, false},
		{"ready, not serving", []discoveryv1.EndpointConditions{conditions(&yes, &no, &no), conditions(nil, &no, nil)}, true, false, false},
		{"not ready", []discoveryv1.EndpointConditions{conditions(&no, &yes, &no), conditions(&no, nil, nil)}, false, true, false},
		{"neither ready nor serving", []discoveryv1.EndpointConditions{conditions(&no, &no, &no), conditions(&no, &no, nil)}, false, false, false},
		{"terminating, published as ready", []discoveryv1.EndpointConditions{conditions(&yes, &yes, &yes), conditions(nil, nil, &yes)}, true, true, true},
		{"terminating, published as ready, not serving", []discoveryv1.EndpointConditions{conditions(&yes, &no, &yes)}, true, false, true},
		{"terminating", []discoveryv1.EndpointConditions{conditions(&no, &yes, &yes), conditions(&no, nil, &yes)}, false, true, true},
		{"terminating, not serving", []discoveryv1.EndpointConditions{conditions(&no, &no, &yes)}, false, false, true},
	}
	var last State
	for i, test := range ordered {
		for _, c := range test.conditions {
			sliced := discoveryv1.Endpoint{Conditions: c}
			s, grouped := StateOf(&sliced), Read(&sliced)
			if s.IsReady() != test.ready || s.IsServing() != test.serving || s.IsTerminating() != test.terminating {
				t.Errorf("%s: ready is %t, serving %t, terminating %t", test.name, s.IsReady(), s.IsServing(), s.IsTerminating())
			}
			if again := StateInGroup(&grouped); again != s {
				t.Errorf("%s: the state is %d in a slice and %d in a group", test.name, s, again)
			}
			if i > 0 && (!last.Before(s) || s.Before(last)) || s.Before(s) {
				t.Errorf("%s: it should count after %s", test.name, ordered[max(i-1, 0)].name)
			}
		}
		last = StateOf(&discoveryv1.Endpoint{Conditions: test.conditions[0]})
	}
}
