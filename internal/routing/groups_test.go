package routing

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/routing/groups"
	"vicinity.dev/vicinity/internal/routing/intent"
	"vicinity.dev/vicinity/internal/topology"
)

// groupedWorld returns a world with a Service that vicinity-proxy serves, and with numbers of nodes by zone.
func groupedWorld(t *testing.T, nodes map[string]int, eps []*discoveryv1.EndpointSlice, annotations ...string) *groupWorld {
	t.Helper()
	service := routedService(append(annotations, v1alpha1.AnnotationProxy, "true")...)
	service.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	return newGroupWorld(t, inputOf(service, nodesIn(nodes), eps))
}

// divideBy sets the algorithm by a policy.
func (w *groupWorld) divideBy(algorithm v1alpha1.Algorithm) {
	w.in.Service.Annotations, w.in.Policies = dividedBy(algorithm)
}

// dividedBy returns annotations for vicinity-proxy, and the policy that they name.
func dividedBy(algorithm v1alpha1.Algorithm) (annotations map[string]string, policies []*v1alpha1.RoutingPolicy) {
	policy := &v1alpha1.RoutingPolicy{Spec: v1alpha1.RoutingPolicySpec{Algorithm: algorithm}}
	policy.Namespace, policy.Name = "shop", "divided"
	return map[string]string{
		v1alpha1.AnnotationTopologyMode: "vicinity.dev/divided", v1alpha1.AnnotationProxy: "true",
	}, []*v1alpha1.RoutingPolicy{policy}
}

// expectGroups compares the groups with lines of text, without their names.
func (w *groupWorld) expectGroups(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for line := range strings.Lines(w.text()) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		got = append(got, rest)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

var threeZones = map[string]int{"a": 1, "b": 1, "c": 1}

func TestGroups(t *testing.T) {
	for _, test := range []struct {
		name        string
		nodes       map[string]int
		slices      []string
		annotations []string
		algorithm   v1alpha1.Algorithm // instead of the default
		want        []string
	}{
		{
			name: "balanced", nodes: threeZones, slices: []string{"a b b!"},
			want: []string{"IPv4 a1 b2 b3! -> a b c"},
		},
		{
			name: "required", nodes: threeZones, slices: []string{"a b b"},
			annotations: []string{v1alpha1.AnnotationSameZone, v1alpha1.Require},
			want: []string{
				"IPv4 a1 -> a not b c tiers topology.kubernetes.io/zone",
				"IPv4 b2 b3 -> b not a c tiers topology.kubernetes.io/zone",
				"IPv4 -> c not a b tiers topology.kubernetes.io/zone",
			},
		},
		{
			name: "given away", nodes: map[string]int{"a": 1, "b": 3}, slices: []string{"a a a a a a b b b b b b"},
			annotations: []string{v1alpha1.AnnotationSameZone, v1alpha1.Prefer},
			algorithm:   "optimal",
			want: []string{
				"IPv4 a1 a2 a3 -> a not b",
				"IPv4 a4 a5 a6 -> b local",
				"IPv4 b10 b11 b12 b7 b8 b9 -> b not a",
			},
		},
		{
			name: "shared by weights", nodes: map[string]int{"a": 1, "b": 3}, slices: []string{"a a a a a a b b b b b b"},
			annotations: []string{v1alpha1.AnnotationSameZone, v1alpha1.Prefer},
			want: []string{
				"IPv4 a1 a2 a3 a4 a5 a6 -> a b*500",
				"IPv4 b10 b11 b12 b7 b8 b9 -> b not a",
			},
		},
		{
			name: "fewer endpoints than zones", nodes: threeZones, slices: []string{"a b"},
			annotations: []string{v1alpha1.AnnotationSameZone, v1alpha1.Prefer},
			want:        []string{"IPv4 a1 -> a c not b", "IPv4 b2 -> b c not a"},
		},
		{
			name: "no endpoints", nodes: threeZones, slices: []string{""},
			want: []string{"IPv4 -> a b c none-ready"},
		},
		{
			name: "no endpoint is ready", nodes: threeZones, slices: []string{"a! b-"},
			annotations: []string{v1alpha1.AnnotationSameZone, v1alpha1.Require},
			want: []string{
				"IPv4 a1! -> a b c tiers topology.kubernetes.io/zone none-ready",
				"IPv4 b2! -> a b c tiers topology.kubernetes.io/zone none-ready",
			},
		},
		{
			name: "keys", nodes: threeZones, slices: []string{"a b"},
			annotations: []string{v1alpha1.AnnotationTopologyKeys, "rack,*"},
			want:        []string{"IPv4 a1 b2 -> a b c tiers rack,*"},
		},
		{
			name: "finer than the bound", nodes: threeZones, slices: []string{"a b c"},
			annotations: []string{"endpointslice.kubernetes.io/same-node", v1alpha1.Prefer, v1alpha1.AnnotationSameZone, v1alpha1.Prefer},
			want: []string{
				"IPv4 a1 -> a not b c tiers kubernetes.io/hostname,*",
				"IPv4 b2 -> b not a c tiers kubernetes.io/hostname,*",
				"IPv4 c3 -> c not a b tiers kubernetes.io/hostname,*",
			},
		},
		{
			name: "an endpoint without a zone", nodes: threeZones, slices: []string{"a ?"},
			annotations: []string{v1alpha1.AnnotationSameZone, v1alpha1.Require},
			want: []string{
				"IPv4 a1 -> a not b c tiers topology.kubernetes.io/zone",
				"IPv4 2 -> not a b c tiers topology.kubernetes.io/zone",
				"IPv4 -> b c not a tiers topology.kubernetes.io/zone",
			},
		},
		{
			name: "several slices", nodes: threeZones, slices: []string{"a b", "a"},
			want: []string{"IPv4 a1 b2 a3 -> a b c"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := groupedWorld(t, test.nodes, slicesOf(test.slices...), test.annotations...)
			if test.algorithm != "" {
				w.divideBy(test.algorithm)
			}
			w.settle(w.decide(), GroupState{})
			w.expectGroups(t, test.want...)
			for _, g := range w.groups {
				if o := metav1.GetControllerOf(g); o == nil || o.Kind != "Service" || o.Name != "web" || o.UID != "uid" || *o.BlockOwnerDeletion ||
					g.Labels[v1alpha1.LabelService] != "web" || g.Namespace != "shop" || g.GenerateName != "web-" {
					t.Errorf("metadata: %+v", g.ObjectMeta)
				}
			}
		})
	}
}

// Groups have the endpoints of foreign slices, too, even a pod of another namespace.
func TestEndpointsByHandAreInGroups(t *testing.T) {
	eps := slicesOf("a b")
	delete(eps[0].Labels, discoveryv1.LabelManagedBy)
	eps[0].Endpoints[0].TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: "bank", Name: "accounts"}
	w := groupedWorld(t, threeZones, eps)
	w.settle(w.decide(), GroupState{})
	w.expectGroups(t, "IPv4 a1 b2 -> a b c")
	for _, group := range w.groups {
		if group.Namespace != "shop" || group.Spec.Service != "web" {
			t.Errorf("group %s/%s is of Service %s", group.Namespace, group.Name, group.Spec.Service)
		}
	}
}

