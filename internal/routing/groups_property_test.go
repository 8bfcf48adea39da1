package routing

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/routing/groups"
	"vicinity.dev/vicinity/internal/routing/intent"
	"vicinity.dev/vicinity/internal/topology"
)

// groupScene is a Service whose endpoints, annotations and nodes change at random.
type groupScene struct {
	*groupWorld
	t         *rapid.T
	nodes     map[string]*corev1.Node
	endpoints []*sceneEndpoint
	next      int
	// moved has endpoints that changed their node, or whose node changed its zone, since the groups were written.
	moved map[string]bool
}

type sceneEndpoint struct {
	address, node string
	odd           bool // has other ports
	ready         bool
	leaving       bool
}

var sceneAnnotations = []map[string]string{
	{},
	{v1alpha1.AnnotationSameZone: v1alpha1.Prefer},
	{v1alpha1.AnnotationSameZone: v1alpha1.Require},
	{v1alpha1.AnnotationTopologyKeys: "kubernetes.io/hostname"},
	{v1alpha1.AnnotationTopologyKeys: "rack"},
	{v1alpha1.AnnotationTopologyKeys: "rack,topology.kubernetes.io/zone,*"},
	{v1alpha1.AnnotationTopologyKeys: "topology.kubernetes.io/region"},
	{"endpointslice.kubernetes.io/same-node": v1alpha1.Prefer, v1alpha1.AnnotationSameZone: v1alpha1.Prefer},
	{v1alpha1.AnnotationSameZone: v1alpha1.Prefer, "endpointslice.kubernetes.io/same-region": v1alpha1.Require},
	{v1alpha1.AnnotationTopologyMode: "vicinity.dev/weighted"},
}

func newGroupScene(t *rapid.T) *groupScene {
	s := &groupScene{t: t, nodes: map[string]*corev1.Node{}}
	service := routedService()
	service.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	s.groupWorld = newGroupWorld(t, inputOf(service, nil, nil))
	s.in.Policies = []*v1alpha1.RoutingPolicy{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "weighted"},
		Spec:       v1alpha1.RoutingPolicySpec{Algorithm: "local-weighted"},
	}}
	s.in.Settings.GroupSize = rapid.SampledFrom([]int{1, 2, 3, 100, 1000}).Draw(t, "size")
	for _, zone := range []string{"ea", "eb", "wc"} {
		for range rapid.IntRange(1, 3).Draw(t, "nodes of "+zone) {
			s.addNode(zone)
		}
	}
	s.annotate()
	return s
}

func (s *groupScene) addNode(zone string) {
	s.next++
	name := fmt.Sprintf("%s-%d", zone, s.next)
	s.nodes[name] = testNode{name: name, zone: zone, region: zone[:1], labels: map[string]string{
		"rack": rapid.SampledFrom([]string{"r1", "r2", "r3"}).Draw(s.t, "rack"),
	}}.object()
}

func (s *groupScene) annotate() {
	service := s.in.Service.DeepCopy()
	service.Annotations = map[string]string{v1alpha1.AnnotationProxy: "true"}
	for key, value := range rapid.SampledFrom(sceneAnnotations).Draw(s.t, "wish") {
		service.Annotations[key] = value
	}
	s.in.Service = service
}

