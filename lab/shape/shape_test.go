package shape_test

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

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

func TestRead(t *testing.T) {
	s, err := shape.Read(strings.NewReader(`
name: mine
proxy: both
zones:
- name: a
  region: west
  cpu: "8"
  labels: {example.com/rack: r0, tier: x}
  nodes:
  - labels: {example.com/rack: r1}
  - name: big
    cpu: "16"
    pods: 50
- name: b
  nodes: 3
- name: c
- name: d
  nodes: 0
timing:
  leaseRenewal: 1s
`), "other")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"a-1", "big", "b-1", "b-2", "b-3", "c-1", "c-2"}
	if got := names(s.Nodes()); !slices.Equal(got, want) {
		t.Errorf("nodes %v, want %v", got, want)
	}
	if s.Name != "mine" {
		t.Errorf("the shape's name is %q, want mine", s.Name)
	}
	if unnamed, err := shape.Read(strings.NewReader("zones: [{name: a}]"), "other"); err != nil || unnamed.Name != "other" {
		t.Errorf("a shape without a name is called %q, %v", unnamed.Name, err)
	}
	first, big := s.Zones[0].Nodes[0], s.Zones[0].Nodes[1]
	if first.CPU != "8" || first.Labels["example.com/rack"] != "r1" || first.Labels["tier"] != "x" || first.Region != "west" {
		t.Errorf("the first node is %+v", first)
	}
	if big.CPU != "16" || big.Pods != 50 || big.Labels["example.com/rack"] != "r0" || big.Index != 2 {
		t.Errorf("the big node is %+v", big)
	}
	if !s.Proxy.KubeProxy() || !s.Proxy.Vicinity() {
		t.Errorf("the shape is %+v", s)
	}
	if usual := shape.DefaultTiming(0); s.Timing.LeaseRenewal.Duration != time.Second || s.Timing.MonitorGrace != usual.MonitorGrace {
		t.Errorf("timing %+v", s.Timing)
	}
}

func TestReadErrors(t *testing.T) {
	for _, test := range []struct {
		text string
		want []string // the field, the value, the allowed values
	}{
		{"zones: []", []string{"zones", "at least one"}},
		{"name: Mine\nzones: [{name: a}]", []string{"name", `"Mine"`, "lower case"}},
		{"zones: [{name: a, rack: b}]", []string{`unknown field "rack"`}},
		{"zones: [{name: a, nodes: many}]", []string{`zone "a"`, "nodes", `"many"`, "a list, or a number"}},
		{"zones: [{name: a}, {name: a}]", []string{"zones[1].name", `"a"`, "its own"}},
		{"zones: [{name: a, nodes: [{name: x}, {name: x}]}]", []string{"zones[0].nodes[1].name", `"x"`}},
		{"zones: [{name: a, nodes: [{index: 2}, {index: 2}]}]", []string{"zones[0].nodes[1].index", "2", "its own"}},
		{"zones: [{name: a, cpu: lots}]", []string{"zones[0].nodes[0].cpu", `"lots"`, "500m"}},
		{"zones: [{name: a, pods: 1000}]", []string{"pods", "1000", "1 to 253"}},
		{"zones: [{name: a, labels: {E_x/a: b}}]", []string{"labels", `"E_x/a"`, "subdomain"}},
		{"zones: [{name: a, labels: {topology.kubernetes.io/zone: b}}]", []string{"labels", "topology.kubernetes.io/zone", "set by the lab"}},
		{"zones: [{name: a}]\nproxy: none\ndns: coredns", []string{"dns", `"coredns"`, "without a proxy", "write none"}},
		{"zones: [{name: a}]\nfakeNodes: -1", []string{"fakeNodes", "-1", "0 to 20000"}},
		{"zones: [{name: a}]\ntiming: {leaseDuration: 1500ms}", []string{"timing.leaseDuration", "1.5s", "whole seconds"}},
		{"zones: [{name: a, nodes: 400}, {name: b, nodes: 400}]", []string{"zones", "800", "500", "fake nodes"}},
	} {
		_, err := shape.Read(strings.NewReader(test.text), "")
		if err == nil {
			t.Errorf("Read(%q) returned no error", test.text)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("Read(%q): %q, want %q in it", test.text, err, want)
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
		read, err := shape.Read(strings.NewReader(string(text)), "")
		if err != nil || !reflect.DeepEqual(read, s) {
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

func FuzzRead(f *testing.F) {
	f.Add("zones: [{name: a, nodes: [{cpu: 500m}]}]")
	f.Add("name: x\nzones:\n- name: a\n  nodes: 3\ntiming: {leaseRenewal: 1s}\nfakeNodes: 2")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := shape.Read(strings.NewReader(text), "other")
		if err != nil {
			return
		}
		if err := s.Validate(); err != nil {
			t.Errorf("a shape that was read is not valid: %v", err)
		}
		s.FakeNodeList()
	})
}
