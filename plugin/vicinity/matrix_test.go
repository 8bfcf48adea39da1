package vicinity

import (
	"testing"

	"github.com/miekg/dns"
)

// The names of labels in tiers.
const (
	host   = "kubernetes.io/hostname"
	zone   = "topology.kubernetes.io/zone"
	region = "topology.kubernetes.io/region"
)

// A Service with tiers, asked by a pod on node a1, by an unknown client, and by a client on a node without labels.
func TestMatrix(t *testing.T) {
	const near, unknown = "10.1.0.200", "203.0.113.7"
	const nothing = "NXDOMAIN soa" // there are no endpoints, says kubernetes
	for _, test := range []struct {
		tiers     string
		endpoints string
		want      string
		unknown   string
	}{
		// No keys.
		{"", "", nothing, nothing},
		{"", "1@a1 1@a2 1@b1 1@c1", "a1/1 a2/1 b1/1 c1/1", "a1/1 a2/1 b1/1 c1/1"},
		{"", "1@c1", "c1/1", "c1/1"},
		// One hard key.
		{host, "", nothing, nothing},
		{host, "1@a1 2@a1 1@a2 1@b1", "a1/1 a1/2", "soa"},
		{host, "1@a2 1@b1", "soa", "soa"},
		{zone, "1@a2 2@a2 1@a1 1@b1", "a1/1 a2/1 a2/2", "soa"},
		{zone, "1@b1 1@c1", "soa", "soa"},
		{"rack", "1@a1 1@a2", "a1/1", "soa"},
		{"rack", "1@a2 1", "soa", "soa"},
		{region, "1@b1 1@c1", "b1/1", "soa"},
		// Anywhere only.
		{"*", "", nothing, nothing},
		{"*", "1@a1 1@c1", "a1/1 c1/1", "a1/1 c1/1"},
		{"*", "1@c1", "c1/1", "c1/1"},
		// Several hard keys.
		{host + "," + zone, "", nothing, nothing},
		{host + "," + zone, "1@a1 1@a2 1@b1", "a1/1", "soa"},
		{host + "," + zone, "1@a2 1@b1", "a2/1", "soa"},
		{host + "," + zone, "1@b1", "soa", "soa"},
		{host + "," + zone + "," + region, "1@b1 1@c1", "b1/1", "soa"},
		{"rack," + zone, "1@a1 1@a2", "a1/1", "soa"},
		{"rack," + zone, "1@a2", "a2/1", "soa"},
		{"missing," + zone, "1@a1 1@a2 1@b1", "a1/1 a2/1", "soa"},
		// Several, and anywhere.
		{host + "," + zone + ",*", "", nothing, nothing},
		{host + "," + zone + ",*", "1@a1 1@a2 1@b1", "a1/1", "a1/1 a2/1 b1/1"},
		{host + "," + zone + ",*", "1@a2 1@b1", "a2/1", "a2/1 b1/1"},
		{host + "," + zone + ",*", "1@b1 1@c1", "b1/1 c1/1", "b1/1 c1/1"},
		{host + "," + zone + "," + region + ",*", "1@b1 1@c1", "b1/1", "b1/1 c1/1"},
		// Endpoints without a node, and of a node that nothing is known of.
		{zone, "1 1@a2", "a2/1", "soa"},
		{zone + ",*", "1 1@x1", "10.0.0.1 10.9.0.1", "10.0.0.1 10.9.0.1"},
		// Endpoints that no group has yet.
		{host + "," + zone, "1@a1+ 1@a2", "a1/1", "soa"},
		{host + "," + zone, "1@a2+ 1@b1", "a2/1", "soa"},
		{host + "," + zone, "1@b1+ 2@b1", "soa", "soa"},
		{host + ",*", "1@a2+ 1@b1", "a2/1 b1/1", "a2/1 b1/1"},
	} {
		w := newWorld(t)
		w.headless("web", test.tiers, test.endpoints)
		for client, want := range map[string]string{near: test.want, unknown: test.unknown} {
			m := w.ask(client, "web.shop.svc.cluster.local.", dns.TypeA)
			if got := brief(m); got != want {
				t.Errorf("%q, endpoints %q, client %s: got %q, want %q", test.tiers, test.endpoints, client, got, want)
			}
			if !m.Authoritative {
				t.Errorf("%q: the answer is not authoritative", test.tiers)
			}
		}
	}
}