func TestGroupsAreFilled(t *testing.T) {
	for _, test := range []struct{ size, endpoints, groups int }{{0, 250, 3}, {100, 200, 2}, {7, 22, 4}, {5000, 1500, 2}} {
		w := groupedWorld(t, threeZones, slicesOf(strings.Repeat("a ", test.endpoints)))
		w.in.Settings.GroupSize = test.size
		w.settle(w.decide(), GroupState{})
		if len(w.groups) != test.groups || w.writes != test.groups {
			t.Errorf("size %d: %d groups by %d writes for %d endpoints, want %d", test.size, len(w.groups), w.writes, test.endpoints, test.groups)
		}
	}
}

// The number of writes in the life of a pod is limited.
func TestGroupWritesForAPod(t *testing.T) {
	w := groupedWorld(t, threeZones, slicesOf("a a a a b b b b c c c c", ""))
	w.divideBy("optimal")
	w.settle(w.decide(), GroupState{})
	w.expectGroups(t,
		"IPv4 a1 a2 a3 a4 -> a not b c", "IPv4 b5 b6 b7 b8 -> b not a c", "IPv4 c10 c11 c12 c9 -> c not a b")
	for _, event := range []struct{ name, slice string }{
		{"created", "a!"}, {"ready", "a"}, {"not ready", "a!"}, {"ready again", "a"}, {"terminating", "a-"}, {"gone", ""},
	} {
		w.in.Slices[1].Endpoints = endpointsIn(12, event.slice)
		before := w.writes
		w.settle(w.decide(), GroupState{})
		if n := w.writes - before; n != 1 {
			t.Errorf("%s: %d writes, want 1:\n%s", event.name, n, w.text())
		}
	}
	before := w.writes
	w.settle(w.decide(), GroupState{})
	if w.writes != before {
		t.Errorf("%d writes though nothing changed", w.writes-before)
	}
}

