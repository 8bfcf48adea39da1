package shape_test

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"vicinity.dev/vicinity/lab/shape"
)

func names(nodes []shape.Node) []string {
	var all []string
	for _, node := range nodes {
		all = append(all, node.Name)
	}
	return all
}

func TestFromOptions(t *testing.T) {
	s, err := shape.FromOptions(shape.Options{
		Name: "mine", Proxy: "both", Zones: []string{"a", "b", "c"}, NodesPerZone: []int{2, 0, 1}, Regions: []string{"west", "west", "east"}, CPU: []string{"8"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := names(s.Nodes()); !slices.Equal(got, []string{"a-1", "a-2", "c-1"}) {
		t.Errorf("nodes %v", got)
	}
	if last := s.Nodes()[2]; last.CPU != "8" || last.Memory != "8Gi" || last.Region != "east" || last.Zone != "c" || last.Index != 3 {
		t.Errorf("the last node is %+v", last)
	}
	if s.Name != "mine" || !s.Proxy.KubeProxy() || !s.Proxy.Vicinity() {
		t.Errorf("the shape is %+v", s)
	}
}

func TestFromOptionsErrors(t *testing.T) {
	for _, test := range []struct {
		options shape.Options
		want    []string // the field or option, the value, the allowed values
	}{
		{shape.Options{Name: "Mine"}, []string{"name", `"Mine"`, "lower case"}},
		{shape.Options{Zones: []string{"a", "a"}}, []string{"zones.name", `"a"`, "its own"}},
		{shape.Options{CPU: []string{"lots"}}, []string{"zones.nodes.cpu", `"lots"`, "500m"}},
		{shape.Options{NodeLabels: map[string]string{"E_x/a": "b"}}, []string{"labels", `"E_x/a"`, "subdomain"}},
		{shape.Options{NodeLabels: map[string]string{"topology.kubernetes.io/zone": "b"}}, []string{"labels", "topology.kubernetes.io/zone", "set by the lab"}},
		{shape.Options{Proxy: "none", DNS: "coredns"}, []string{"dns", `"coredns"`, "without a proxy", "write none"}},
		{shape.Options{FakeNodes: -1}, []string{"fakeNodes", "-1", "0 to 20000"}},
		{shape.Options{NodesPerZone: []int{400}}, []string{"zones", "1200", "500", "fake nodes"}},
		{shape.Options{NodesPerZone: []int{1, 2}}, []string{"nodes-per-zone", "2 values for 3 zones"}},
	} {
		_, err := shape.FromOptions(test.options)
		for _, want := range test.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v, want %q in it", test.options, err, want)
			}
		}
	}
}

// drawShape makes any shape that flags can describe.
func drawShape(t *rapid.T) shape.Shape {
	o := shape.Options{
		Zones:            []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(t, "zones")],
		NodesPerZone:     []int{rapid.IntRange(0, 5).Draw(t, "nodes")},
		FakeNodes:        rapid.IntRange(0, 9).Draw(t, "fake"),
		SingleStack:      rapid.Bool().Draw(t, "single"),
		EvictionRequests: rapid.Bool().Draw(t, "requests"),
	}
	if rapid.Bool().Draw(t, "labels") {
		o.NodeLabels = map[string]string{"rack": "r1"}
	}
	s, err := shape.FromOptions(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A shape survives writing and reading.
func TestShapesAreReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawShape(t)
		if rapid.Bool().Draw(t, "change") {
			s, _, _ = s.With(shape.Node{Zone: "a", Index: 77})
			s = s.Without("a-1")
		}
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var read shape.Shape
		if err := json.Unmarshal(text, &read); err != nil || !reflect.DeepEqual(read, s) {
			t.Fatalf("%s is read as %+v, %v", text, read, err)
		}
	})
}

// No two parts of a lab, of any size, share an address.
func TestAddressesAreDistinct(t *testing.T) {
	s := shape.Default()
	used := map[netip.Addr]bool{}
	use := func(addrs []netip.Addr) {
		for _, addr := range addrs {
			if used[addr] {
				t.Fatalf("%s is used twice", addr)
			}
			used[addr] = true
			for _, cidr := range append(s.ServiceCIDRs(), s.PodCIDRs()...) {
				if cidr.Contains(addr) {
					t.Fatalf("address %s of a node is in the range %s", addr, cidr)
				}
			}
		}
	}
	use(s.FabricAddrs())
	cidrs := map[netip.Prefix]bool{}
	for index := 1; index <= shape.MaxIndex; index++ {
		use(s.NodeAddrs(shape.Node{Index: index}))
		for i, cidr := range s.NodePodCIDRs(shape.Node{Index: index}) {
			if cidrs[cidr] || !s.PodCIDRs()[i].Contains(cidr.Addr()) {
				t.Fatalf("the pod CIDR %s of node %d is used twice or not in %s", cidr, index, s.PodCIDRs()[i])
			}
			cidrs[cidr] = true
		}
	}
}

func TestOwnsNamespace(t *testing.T) {
	for _, test := range []struct {
		lab, namespace string
		want           bool
	}{
		{"a", shape.FabricNamespace("a"), true},
		{"a", shape.NodeNamespace("a", 12), true},
		{"a", shape.PodNamespace("a", "3c9e2a0e-7d5b-4f1a"), true},
		{"a", shape.FabricNamespace("a-p1"), false},
		{"a", shape.NodeNamespace("a-p1", 12), false},
		{"a", shape.PodNamespace("a-p1", "n1"), false},
		{"a-p1", shape.PodNamespace("a-p1", "n1"), true},
		{"a", "vl-a-x", false},
		{"a", "vl-a-n", false},
		{"a", "vl-a-nx", false},
		{"a", "vl-a-p", false},
		{"a", "a-fabric", false},
		{"a", "vl-ab-fabric", false},
	} {
		if got := shape.OwnsNamespace(test.lab, test.namespace); got != test.want {
			t.Errorf("OwnsNamespace(%q, %q) = %t, want %t", test.lab, test.namespace, got, test.want)
		}
	}
}

func TestLinksHaveShortNames(t *testing.T) {
	seen := map[string]string{}
	for _, id := range []string{
		"1", "1-2", "3c9e2a0e-7d5b-4f1a-9a51-000000000001", "3c9e2a0e-7d5b-4f1a-9a51-000000000002", strings.Repeat("x", 100),
	} {
		name := shape.PodLink(id)
		if len(name) > 15 || name[0] != 'p' {
			t.Errorf("PodLink(%q) = %q, want at most 15 bytes with the prefix p", id, name)
		}
		if other, taken := seen[name]; taken {
			t.Errorf("pods %q and %q have the same link %q", id, other, name)
		}
		seen[name] = id
	}
	if name := shape.NodeLink(shape.MaxIndex); len(name) > 15 {
		t.Errorf("the link %q is too long", name)
	}
}
