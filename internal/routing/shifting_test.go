package routing

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/routing/groups"
	"vicinity.dev/vicinity/internal/routing/hints"
	"vicinity.dev/vicinity/internal/routing/intent"
	"vicinity.dev/vicinity/internal/routing/stock"
	"vicinity.dev/vicinity/internal/shift"
	"vicinity.dev/vicinity/internal/topology"
)

func shiftOfZone(zone string) []shift.Shift {
	return []shift.Shift{{Name: "a", Key: topology.Zone, Value: zone, MaxOverload: 50}}
}

func TestHintsOfAShift(t *testing.T) {
	headless := func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }
	for _, test := range []struct {
		name, endpoints string
		annotations     []string
		change          func(*corev1.Service)
		slice           func(*discoveryv1.EndpointSlice)
		shifts          []shift.Shift
		nodes           map[string]int
		want            string // hints, "out" for no zone, empty without a plan
		stays           string
		yields          bool
		quiet           bool // no condition is written
	}{
		{name: "without intent", quiet: true, endpoints: "a b c", want: "out a+b+c a+b+c"},
		{name: "not ready", endpoints: "a a! b b! c", want: "out out a+b+c b a+b+c"},
		{name: "near", endpoints: "a a b b b b c c c c", annotations: []string{sameZone, v1alpha1.Prefer}, want: "out out a+b a+b a+b a+b a+c a+c a+c a+c"},
		{name: "label of Gardener", endpoints: "a b c", change: func(s *corev1.Service) { s.Labels = map[string]string{v1alpha1.LabelOwnZone: "true"} }, want: "out a+b a+c"},
		{name: "same node", endpoints: "a b c", annotations: []string{v1alpha1.AnnotationSameNode, v1alpha1.Prefer}, want: "out a+b+c/b-1 a+b+c/c-1"},
		{name: "traffic distribution", quiet: true, endpoints: "a b c", change: func(s *corev1.Service) { s.Spec.TrafficDistribution = new("PreferSameZone") }, want: "out a+b a+c"},
		{name: "Auto of Kubernetes", quiet: true, endpoints: "a b c", annotations: []string{mode, "Auto"}, want: "out a+b+c a+b+c"},
		{name: "hard key, by hints", endpoints: "a b c", annotations: []string{sameZone, v1alpha1.Require}, want: "out a+b+c a+b+c"},
		{
			name: "external traffic policy", endpoints: "a b c", change: func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }, want: "out a+b+c a+b+c",
			stays: "externalTrafficPolicy: Local: connections from outside the cluster still end on the node that they reach; others move",
		},
		{
			name: "near, too few left", endpoints: "a a a@a-2 b b b c c c", change: func(s *corev1.Service) { s.Spec.TrafficDistribution = new("PreferSameZone") },
			shifts: []shift.Shift{{Key: topology.Hostname, Value: "a-1", MaxOverload: 50}}, yields: true,
		},
		{name: "near by a plan", endpoints: "a a a@a-2 b b b c c c", annotations: []string{sameZone, v1alpha1.Prefer}, shifts: []shift.Shift{{Key: topology.Hostname, Value: "a-1", MaxOverload: 50}}, want: "out out a a+b a+b a+b a+c a+c a+c"},
		{name: "no endpoint ready", endpoints: "a! b! c!"},
		{name: "no endpoint ready any more", endpoints: "a! b! c!", change: func(s *corev1.Service) { s.Labels = map[string]string{v1alpha1.LabelRouted: "true"} }, want: "out b c"},
		{
			name: "near, and local", endpoints: "a a a@a-2 b", shifts: []shift.Shift{{Key: topology.Hostname, Value: "a-1", MaxOverload: 50}},
			change: func(s *corev1.Service) {
				s.Spec.TrafficDistribution, s.Spec.InternalTrafficPolicy = new("PreferSameZone"), new(corev1.ServiceInternalTrafficPolicyLocal)
			},
			stays: "internalTrafficPolicy: Local: each node uses its own endpoints only, so there is nothing to divide",
		},
		{
			name: "near by name, which DNS ignores", endpoints: "a a a@a-2 b b c c c", shifts: []shift.Shift{{Key: topology.Hostname, Value: "a-1", MaxOverload: 50}},
			change: func(s *corev1.Service) { headless(s); s.Spec.TrafficDistribution = new("PreferSameZone") }, want: "- - - - - - - -",
		},
		{
			name: "required region, by hints", endpoints: "ea eb wa", nodes: map[string]int{"ea": 1, "eb": 1, "wa": 1}, annotations: []string{v1alpha1.AnnotationSameRegion, v1alpha1.Require},
			shifts: shiftOfZone("ea"), want: "out ea+eb+wa ea+eb+wa",
		},
		{name: "no endpoint inside", endpoints: "b c"},
		{name: "only inside", endpoints: "a a", stays: "all its ready endpoints are in the domain"},
		{name: "at the bound", endpoints: "a b c", want: "out a+b+c a+b+c"},
		{name: "beyond the bound", endpoints: "a a b b c", yields: true},
		{name: "a higher bound", endpoints: "a a b b c", shifts: []shift.Shift{{Key: topology.Zone, Value: "a", MaxOverload: 67}}, want: "out out a+b+c a+b+c a+b+c"},
		{
			name: "internal traffic policy", endpoints: "a b c", change: func(s *corev1.Service) { s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal) },
			stays: "internalTrafficPolicy: Local: each node uses its own endpoints only, so there is nothing to divide",
		},
		{
			name: "written by hand", endpoints: "a b c", slice: func(s *discoveryv1.EndpointSlice) { delete(s.Labels, discoveryv1.LabelManagedBy) },
			stays: "EndpointSlice web-00 is not written by Kubernetes' own controller",
		},
		{
			name: "another proxy", endpoints: "a b c", change: func(s *corev1.Service) { s.Labels = map[string]string{v1alpha1.LabelServiceProxyName: "other"} },
			stays: `label service.kubernetes.io/service-proxy-name gives the Service to "other"`,
		},
		{
			name: "headless, with members", endpoints: "a b c", change: func(s *corev1.Service) { headless(s); s.Spec.PublishNotReadyAddresses = true },
			stays: "its members may find each other by its name, since publishNotReadyAddresses is true",
		},
		{name: "a rack", endpoints: "a b@b-2 c", shifts: []shift.Shift{{Key: topology.Hostname, Value: "b-2", MaxOverload: 50}}, want: "a+b+c out a+b+c"},
		{name: "two domains", endpoints: "a b c d d d", nodes: map[string]int{"a": 1, "b": 1, "c": 1, "d": 1}, shifts: append(shiftOfZone("a"), shiftOfZone("b")...), want: "out out a+b+c+d a+b+c+d a+b+c+d a+b+c+d"},
		{
			name: "the bound of another domain", endpoints: "a b", want: "out a+b+c",
			shifts: []shift.Shift{{Key: topology.Zone, Value: "a", MaxOverload: 100}, {Key: topology.Zone, Value: "c", MaxOverload: 1}},
		},
		{
			name: "the name for no zone", endpoints: "a b b", nodes: map[string]int{"a": 1, "b": 1, hints.NoZone: 1},
			stays: "a zone has the name no-zone.vicinity.dev, by which hints name no zone",
		},
		{name: "nine zones, few endpoints", endpoints: "a b c d", nodes: map[string]int{"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1, "g": 1, "h": 1, "i": 1}, yields: true},
		{name: "returning", endpoints: "a b c", shifts: []shift.Shift{{Key: topology.Zone, Value: "a", MaxOverload: 50, Weight: 0.5, Returning: true}}},
		{
			name: "nine zones", endpoints: "a b c d e f g h i", nodes: map[string]int{"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1, "g": 1, "h": 1, "i": 1},
			want: "out a+c+e+g+i a+c+e+g+i a+c+e+g+i a+c+e+g+i b+d+f+h b+d+f+h b+d+f+h b+d+f+h",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			service := routedService(test.annotations...)
			if test.change != nil {
				test.change(service)
			}
			nodes := test.nodes
			if nodes == nil {
				nodes = map[string]int{"a": 2, "b": 2, "c": 2}
			}
			in := inputOf(service, nodesIn(nodes), slicesOf(test.endpoints))
			if test.slice != nil {
				test.slice(in.Slices[0])
			}
			if in.Shifts = test.shifts; in.Shifts == nil {
				in.Shifts = shiftOfZone("a")
			}
			d := mustDecide(t, in)
			got := ""
			if d.Shifting.Moves {
				got = strings.ReplaceAll(hintText(in.Slices, d), hints.NoZone+"/"+hints.NoNode, "out")
			}
			if got != test.want || d.Shifting.Stays != test.stays || d.Shifting.Yields != test.yields || !test.yields && d.Shifting.Near != "" {
				t.Errorf("hints %q: %+v", got, d.Shifting)
			}
			if test.quiet && d.IsReported() {
				t.Errorf("a condition is written to a Service that asks for nothing: %+v", d.Condition())
			}
		})
	}
}