// Zones keep endpoints for the grace period when a requirement replaces balanced routing, and gain them at once on the
// way back.
func TestGroupsHoldRemovedEndpoints(t *testing.T) {
	w := groupedWorld(t, map[string]int{"a": 1, "b": 1}, slicesOf("a b"))
	w.settle(w.decide(), GroupState{})
	balanced := w.in.Service
	w.in.Service = balanced.DeepCopy()
	w.in.Service.Annotations[v1alpha1.AnnotationSameZone] = v1alpha1.Require
	d := w.decide()
	if _, after := w.sync(d); after != 10*time.Second {
		t.Errorf("look again after %s, want the grace", after)
	}
	held := []string{
		"IPv4 a1 b2 -> a b tiers topology.kubernetes.io/zone,*",
		"IPv4 b2 -> b not a tiers topology.kubernetes.io/zone",
	}
	w.expectGroups(t, held...)
	w.now = w.now.Add(9 * time.Second)
	if writes, after := w.sync(d); writes != 0 || after != time.Second {
		t.Errorf("%d writes in the grace, look again after %s", writes, after)
	}
	w.now = w.now.Add(time.Second)
	// A restarted controller reads the start of the hold from the groups.
	w.in.Last = nil
	if writes, after := w.sync(d); writes == 0 || after != 0 {
		t.Errorf("%d writes after the grace, look again after %s", writes, after)
	}
	w.expectGroups(t,
		"IPv4 a1 -> a not b tiers topology.kubernetes.io/zone",
		"IPv4 b2 -> b not a tiers topology.kubernetes.io/zone")

	w.in.Service = balanced
	w.settle(w.decide(), GroupState{})
	w.expectGroups(t, "IPv4 a1 -> a b", "IPv4 b2 -> a b")
}

func TestGroupPorts(t *testing.T) {
	eps := slicesOf("a b", "c")
	eps[1].Ports = []discoveryv1.EndpointPort{
		{Name: new("metrics"), Port: new(int32(9090)), Protocol: new(corev1.ProtocolUDP)},
		{Name: new("http"), Port: new(int32(8080))},
		{Name: new("any")},
	}
	w := groupedWorld(t, threeZones, eps)
	changes := w.step(w.decide(), GroupState{}, 100)
	var ports []string
	for _, g := range w.groups {
		ports = append(ports, fmt.Sprintf("%d endpoints: %v", len(g.Spec.Endpoints), g.Spec.Ports))
	}
	slices.Sort(ports)
	want := []string{"1 endpoints: [{http TCP 8080} {metrics UDP 9090}]", "2 endpoints: [{http TCP 80}]"}
	if !slices.Equal(ports, want) {
		t.Errorf("got %q, want %q", ports, want)
	}
	if len(changes.Notes) != 1 || !strings.Contains(changes.Notes[0], `"any"`) {
		t.Errorf("notes: %q", changes.Notes)
	}

	// A new port number costs one write for each group.
	eps = slicesOf("a b", "c")
	eps[0].Ports[0].Port = new(int32(81))
	w = groupedWorld(t, threeZones, slicesOf("a b", "c"))
	w.settle(w.decide(), GroupState{})
	eps[1].Ports = eps[0].Ports
	w.in.Slices = eps
	before := w.writes
	w.settle(w.decide(), GroupState{})
	if n := w.writes - before; n != 1 {
		t.Errorf("%d writes for another port:\n%s", n, w.text())
	}
}

// Every zone reaches every port, even if the endpoints of one zone lack a port.
func TestGroupsReachEveryPort(t *testing.T) {
	eps := slicesOf("a a a a a a", "b b b b b b")
	eps[1].Ports = append(eps[1].Ports, discoveryv1.EndpointPort{Name: new("odd"), Port: new(int32(81))})
	w := groupedWorld(t, map[string]int{"a": 1, "b": 1}, eps, v1alpha1.AnnotationSameZone, v1alpha1.Prefer)
	d := w.decide()
	w.settle(d, GroupState{})
	odd := reader{corev1.IPv4Protocol, "odd", topology.Labels{topology.Zone: "a"}}
	if n := len(odd.used(w.groups, true)); n != 6 {
		t.Errorf("zone a has %d endpoints for the port, want 6:\n%s", n, w.text())
	}
	if read := groups.Assigned(w.input().Groups, corev1.IPv4Protocol); !reflect.DeepEqual(read, d.Families[0].Assigned) {
		t.Errorf("read back as %v", read)
	}
}

