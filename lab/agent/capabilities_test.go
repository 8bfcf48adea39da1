package agent

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestForbiddenCapabilities(t *testing.T) {
	for number, name := range capabilityNames {
		if name == "" {
			t.Errorf("capability %d has no name", number)
		}
	}
	for _, test := range []struct {
		name      string
		add, drop []corev1.Capability
		// allowed are those left of NET_ADMIN, NET_RAW and SYS_ADMIN.
		allowed []string
		wrong   string
	}{
		{name: "nothing is said", allowed: []string{"NET_ADMIN", "NET_RAW", "SYS_ADMIN"}},
		{name: "all but one", drop: []corev1.Capability{"ALL"}, add: []corev1.Capability{"NET_ADMIN"}, allowed: []string{"NET_ADMIN"}},
		{name: "all", drop: []corev1.Capability{"ALL"}},
		{name: "one", drop: []corev1.Capability{"NET_RAW"}, allowed: []string{"NET_ADMIN", "SYS_ADMIN"}},
		{name: "with the kernel's prefix", drop: []corev1.Capability{"CAP_NET_RAW"}, allowed: []string{"NET_ADMIN", "SYS_ADMIN"}},
		{name: "unknown", drop: []corev1.Capability{"FLYING"}, wrong: `"FLYING"`},
		{name: "unknown one more", add: []corev1.Capability{"net_admin"}, wrong: `"net_admin"`},
	} {
		spec := &corev1.Container{SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: test.add, Drop: test.drop}}}
		if test.add == nil && test.drop == nil {
			spec.SecurityContext.Capabilities = nil
		}
		numbers, err := droppedCapabilities(spec)
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
