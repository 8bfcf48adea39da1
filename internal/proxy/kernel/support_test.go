package kernel_test

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

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
		t.Errorf("CheckSupport left\n%s", list)
	}
	if got := interference(t, c); got != ruleset.NoInterference {
		t.Errorf("CheckSupport is taken for a foreign change: %d", got)
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

func TestFindings(t *testing.T) {
	settings := func(ipv4, ipv6, bridge string) fs.FS {
		return fstest.MapFS{
			"net/ipv4/ip_forward":                 {Data: []byte(ipv4 + "\n")},
			"net/ipv6/conf/all/forwarding":        {Data: []byte(ipv6 + "\n")},
			"net/bridge/bridge-nf-call-iptables":  {Data: []byte(bridge + "\n")},
			"net/bridge/bridge-nf-call-ip6tables": {Data: []byte(bridge + "\n")},
		}
	}
	for _, test := range []struct {
		name     string
		settings fs.FS
		family   ruleset.Family
		want     []string
	}{
		{"all is well", settings("1", "1", "1"), ruleset.IPv4, nil},
		{"no forwarding", settings("0", "1", "1"), ruleset.IPv4, []string{"net.ipv4.ip_forward is 0"}},
		{"no forwarding of the other", settings("1", "0", "1"), ruleset.IPv4, nil},
		{"bridges", settings("0", "0", "0"), ruleset.IPv6, []string{"net.ipv6.conf.all.forwarding is 0", "net.bridge.bridge-nf-call-ip6tables is 0"}},
		{"a kernel that has none of it", fstest.MapFS{}, ruleset.IPv6, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			findings, err := kernel.Findings(test.settings, test.family)
			if err != nil {
				t.Fatal(err)
			}
			if len(findings) != len(test.want) {
				t.Fatalf("Findings = %v, want %q", findings, test.want)
			}
			for i, want := range test.want {
				if text := findings[i].String(); !strings.HasPrefix(text, want+": ") || !strings.HasSuffix(text, "; set it to 1") {
					t.Errorf("finding %q, want %q, a consequence and what to set", text, want)
				}
			}
		})
	}
}