// Each port leaves, stays and yields by its own endpoints.
func TestPortsOfAShift(t *testing.T) {
	for _, test := range []struct {
		metrics string // endpoints of another port, besides a b b c c
		stays   string
		yields  bool
	}{
		{metrics: "a b b"}, {metrics: "b"}, {metrics: "a a b", yields: true}, {metrics: "a", stays: "all its ready endpoints are in the domain"},
	} {
		in := inputOf(routedService(), nodesIn(map[string]int{"a": 1, "b": 1, "c": 1}), slicesOf("a b b c c", test.metrics))
		in.Slices[1].Ports = []discoveryv1.EndpointPort{{Name: new("metrics"), Port: new(int32(9090))}}
		in.Shifts = shiftOfZone("a")
		if s := mustDecide(t, in).Shifting; s.Stays != test.stays || s.Yields != test.yields {
			t.Errorf("metrics %s: %+v", test.metrics, s)
		}
	}
}

// During a shift no stock proxy on a node with a zone uses an endpoint in the domain, and none is left without an endpoint.
func TestShiftsAreComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newHintScene(t)
		for range rapid.IntRange(1, 30).Draw(t, "changes") {
			s.changeOne()
		}
		service := s.in.Service.DeepCopy()
		delete(service.Annotations, v1alpha1.AnnotationProxy)
		delete(service.Labels, v1alpha1.LabelServiceProxyName)
		if rapid.Bool().Draw(t, "own zone") {
			service.Labels[v1alpha1.LabelOwnZone], service.Annotations = "true", nil
		}
		s.in.Service, s.in.Groups, s.in.Last = service, nil, nil
		for _, slice := range s.in.Slices {
			slice.Labels[discoveryv1.LabelManagedBy] = v1alpha1.ManagedByKubernetes
		}
		if rapid.Bool().Draw(t, "two ports") {
			s.in.Slices[1].Ports[0].Name = new("metrics")
		}
		s.in.Shifts = []shift.Shift{{Key: topology.Zone, Value: "ea", MaxOverload: 100000}}
		d := mustDecide(t, s.in)
		if !d.Shifting.Moves {
			return
		}
		eps := s.in.Slices
		for range 10 {
			step := d.Hints().Next(eps, false)
			if len(step.Writes) == 0 {
				break
			}
			eps = applyStep(eps, step)
		}
		usable := map[string]bool{}
		for _, list := range intent.SliceEndpoints(eps, s.in.Cluster) {
			for _, e := range list {
				usable[e.Address] = e.Zone != "ea"
			}
		}
		for _, node := range s.nodes {
			if node.Labels[topology.Zone] == "" {
				continue
			}
			for _, port := range stock.Ports(eps) {
				used := port.Index().Choose(node.Name, node.Labels[topology.Zone]).Endpoints
				if len(used) == 0 && len(port.Endpoints) > 0 && hasUsable(port, usable) {
					t.Fatalf("node %s uses no endpoint", node.Name)
				}
				for _, e := range used {
					if !usable[e.Address] && hasUsable(port, usable) {
						t.Fatalf("node %s uses %s, which leaves: %s", node.Name, e.Address, strings.Join(hintWords(eps[0].Endpoints), " "))
					}
				}
			}
		}
		// Without the shift, nothing of it is left where Vicinity writes hints.
		s.in.Slices, s.in.Shifts = eps, nil
		if d = mustDecide(t, s.in); d.Hints() == nil {
			return
		}
		for _, slice := range applyStep(eps, d.Hints().Next(eps, false)) {
			for i := range slice.Endpoints {
				e := &slice.Endpoints[i]
				if conditions := e.Conditions; conditions.Terminating != nil && *conditions.Terminating || slices.Contains(slice.Endpoints[i].Addresses, "") {
					continue
				}
				if e.Hints != nil && d.Request.OwnZone && len(e.Hints.ForNodes) > 0 || slices.Contains(hints.Zones(e), hints.NoZone) && slice.Annotations[v1alpha1.AnnotationHeld] == "" {
					t.Fatalf("left of the shift: %s", strings.Join(hintWords(slice.Endpoints), " "))
				}
			}
		}
	})
}

