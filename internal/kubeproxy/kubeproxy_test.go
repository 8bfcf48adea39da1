package kubeproxy

import "testing"

func TestMode(t *testing.T) {
	for _, test := range []struct {
		name  string
		ready Ready
		want  Mode
	}{
		{"no endpoints", Ready{}, All},
		{"no hints", Ready{Endpoints: 2}, All},
		{"for the zone", Ready{Endpoints: 2, WithZoneHints: 2, ForZone: 1}, SameZone},
		{"for other zones", Ready{Endpoints: 2, WithZoneHints: 2}, All},
		{"one without a hint for zones", Ready{Endpoints: 2, WithZoneHints: 1, ForZone: 1}, All},
		{"for the node", Ready{Endpoints: 2, WithZoneHints: 2, ForZone: 2, WithNodeHints: 2, ForNode: 1}, SameNode},
		{"for other nodes", Ready{Endpoints: 2, WithZoneHints: 2, ForZone: 1, WithNodeHints: 2}, SameZone},
		{"one without a hint for nodes", Ready{Endpoints: 2, WithZoneHints: 2, ForZone: 1, WithNodeHints: 1, ForNode: 1}, SameZone},
		{"for the node, without hints for zones", Ready{Endpoints: 2, WithNodeHints: 2, ForNode: 1}, SameNode},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := test.ready.Mode(); got != test.want {
				t.Errorf("mode %s, want %s", got, test.want)
			}
		})
	}
}
