package cri

import (
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestForbiddenCapabilities(t *testing.T) {
	for number, name := range capabilityNames {
		if name == "" {
			t.Errorf("capability %d has no name", number)
		}
	}
	for _, test := range []struct {
		name      string
		add, drop []string
		// allowed are those left of NET_ADMIN, NET_RAW and SYS_ADMIN.
		allowed []string
		wrong   string
	}{
		{name: "nothing is said", allowed: []string{"NET_ADMIN", "NET_RAW", "SYS_ADMIN"}},
		{name: "all but one", drop: []string{"ALL"}, add: []string{"NET_ADMIN"}, allowed: []string{"NET_ADMIN"}},
		{name: "all", drop: []string{"ALL"}},
		{name: "one", drop: []string{"NET_RAW"}, allowed: []string{"NET_ADMIN", "SYS_ADMIN"}},
		{name: "with the kernel's prefix", drop: []string{"CAP_NET_RAW"}, allowed: []string{"NET_ADMIN", "SYS_ADMIN"}},
		{name: "unknown", drop: []string{"FLYING"}, wrong: `"FLYING"`},
		{name: "unknown one more", add: []string{"net_admin"}, wrong: `"net_admin"`},
	} {
		numbers, err := droppedCapabilities(&runtimeapi.Capability{AddCapabilities: test.add, DropCapabilities: test.drop})
		if test.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), test.wrong) {
				t.Errorf("%s: the error is %v, want one about %s", test.name, err, test.wrong)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		var allowed []string
		for _, name := range []string{"NET_ADMIN", "NET_RAW", "SYS_ADMIN"} {
			if !slices.Contains(numbers, slices.Index(capabilityNames, name)) {
				allowed = append(allowed, name)
			}
		}
		if !slices.Equal(allowed, test.allowed) {
			t.Errorf("%s: allowed are %q, want %q", test.name, allowed, test.allowed)
		}
	}
}