func hasUsable(port stock.Port, usable map[string]bool) bool {
	for _, e := range port.Endpoints {
		if usable[e.Address] {
			return true
		}
	}
	return false
}

// Nodes that prefer their own endpoints do not break the bound of a shift.
func TestNodesWithinTheBoundOfAShift(t *testing.T) {
	for _, test := range []struct {
		delivery  v1alpha1.Delivery
		endpoints string
	}{
		{v1alpha1.DeliveryGroups, "a a a@a-2 a@a-2 b b b@b-2 b@b-2 b@b-3 c c c@c-2 c@c-2 c@c-3"},
		{v1alpha1.DeliveryHints, "a a a@a-2 a@a-2 b b b@b-2 b@b-2 b@b-3 c c c@c-2 c@c-2 c@c-3"},
		{v1alpha1.DeliveryGroups, "a a b c c c"}, // without room for nearness
		{v1alpha1.DeliveryHints, "a a b c c c"},
	} {
		p := &v1alpha1.RoutingPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "near"}}
		p.Spec = v1alpha1.RoutingPolicySpec{Selector: &metav1.LabelSelector{}, OverloadThreshold: "100%", Delivery: test.delivery, Keys: []string{topology.Hostname, topology.Zone, topology.Anywhere}}
		in := inputOf(routedService(), nodesIn(map[string]int{"a": 3, "b": 3, "c": 3}), slicesOf(test.endpoints))
		in.Policies, in.Shifts = []*v1alpha1.RoutingPolicy{p}, shiftOfZone("a")
		d := mustDecide(t, in)
		f := d.Families[0]
		all := float64(d.Shifting.Inside+d.Shifting.Outside) / float64(d.Shifting.Outside)
		if busiest := (1 + f.Outcome.Figures.Overload) * all; !d.Shifting.Moves || busiest > 1.5+tolerance {
			t.Errorf("%s of %s: the busiest endpoint gets %.2f times the even load of all endpoints, with a bound of 1.50", test.delivery, test.endpoints, busiest)
		}
		if skipped := f.Nodes != nil && len(f.Nodes.Skips) > 0; len(f.Endpoints) == 4 && test.delivery == v1alpha1.DeliveryGroups && !skipped {
			t.Error("without room, nodes prefer their own endpoints")
		}
	}
}

