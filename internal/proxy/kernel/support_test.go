package kernel_test

import (
	"testing"

	"vicinity.dev/vicinity/internal/proxy/kernel"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

func TestCheckSupportLeavesNothing(t *testing.T) {
	n := newNamespace(t)
	c := n.open(t)
	for _, family := range families {
		if err := c.CheckSupport(t.Context(), family); err != nil {
			t.Error(err)
		}
	}
	if list := n.nft(t, "list", "ruleset"); list != "" {
		t.Errorf("after CheckSupport:\n%s", list)
	}
	if got := interference(t, c); got != ruleset.NoInterference {
		t.Errorf("CheckSupport counts as a foreign change: %d", got)
	}
}

func TestVersionsAreCompared(t *testing.T) {
	for _, test := range []struct {
		release string
		older   bool
	}{
		{"4.19.0-26-amd64", true},
		{"5.12.99", true},
		{"5.4.0-200-generic", true},
		{"2.6", true},
		{"5.13.0", false},
		{"5.13", false},
		{"5.100.1", false},
		{"6.1.0", false},
		{"10.0.0", false},
		{"a kernel of our own", false},
	} {
		if older := kernel.Older(test.release, kernel.MinimumKernel); older != test.older {
			t.Errorf("%s is older than %s: %t, want %t", test.release, kernel.MinimumKernel, older, test.older)
		}
	}
}