// changeSome changes endpoints, annotations and nodes at once.
func (s *groupScene) changeSome() {
	for range rapid.IntRange(1, 4).Draw(s.t, "changes") {
		switch rapid.SampledFrom([]string{"add", "add", "add", "add", "remove", "flip", "leave", "move", "wish", "node", "node gone", "all away"}).Draw(s.t, "change") {
		case "add":
			for range rapid.IntRange(1, 6).Draw(s.t, "more") {
				s.next++
				s.endpoints = append(s.endpoints, &sceneEndpoint{
					address: fmt.Sprintf("10.0.%d.%d", s.next/250, s.next%250+1), node: s.drawNode(),
					odd:   rapid.IntRange(0, 9).Draw(s.t, "odd") == 0,
					ready: rapid.IntRange(0, 3).Draw(s.t, "ready") > 0,
				})
			}
		case "remove":
			if i := s.drawEndpoint(); i >= 0 {
				s.endpoints = slices.Delete(s.endpoints, i, i+1)
			}
		case "flip":
			if i := s.drawEndpoint(); i >= 0 {
				s.endpoints[i].ready = !s.endpoints[i].ready
			}
		case "leave":
			if i := s.drawEndpoint(); i >= 0 {
				s.endpoints[i].ready, s.endpoints[i].leaving = false, true
			}
		case "move":
			if i := s.drawEndpoint(); i >= 0 {
				s.endpoints[i].node = s.drawNode()
			}
		case "wish":
			s.annotate()
		case "node":
			s.addNode(rapid.SampledFrom([]string{"ea", "eb", "wc", "wd"}).Draw(s.t, "zone"))
		case "node gone":
			if names := s.nodeNames(); len(names) > 1 {
				delete(s.nodes, rapid.SampledFrom(names).Draw(s.t, "gone"))
			}
		case "all away":
			for _, e := range s.endpoints {
				e.ready = false
			}
		}
	}
	s.publish()
}

func (s *groupScene) nodeNames() []string {
	var names []string
	for name := range s.nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// drawNode draws a node, or an unknown one.
func (s *groupScene) drawNode() string {
	return rapid.SampledFrom(append(s.nodeNames(), "unknown")).Draw(s.t, "node")
}

func (s *groupScene) drawEndpoint() int {
	if len(s.endpoints) == 0 {
		return -1
	}
	return rapid.IntRange(0, len(s.endpoints)-1).Draw(s.t, "endpoint")
}

// publish updates the slices and nodes of the input.
func (s *groupScene) publish() {
	var nodes []*corev1.Node
	for _, name := range s.nodeNames() {
		nodes = append(nodes, s.nodes[name])
	}
	s.in.Cluster = intent.NewCluster(nodes)
	lists := map[bool][]discoveryv1.Endpoint{}
	for _, e := range s.endpoints {
		serving := true
		endpoint := discoveryv1.Endpoint{
			Addresses:  []string{e.address},
			NodeName:   &e.node,
			Conditions: discoveryv1.EndpointConditions{Ready: new(e.ready), Serving: &serving, Terminating: new(e.leaving)},
		}
		lists[e.odd] = append(lists[e.odd], endpoint)
	}
	s.in.Slices = nil
	for _, odd := range []bool{false, true} {
		names := []string{"http"}
		if odd {
			names = []string{"http", "odd"}
		}
		var ports []discoveryv1.EndpointPort
		for i, name := range names {
			ports = append(ports, discoveryv1.EndpointPort{Name: &name, Port: new(int32(80 + i))})
		}
		s.in.Slices = append(s.in.Slices, &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: "web-" + strings.Join(names, "-")},
			AddressType: discoveryv1.AddressTypeIPv4, Ports: ports, Endpoints: lists[odd],
		})
	}
}

// readers returns the nodes, a node in a new zone, and a node without a zone.
func (s *groupScene) readers() []reader {
	var readers []reader
	for _, port := range []string{"http", "odd"} {
		for _, name := range s.nodeNames() {
			readers = append(readers, reader{corev1.IPv4Protocol, port, s.nodes[name].Labels})
		}
		readers = append(readers,
			reader{corev1.IPv4Protocol, port, topology.Labels{topology.Hostname: "new", topology.Zone: "new", topology.Region: "e", "rack": "r1"}},
			reader{corev1.IPv4Protocol, port, topology.Labels{topology.Hostname: "lost", "rack": "r2"}})
	}
	return readers
}

// isAnyReady reports whether an address is ready.
func (s *groupScene) isAnyReady(addresses map[string]bool) bool {
	return slices.ContainsFunc(s.endpoints, func(e *sceneEndpoint) bool { return e.ready && addresses[e.address] })
}