// Zones whose nodes do not count use no endpoint that leaves, either.
func TestShiftHidesGroups(t *testing.T) {
	m := testNode{name: "m-1", zone: "m"}.object()
	m.Status.Conditions = nil
	in := inputOf(routedService(v1alpha1.AnnotationProxy, "true"), append(nodesIn(map[string]int{"a": 1, "b": 1}), m), slicesOf("a b b"))
	in.Shifts = shiftOfZone("a")
	for _, group := range Groups(in, mustDecide(t, in), GroupState{}).Create {
		if hidden := group.Labels[v1alpha1.LabelNotForPrefix+"m"] != ""; hidden != (group.Spec.Endpoints[0].Zone == "a") {
			t.Errorf("the group of zone %s has the labels %v", group.Spec.Endpoints[0].Zone, group.Labels)
		}
	}
}

// Groups give endpoints that leave the share of a ramp, and none at its end.
func TestGroupsOfAShift(t *testing.T) {
	for _, test := range []struct {
		annotations []string
		weight      float64
		want        string
	}{
		{weight: 0.5, want: "a:500 b:500 c:500"},
		{weight: 0, want: ""},
		{annotations: []string{sameZone, v1alpha1.Prefer}, weight: 0.3, want: "a:300"},
	} {
		in := inputOf(routedService(append(test.annotations, v1alpha1.AnnotationProxy, "true")...), nodesIn(map[string]int{"a": 1, "b": 1, "c": 1}), slicesOf("a b b c c"))
		in.Shifts = shiftOfZone("a")
		in.Shifts[0].Weight = test.weight
		d := mustDecide(t, in)
		weights := map[string]string{}
		for _, group := range Groups(in, d, GroupState{}).Create {
			var words []string
			for _, c := range group.Spec.Consumers {
				words = append(words, fmt.Sprintf("%s:%d", c.Zone, c.Weight))
			}
			for _, e := range group.Spec.Endpoints {
				weights[e.Zone] = strings.Join(words, " ")
			}
		}
		if weights["a"] != test.want {
			t.Errorf("weight %g: zone a has the consumers %q, want %q; all: %v", test.weight, weights["a"], test.want, maps.Clone(weights))
		}
	}
}

