package view_test

import (
	"net/netip"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"vicinity.dev/vicinity/internal/proxy/compile"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/proxy/view"
)

// service is a Service with one port and its endpoints on the node.
func service(name, clusterIP, endpoint string) compile.Family {
	family, cluster := ruleset.IPv4, netip.MustParseAddr(clusterIP)
	if cluster.Is6() {
		family = ruleset.IPv6
	}
	target := netip.AddrPortFrom(netip.MustParseAddr(endpoint), 8080)
	return compile.Family{
		Family: family,
		Ports: []ruleset.ServicePort{{
			Name: name, Cluster: []netip.AddrPort{target}, Local: []netip.AddrPort{target},
			Fronts: []ruleset.FrontEnd{
				{Front: ruleset.Front{Address: cluster, Protocol: ruleset.TCP, Port: 80}, ClusterIP: true},
				{Front: ruleset.Front{Address: netip.MustParseAddr(map[ruleset.Family]string{ruleset.IPv4: "192.0.2.1", ruleset.IPv6: "2001:db8::1"}[family]), Protocol: ruleset.TCP, Port: uint16(30000 + len(name))}, Pool: ruleset.PoolSplit},
			},
			Affinity: 1e9,
		}},
		Endpoints: compile.Endpoints{{Address: target.Addr(), OnNode: true}},
	}
}

// The part of one Service in a kernel's table for several Services equals its rules.
func TestShare(t *testing.T) {
	for _, family := range ruleset.Families {
		web, other := service("shop/web", "10.96.0.1", "10.1.0.1"), service("shop/another", "10.96.0.2", "10.1.0.2")
		if family == ruleset.IPv6 {
			web, other = service("shop/web", "fd00::1", "fd01::1"), service("shop/another", "fd00::2", "fd01::2")
		}
		config := ruleset.Config{Family: family}
		share := func(compiled ...compile.Family) *view.Share {
			table := view.Table(config, compiled)
			return &view.Share{Table: table, Addresses: []netip.Addr{web.Ports[0].Fronts[0].Address}, Endpoints: []netip.Addr{web.Endpoints[0].Address}}
		}
		both, mine := share(web, other), share(web)
		if found := mine.Table.Differences(mine.Of(both.Table.Want())); len(found) > 0 {
			t.Errorf("%s: another node's objects differ: %v", family, found)
		}
		if found := mine.Table.Differences(both.Table.Want()); len(found) == 0 {
			t.Errorf("%s: another node's objects do not differ", family)
		}
		for name, held := range map[string]*view.Share{"nothing of it": share(other), "nothing": share()} {
			if found := mine.Table.Differences(mine.Of(held.Table.Want())); len(found) == 0 {
				t.Errorf("%s: %s: no difference", family, name)
			}
		}
		none := share()
		if found := none.Table.Differences(none.Of(both.Table.Want())); len(found) == 0 {
			t.Errorf("%s: a foreign object is no difference", family)
		}
		if found := none.Table.Differences(none.Of(share(other).Table.Want())); len(found) > 0 {
			t.Errorf("%s: another node's objects differ: %v", family, found)
		}
	}
}

// A node sees all groups except groups that exclude its zone, and groups for DNS.
func TestGroupSelector(t *testing.T) {
	for _, test := range []struct {
		zone   string
		labels labels.Set
		seen   bool
	}{
		{"a", nil, true},
		{"a", labels.Set{"not-for.vicinity.dev/b": "true"}, true},
		{"a", labels.Set{"not-for.vicinity.dev/a": "true"}, false},
		{"a", labels.Set{"service.kubernetes.io/headless": ""}, false},
		{"", labels.Set{"not-for.vicinity.dev/a": "true"}, true},
		{"", labels.Set{"service.kubernetes.io/headless": ""}, false},
	} {
		selector, err := labels.Parse(view.GroupSelector(test.zone))
		if err != nil || selector.Matches(test.labels) != test.seen {
			t.Errorf("zone %q sees %v: %t, %v", test.zone, test.labels, !test.seen, err)
		}
	}
}
