package view_test

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"vicinity.dev/vicinity/internal/proxy/compile"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/proxy/view"
)

func addresses(texts ...string) []netip.Addr {
	var all []netip.Addr
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

func TestOptions(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a1", Labels: map[string]string{"example.com/rack": "r1"}}}
	node.Spec.PodCIDR = "10.1.0.0/16"
	node.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeExternalIP, Address: "198.51.100.1"},
		{Type: corev1.NodeHostName, Address: "a1"},
		{Type: corev1.NodeInternalIP, Address: "::ffff:192.0.2.1"},
		{Type: corev1.NodeInternalIP, Address: "192.0.2.1"},
	}
	settings := view.Settings{AllServices: true, MasqueradeMark: 4}
	o := settings.Options(node, "a", nil)
	if !o.AllServices || o.Node.Name != "a1" || o.Node.Zone != "a" || o.Node.Labels["example.com/rack"] != "r1" ||
		!slices.Equal(o.Node.Addresses, addresses("192.0.2.1", "198.51.100.1")) || !slices.Equal(o.Node.NodePortAddresses, addresses("192.0.2.1")) {
		t.Errorf("got %+v", o)
	}
	if c := settings.Config(ruleset.IPv4, node); !slices.Equal(c.ClusterCIDRs, []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}) || c.MasqueradeMark != 4 || c.Family != ruleset.IPv4 {
		t.Errorf("got %+v", c)
	}
}

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

// TestShare compares what a kernel holds for several Services with the rules of one.
func TestShare(t *testing.T) {
	for _, family := range []ruleset.Family{ruleset.IPv4, ruleset.IPv6} {
		web, other := service("shop/web", "10.96.0.1", "10.1.0.1"), service("shop/another", "10.96.0.2", "10.1.0.2")
		if family == ruleset.IPv6 {
			web, other = service("shop/web", "fd00::1", "fd01::1"), service("shop/another", "fd00::2", "fd01::2")
		}
		config := ruleset.Config{Family: family}
		share := func(compiled ...compile.Family) *view.Share {
			table, errs := view.Table(config, compiled)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			return &view.Share{Table: table, Addresses: []netip.Addr{web.Ports[0].Fronts[0].Address}, Endpoints: []netip.Addr{web.Endpoints[0].Address}}
		}
		both, mine := share(web, other), share(web)
		if found := mine.Table.Differences(mine.Of(both.Table.Want())); len(found) > 0 {
			t.Errorf("%s: what is there for another differs: %v", family, found)
		}
		if found := mine.Table.Differences(both.Table.Want()); len(found) == 0 {
			t.Errorf("%s: what is there for another does not differ", family)
		}
		for name, held := range map[string]*view.Share{"nothing of it": share(other), "nothing": share()} {
			if found := mine.Table.Differences(mine.Of(held.Table.Want())); len(found) == 0 {
				t.Errorf("%s: %s: no difference", family, name)
			}
		}
		none := share()
		if found := none.Table.Differences(none.Of(both.Table.Want())); len(found) == 0 {
			t.Errorf("%s: what should not be there is no difference", family)
		}
		if found := none.Table.Differences(none.Of(share(other).Table.Want())); len(found) > 0 {
			t.Errorf("%s: what is there for another differs: %v", family, found)
		}
	}
}

func TestTableSaysWhatNoRuleCanBeMadeOf(t *testing.T) {
	odd := service("shop/web", "10.96.0.1", "10.1.0.1")
	odd.Ports[0].Fronts[0].Port = 0
	if _, errs := view.Table(ruleset.Config{Family: ruleset.IPv4}, []compile.Family{odd}); len(errs) != 1 {
		t.Errorf("got %v", errs)
	}
}

// A node sees all groups but those that its zone need not see, and those for DNS.
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