// isAnyCalledReady reports whether a group calls an address ready.
func (s *groupScene) isAnyCalledReady(addresses map[string]bool) bool {
	for _, g := range s.groups {
		if slices.ContainsFunc(g.Spec.Endpoints, func(e v1alpha1.GroupEndpoint) bool { return !e.NotReady && addresses[e.Address] }) {
			return true
		}
	}
	return false
}

// isAnyReadyInPlace reports whether an address is ready and has not moved. A moved endpoint counts as another one.
func (s *groupScene) isAnyReadyInPlace(addresses map[string]bool) bool {
	return slices.ContainsFunc(s.endpoints, func(e *sceneEndpoint) bool {
		return e.ready && addresses[e.address] && !s.moved[e.address]
	})
}

// findMoved compares the places of endpoints with the groups.
func (s *groupScene) findMoved() {
	s.moved = map[string]bool{}
	at := map[string]string{}
	for _, e := range s.endpoints {
		at[e.address] = e.node
	}
	for _, g := range s.groups {
		for _, e := range g.Spec.Endpoints {
			if e.Node != at[e.Address] || e.Zone != s.in.Cluster.Labels(e.Node)[topology.Zone] {
				s.moved[e.Address] = true
			}
		}
	}
}

// TestGroupsNeverLeaveAZoneWithout takes steps while everything changes, and any write of a step may fail. After each
// write it reads the groups as each node does: a node with an endpoint before and after the change has one meanwhile.
func TestGroupsNeverLeaveAZoneWithout(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newGroupScene(t)
		for range rapid.IntRange(1, 8).Draw(t, "rounds") {
			s.changeSome()
			s.now = s.now.Add(time.Duration(rapid.IntRange(0, 12).Draw(t, "seconds")) * time.Second)
			d := s.decide()
			s.checkSteps(d)
		}
	})
}

// checkSteps takes steps for one decision and checks them.
func (s *groupScene) checkSteps(d Decision) {
	s.findMoved()
	final := s.clone()
	final.settle(d, GroupState{})
	s.checkSettled(final, d)
	readers := s.readers()
	type need struct{ tiered, seen, ready, claimed bool }
	needs := make([]need, len(readers))
	for i, r := range readers {
		before, after := r.used(s.groups, true), r.used(final.groups, true)
		zoneBefore, zoneAfter := r.used(s.groups, false), r.used(final.groups, false)
		needs[i] = need{
			tiered: s.isAnyReadyInPlace(before) && s.isAnyReadyInPlace(after),
			seen:   len(zoneBefore) > 0 && len(zoneAfter) > 0,
			ready:  s.isAnyReadyInPlace(zoneBefore) && s.isAnyReadyInPlace(zoneAfter),
			// The endpoint before may be gone. Without it, the zone refuses its clients.
			claimed: s.isAnyCalledReady(zoneBefore) && s.isAnyReady(zoneAfter),
		}
	}
	begin := s.text()
	s.watch = func() {
		for i, r := range readers {
			if needs[i].seen && r.port == "http" && len(r.used(s.groups, false)) == 0 {
				s.t.Fatalf("%v has nothing to see for port %s; from\n%snow\n%slater\n%s", r.labels, r.port, begin, s.text(), final.text())
			}
			if needs[i].ready && !s.isAnyReady(r.used(s.groups, false)) {
				s.t.Fatalf("%v has nothing ready for port %s; from\n%snow\n%slater\n%s", r.labels, r.port, begin, s.text(), final.text())
			}
			if needs[i].claimed && r.port == "http" && !s.isAnyCalledReady(r.used(s.groups, false)) {
				s.t.Fatalf("%v has nothing that groups call ready for port %s; from\n%snow\n%slater\n%s", r.labels, r.port, begin, s.text(), final.text())
			}
			// A removed endpoint may hide farther ones until its group is written.
			if needs[i].tiered && len(r.used(s.groups, true)) == 0 {
				s.t.Fatalf("%v has nothing in its tiers for port %s; from\n%snow\n%slater\n%s", r.labels, r.port, begin, s.text(), final.text())
			}
		}
	}
	defer func() { s.watch = nil }()
	for range 4 {
		most := rapid.IntRange(0, 12).Draw(s.t, "writes that succeed")
		changes := s.step(d, GroupState{}, most)
		if most >= changes.Writes() {
			s.checkReadBack(d)
			if !changes.Again {
				s.checkComplete()
				if again := s.step(d, GroupState{}, 0); again.Writes() > 0 {
					s.t.Fatalf("written, and there is more to write: %+v\n%s", again, s.text())
				}
				return
			}
		}
	}
}

