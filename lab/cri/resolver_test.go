package cri

import (
	"net/netip"
	"testing"
)

// The kubelet writes the address of its --cluster-dns; the runtime writes that of the server.
func TestResolver(t *testing.T) {
	machine := parseResolver("# a comment\nnameserver 192.0.2.1\nnameserver 192.0.2.2\ndomain old\nsearch home work\noptions timeout:3 rotate\n")
	agreed := []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00::a")}
	server := []string{"10.96.7.7", "fd00::77"}
	const (
		said  = "nameserver 10.96.0.10\nnameserver fd00::a\n"
		names = "search default.svc.cluster.local svc.cluster.local cluster.local home work"
	)
	for _, c := range []struct {
		name       string
		said       string
		server     []string
		want       string
		unaffected bool
	}{
		{"the cluster's", said + names + "\noptions ndots:5\n", server, "nameserver 10.96.7.7\nnameserver fd00::77\n" + names + "\noptions ndots:5\n", false},
		{"one family of its own choice", "nameserver 10.96.0.10\nsearch home\n", []string{"10.96.0.10", "fd00::a"}, "nameserver 10.96.0.10\nsearch home\n", false},
		{"a server of one family", said + names + "\n", []string{"10.96.0.10"}, "nameserver 10.96.0.10\n" + names + "\n", false},
		{"no server yet", said + names + "\noptions ndots:5\n", nil, "nameserver 192.0.2.1\nnameserver 192.0.2.2\nsearch home work\n", false},
		{"the machine's", machine.String(), server, machine.String(), true},
		{
			"its own besides the cluster's", said + "nameserver 198.51.100.1\n" + names + " shop\noptions ndots:5 edns0\n", server,
			"nameserver 10.96.7.7\nnameserver fd00::77\nnameserver 198.51.100.1\n" + names + " shop\noptions ndots:5 edns0\n", false,
		},
		{
			"its own without a server", said + "nameserver 198.51.100.1\n" + names + " shop\noptions ndots:5 edns0\n", nil,
			"nameserver 192.0.2.1\nnameserver 192.0.2.2\nnameserver 198.51.100.1\nsearch home work shop\noptions edns0\n", false,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := parseResolver(c.said)
			if usesClusterDNS(r, agreed) == c.unaffected {
				t.Errorf("that it uses the cluster's server is %v", !c.unaffected)
			}
			if !c.unaffected {
				r = r.withClusterDNS(agreed, c.server, machine)
			}
			if r.String() != c.want {
				t.Errorf("got\n%swant\n%s", r, c.want)
			}
		})
	}
}

// The C library asks three servers at most.
func TestResolverHasNoMoreServersThanAreAsked(t *testing.T) {
	r := resolver{nameservers: []string{"10.96.0.10", "192.0.2.1", "192.0.2.2"}}
	r = r.withClusterDNS([]netip.Addr{netip.MustParseAddr("10.96.0.10")}, []string{"10.96.7.7", "fd00::a"}, resolver{})
	if len(r.nameservers) != 3 || r.nameservers[0] != "10.96.7.7" {
		t.Errorf("got %q", r.nameservers)
	}
}