func TestGroupsCarryConditionsAndDomains(t *testing.T) {
	eps := slicesOf("a a- a!", "a?")
	eps[0].Endpoints[1].Conditions.Serving = new(true)
	eps[0].Endpoints[2].Conditions.Serving = new(false)
	eps[1].Endpoints = []discoveryv1.Endpoint{
		{Addresses: []string{"10.9.0.1"}, NodeName: new("n"), Zone: new("a")},
		{Addresses: []string{"10.9.0.2"}, Zone: new("a")},
		// Another pod has the address now.
		{Addresses: eps[0].Endpoints[1].Addresses, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}, NodeName: new("a-1"), Zone: new("a")},
	}
	w := groupedWorld(t, threeZones, eps, v1alpha1.AnnotationTopologyKeys, "kubernetes.io/hostname,rack,topology.kubernetes.io/zone,topology.kubernetes.io/region,*")
	w.in.Cluster = intent.NewCluster([]*corev1.Node{
		testNode{name: "a-1", zone: "a", region: "r", labels: map[string]string{"rack": "r1", "other": "o"}}.object(),
		testNode{name: "n", zone: "b", labels: map[string]string{topology.Hostname: "host"}}.object(),
	})
	w.settle(w.decide(), GroupState{})
	got := map[string]v1alpha1.GroupEndpoint{}
	for _, g := range w.groups {
		for _, e := range g.Spec.Endpoints {
			got[e.Address] = e
		}
	}
	a := map[string]string{"rack": "r1", topology.Region: "r"}
	want := map[string]v1alpha1.GroupEndpoint{
		"10.1.0.1": {Address: "10.1.0.1", Zone: "a", Node: "a-1", Domains: a},
		"10.1.0.2": {Address: "10.1.0.2", Zone: "a", Node: "a-1", Domains: a},
		"10.1.0.3": {Address: "10.1.0.3", Zone: "a", Node: "a-1", NotReady: true, NotServing: true, Domains: a},
		// The zone of a node takes precedence over the zone in slices.
		"10.9.0.1": {Address: "10.9.0.1", Zone: "b", Node: "n", Domains: map[string]string{topology.Hostname: "host"}},
		// The node is unknown, so the zone gives the region.
		"10.9.0.2": {Address: "10.9.0.2", Zone: "a", Domains: map[string]string{topology.Region: "r"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}

func TestGroupsOfFamilies(t *testing.T) {
	eps := slicesOf("a b", "a")
	eps[1].AddressType = discoveryv1.AddressTypeIPv6
	eps[1].Endpoints[0].Addresses = []string{"fd00::1"}
	names := slicesOf("a")[0]
	names.Name, names.AddressType = "web-names", discoveryv1.AddressTypeFQDN
	names.Endpoints[0].Addresses = []string{"web.example.com"}
	w := groupedWorld(t, threeZones, append(eps, names))
	w.in.Service.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	d := w.decide()
	changes := w.step(d, GroupState{}, 100)
	w.expectGroups(t, "IPv4 a1 b2 -> a b c", "IPv6 a1 -> a b c")
	if len(d.Notes) != 1 || !strings.Contains(d.Notes[0], "FQDN") || len(changes.Notes) > 0 {
		t.Errorf("notes: %q and %q", d.Notes, changes.Notes)
	}
	// A family without slices has a group as long as the Service has the family.
	w.in.Slices = eps[:1]
	w.settle(w.decide(), GroupState{})
	w.expectGroups(t, "IPv4 a1 b2 -> a b c", "IPv6 -> none-ready")
	w.in.Service.Spec.IPFamilies = w.in.Service.Spec.IPFamilies[:1]
	w.settle(w.decide(), GroupState{})
	w.expectGroups(t, "IPv4 a1 b2 -> a b c")
}

// Proxies ignore a slice with the label of headless Services, of any writer.
func TestGroupsWithoutSlicesForNames(t *testing.T) {
	eps := slicesOf("a b", "c")
	eps[1].Labels[corev1.IsHeadlessService] = ""
	w := groupedWorld(t, threeZones, eps, v1alpha1.AnnotationSameZone, v1alpha1.Prefer)
	w.settle(w.decide(), GroupState{})
	w.expectGroups(t, "IPv4 a1 -> a c not b", "IPv4 b2 -> b c not a")
	eps[0].Labels[corev1.IsHeadlessService] = ""
	w.settle(w.decide(), GroupState{})
	w.expectGroups(t, "IPv4 -> a b c none-ready")
	if len(eps[0].Endpoints) != 2 {
		t.Errorf("a slice was changed: it has %d endpoints", len(eps[0].Endpoints))
	}
}

// New weights change existing groups: a group is written only if its weights or endpoints change, and no endpoint moves.
func TestGroupsOfFlow(t *testing.T) {
	w := groupedWorld(t, threeZones, slicesOf("a a a a a a b b b b c c"), v1alpha1.AnnotationSameZone, v1alpha1.Prefer)
	w.settle(w.decide(), GroupState{})
	w.expectGroups(t, "IPv4 a1 a2 a3 a4 a5 a6 -> a c*333 not b", "IPv4 b10 b7 b8 b9 -> b not a c", "IPv4 c11 c12 -> c not a b")
	for _, event := range []struct {
		name, slice string
		writes      int
	}{
		{"nothing", "a a a a a a b b b b c c", 0},
		// Like c, b has too few endpoints now, so it uses endpoints of a.
		{"two endpoints go", "a a a a a a! b b b b! c c", 2},
		// b keeps them for the grace period.
		{"they come back", "a a a a a a b b b b c c", 3},
	} {
		w.in.Slices[0].Endpoints = endpointsIn(0, event.slice)
		before := w.writes
		d := w.decide()
		w.settle(d, GroupState{})
		if n := w.writes - before; n > event.writes || d.Families[0].Moved > 0 {
			t.Errorf("%s: %d writes, want at most %d, and %d moved:\n%s", event.name, n, event.writes, d.Families[0].Moved, w.text())
		}
		w.in.Last = d.Essence()
	}
	// A restarted controller reads weights in thousandths. The plan stays.
	before := w.writes
	w.in.Last = nil
	w.in.Service.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionTopologyRouting, Reason: "Allocated"}}
	w.settle(w.decide(), GroupState{})
	if w.writes != before {
		t.Errorf("a restart writes:\n%s", w.text())
	}
}