// checkReadBack compares the plan that is read from groups with the decision.
func (s *groupScene) checkReadBack(d Decision) {
	read := groups.Assigned(s.input().Groups, corev1.IPv4Protocol)
	f := d.family(corev1.IPv4Protocol)
	for address, set := range f.Assigned {
		if got := read[address]; got.String() != set.String() {
			s.t.Fatalf("%s is assigned to %s and read back as %s:\n%s", address, set, got, s.text())
		}
	}
}

// checkComplete expects a group with each endpoint, in its present state and with its ports.
func (s *groupScene) checkComplete() {
	for _, e := range s.endpoints {
		found := false
		for _, g := range s.groups {
			for i := range g.Spec.Endpoints {
				have := &g.Spec.Endpoints[i]
				if have.Address == e.address && have.NotReady != e.ready && have.Terminating == e.leaving && len(g.Spec.Ports) == 1+map[bool]int{true: 1}[e.odd] {
					found = true
				}
			}
		}
		if !found {
			s.t.Fatalf("%+v is in no group:\n%s", *e, s.text())
		}
	}
}

// checkSettled expects groups that hold nothing, with each endpoint once.
func (s *groupScene) checkSettled(w *groupWorld, d Decision) {
	f := d.family(corev1.IPv4Protocol)
	seen := map[string]int{}
	for _, g := range w.groups {
		// An endpoint may return to a full group that still holds it.
		if len(g.Spec.Endpoints) > 2*s.in.Settings.GroupSize {
			s.t.Fatalf("%s has too many endpoints:\n%s", g.Name, w.text())
		}
		if m := g.Annotations[v1alpha1.AnnotationGroupMarks]; strings.Contains(m, `"leaving"`) || strings.Contains(m, `"narrowing"`) || !slices.Equal(g.Spec.Tiers, groups.Tiers(d.Request.Intent)) {
			s.t.Fatalf("%s is not settled: %s\n%s", g.Name, m, w.text())
		}
		read := groups.Assigned([]*v1alpha1.EndpointGroup{g}, corev1.IPv4Protocol)
		for i := range g.Spec.Endpoints {
			address := g.Spec.Endpoints[i].Address
			seen[address]++
			if set, ready := f.Assigned[address]; ready && set.String() != read[address].String() {
				s.t.Fatalf("%s is assigned to %s and in the group of %s:\n%s", address, set, read[address], w.text())
			}
		}
	}
	for _, e := range s.endpoints {
		if seen[e.address] != 1 {
			s.t.Fatalf("%+v is in %d groups:\n%s", *e, seen[e.address], w.text())
		}
	}
	if len(seen) != len(s.endpoints) {
		s.t.Fatalf("%d endpoints are in groups, there are %d:\n%s", len(seen), len(s.endpoints), w.text())
	}
	// Each zone sees a group, and the groups of all its own endpoints.
	for _, zone := range []string{"ea", "eb", "wc", "wd", "new"} {
		sees := false
		for _, g := range w.groups {
			hidden := slices.Contains(notFor(g), zone)
			sees = sees || !hidden
			for i := range g.Spec.Endpoints {
				if hidden && g.Spec.Endpoints[i].Zone == zone {
					s.t.Fatalf("zone %s does not see its own endpoints:\n%s", zone, w.text())
				}
			}
		}
		if !sees {
			s.t.Fatalf("zone %s sees no group:\n%s", zone, w.text())
		}
	}
}