// Groups that all zones see name the endpoints whose connections end, whether ready or not, as long as the shift lasts.
func TestGroupsOfADrain(t *testing.T) {
	w := groupedWorld(t, threeZones, slicesOf("a a! b b c c"), sameZone, v1alpha1.Prefer)
	settled := func(shifts ...shift.Shift) {
		w.in.Shifts = shifts
		w.settle(w.decide(), GroupState{HandOver: true})
	}
	out := shiftOfZone("a")[0]
	settled(out)
	before := strings.Split(strings.TrimSpace(w.text()), "\n")
	for i, line := range before {
		_, before[i], _ = strings.Cut(line, " ")
	}
	out.Drained = true
	settled(out)
	w.expectGroups(t, append(slices.Clone(before), "IPv4 -> drained 10.1.0.1 drained 10.1.0.2")...)
	w.in.Slices = slicesOf("a! a b b c c a")
	settled(out)
	if text := w.text(); !strings.Contains(text, "IPv4 -> drained 10.1.0.1 drained 10.1.0.2 drained 10.1.0.7\n") {
		t.Errorf("with another endpoint:\n%s", text)
	}
	w.in.Slices = slicesOf(strings.Repeat("a ", groups.MaxSize+1) + strings.Repeat("b ", 3*groups.MaxSize))
	settled(out)
	if drained := strings.Count(w.text(), " drained "); drained != groups.MaxSize+1 {
		t.Errorf("%d endpoints are drained:\n%s", drained, w.text())
	}
	settled()
	if text := w.text(); strings.Contains(text, "drained") {
		t.Errorf("after the shift:\n%s", text)
	}
	out.MaxOverload = 1
	settled(out)
	if text := w.text(); strings.Contains(text, "drained") {
		t.Errorf("a Service that yields:\n%s", text)
	}
}