func TestGroupsHandOverLabel(t *testing.T) {
	w := groupedWorld(t, threeZones, slicesOf("a b"))
	d := w.decide()
	labelled := func() (n int) {
		for _, g := range w.groups {
			if g.Labels[v1alpha1.LabelHandOver] == "true" {
				n++
			}
		}
		return n
	}
	w.settle(d, GroupState{HandOver: true})
	if labelled() != 1 {
		t.Errorf("not labelled:\n%s", w.text())
	}
	w.settle(d, GroupState{})
	if labelled() != 0 || w.writes != 2 {
		t.Errorf("%d are labelled after %d writes", labelled(), w.writes)
	}
}

// Groups have the time of the last change of endpoints that caused their write, and of no other change.
func TestGroupsHaveTriggerTime(t *testing.T) {
	const key = corev1.EndpointsLastChangeTriggerTime
	w := groupedWorld(t, threeZones, slicesOf("a b c", "a b c"), v1alpha1.AnnotationSameZone, v1alpha1.Require)
	// changeAt changes a slice some seconds from now. want has the number of groups for each trigger time.
	changeAt := func(slice int, seconds float64, want map[float64]int) {
		t.Helper()
		at := func(seconds float64) string {
			return w.now.Add(time.Duration(seconds * float64(time.Second))).UTC().Format(time.RFC3339Nano)
		}
		w.in.Slices[slice].Annotations = map[string]string{key: at(seconds)}
		w.sync(w.decide())
		got := map[string]int{}
		for _, g := range w.groups {
			got[g.Annotations[key]]++
		}
		for seconds, n := range want {
			if got[at(seconds)] != n || len(got) != len(want) {
				t.Errorf("%v, want %v", got, want)
			}
		}
	}
	changeAt(0, -2, map[float64]int{-2: 3})
	changeAt(1, -1.5, map[float64]int{-2: 3}) // groups stay the same
	// The second endpoint of slice 0 is in zone b.
	w.in.Slices[0].Endpoints[1].Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(false)}
	changeAt(0, 0.25, map[float64]int{-2: 2, 0.25: 1})
}
