package routing

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/routing/hints"
)

const (
	sameZone = v1alpha1.AnnotationSameZone
	keys     = v1alpha1.AnnotationTopologyKeys
	mode     = v1alpha1.AnnotationTopologyMode
)

func TestDecideHints(t *testing.T) {
	three := nodesIn(map[string]int{"a": 2, "b": 2, "c": 2})
	preferNode := func(s *corev1.Service) *corev1.Service {
		s.Annotations[v1alpha1.AnnotationSameNode] = v1alpha1.Prefer
		return s
	}
	rack := func(name, zone, value string) *corev1.Node {
		return testNode{name: name, zone: zone, region: "r", labels: map[string]string{"example.com/rack": value}}.object()
	}
	for _, test := range []struct {
		name    string
		service *corev1.Service
		nodes   []*corev1.Node
		slices  []*discoveryv1.EndpointSlice
		// state is the reason of the previous condition, "" without one.
		state    string
		takeOver bool
		delivery allocate.Delivery
		want     string
		// note is part of a note, "" if there must be none.
		note string
	}{
		{
			name: "Prefer, even", service: routedService(sameZone, "Prefer"), nodes: three,
			slices: slicesOf("a a a a b b b b c c c c"), delivery: allocate.DeliveryHints,
			want: "a a a a b b b b c c c c",
		},
		{
			name: "Prefer, too few endpoints to start for local", service: routedService(mode, "vicinity.dev/local"), nodes: three,
			slices: slicesOf("a a a b b b c c c"), delivery: allocate.DeliveryHints,
			want: "- - - - - - - - -",
		},
		{
			name: "Prefer, 4 4 3 on equal zones stays in zone", service: routedService(sameZone, "Prefer"), nodes: three,
			slices: slicesOf("a a a a b b b b c c c"), state: "Allocated", delivery: allocate.DeliveryHints,
			want: "a a a a b b b b c c c",
		},
		{
			name: "Prefer, the excess goes to others", service: routedService(sameZone, "Prefer"), nodes: three,
			slices: slicesOf("a a a a a a b b b b c c"), delivery: allocate.DeliveryHints,
			want: "a a a a c c b b b b c c",
		},
		{
			name: "hints of endpoints that are not ready", service: routedService(sameZone, "Prefer"), nodes: three,
			slices: slicesOf("a a a a b b b b c c c c a! b!=c c-=a ?!"), delivery: allocate.DeliveryHints,
			want: "a a a a b b b b c c c c a c a -",
		},
		{
			name: "balanced takes the hints of endpoints that are not ready, too", service: routedService(mode, "vicinity.dev/local"), nodes: three,
			slices: slicesOf("a=a b=b c!=c c-=c"), delivery: allocate.DeliveryHints,
			want: "- - - c",
		},
		{
			name: "balanced against Kubernetes' own hints", service: routedService(sameZone, "Balanced", mode, "Auto"), nodes: three,
			slices: slicesOf("a=a b=b c=c"), delivery: allocate.DeliveryHints, want: "- - -",
		},
		{
			name: "nothing asked for leaves the hints of others", service: routedService(), nodes: three,
			slices: slicesOf("a=b"), delivery: allocate.DeliveryNone, want: "b",
		},
		{
			name: "Auto is Kubernetes' own", service: routedService(mode, "Auto"), nodes: three,
			slices: slicesOf("a=a b=c c=b"), delivery: allocate.DeliveryNone, want: "a c b",
		},
		{
			name: "Auto taken over, with enough", service: routedService(mode, "Auto"), nodes: three, takeOver: true,
			slices: slicesOf("a a b b c c"), delivery: allocate.DeliveryHints, want: "a a b b c c",
		},
		{
			name: "soft tiers: a zone without endpoints uses its region, then all", nodes: nodesIn(map[string]int{"n1": 1, "n2": 1, "s1": 1, "s2": 1, "w1": 1}),
			service: routedService(keys, "topology.kubernetes.io/zone,topology.kubernetes.io/region,*"),
			slices:  slicesOf("n1 s1 s2"), delivery: allocate.DeliveryHints,
			want: "n1+n2+w1 s1+w1 s2+w1",
		},
		{
			name: "soft tiers: more zones than an endpoint can be hinted to", nodes: nodesIn(map[string]int{"n1": 1, "n2": 1, "n9": 1, "s1": 1, "s2": 1, "s3": 1, "s4": 1, "s5": 1, "s6": 1, "s7": 1}),
			service: routedService(keys, "topology.kubernetes.io/zone,*"),
			slices:  slicesOf("n9 s1"), delivery: allocate.DeliveryHints,
			want: "n1+n2+n9+s2+s3+s4+s5+s6 n1+s1+s2+s3+s4+s5+s6+s7",
			note: "other zones use all endpoints",
		},
		{
			name: "a plan in which all zones share all endpoints needs no hints", service: routedService(sameZone, "Prefer"), nodes: nodesIn(map[string]int{"a": 1, "b": 1}),
			slices: slicesOf("a a a a a a=a+b a=a+b a=a+b"), state: "Allocated", delivery: allocate.DeliveryHints,
			want: "- - - - - - - -",
		},
		{
			name: "one zone has nothing to choose", service: routedService(sameZone, "Prefer"), nodes: nodesIn(map[string]int{"a": 2}),
			slices: slicesOf("a a=a a a a a a a a a a a"), delivery: allocate.DeliveryHints, want: "- - - - - - - - - - - -",
		},
		{
			name: "one zone has nodes to choose from", service: preferNode(routedService(sameZone, "Prefer")), nodes: nodesIn(map[string]int{"a": 2}),
			slices: slicesOf("a a@a-2"), delivery: allocate.DeliveryHints, want: "a/a-1 a/a-2",
		},
		{
			name: "hard tiers have no hints", service: routedService(sameZone, "Require"), nodes: three,
			slices: slicesOf("a b=b c"), delivery: allocate.DeliveryHints, want: "- - -", note: "the Service requires a near endpoint, which hints cannot express",
		},
		{
			name: "node first: own nodes beside zones, but for one that would overload its own", service: preferNode(routedService(sameZone, "Prefer")), nodes: three,
			slices: slicesOf("a a@a-2 a a b b b b c c c c"), delivery: allocate.DeliveryHints,
			want: "a/a-1 a/" + hints.NoNode + " a/a-1 a/a-1 b/b-1 b/b-1 b/b-1 b/b-1 c/c-1 c/c-1 c/c-1 c/c-1",
		},
		{
			name: "node first gives way to the bound", service: preferNode(routedService(sameZone, "Prefer")), nodes: three,
			slices: slicesOf("a a a a a a b b b b c c"), delivery: allocate.DeliveryHints,
			want: "a/a-1 a/a-1 a/a-1 a/a-1 c/" + hints.NoNode + " c/" + hints.NoNode + " b/b-1 b/b-1 b/b-1 b/b-1 c/" + hints.NoNode + " c/" + hints.NoNode,
		},
		{
			name: "node, then anywhere, with an endpoint on no node", service: routedService(keys, "kubernetes.io/hostname,*"), nodes: three,
			slices: slicesOf("a ?"), delivery: allocate.DeliveryHints, want: "- -", note: "on no known node",
		},
		{
			name: "a small rack first", service: routedService(keys, "example.com/rack,topology.kubernetes.io/zone,*"),
			nodes:  []*corev1.Node{rack("a-1", "a", "r1"), rack("a-2", "a", "r1"), rack("b-1", "b", "r2")},
			slices: slicesOf("a b"), delivery: allocate.DeliveryHints, want: "a/a-1+a-2 b/b-1",
		},
		{
			name: "two kinds of places finer than a zone", service: routedService(keys, "kubernetes.io/hostname,example.com/rack,*"),
			nodes:  []*corev1.Node{rack("a-1", "a", "r1"), rack("b-1", "b", "r2")},
			slices: slicesOf("a b"), delivery: allocate.DeliveryHints, want: "/a-1 /b-1", note: "example.com/rack needs delivery by groups",
		},
		{
			name: "an endpoint without a zone, which no zone is near to", service: routedService(keys, "topology.kubernetes.io/zone,*"), nodes: three,
			slices: slicesOf("a b c ?"), delivery: allocate.DeliveryHints, want: "- - - -", note: "an endpoint has no zone",
		},
		{
			name: "a node that is in another zone now", service: routedService(keys, "topology.kubernetes.io/zone,*"),
			nodes: []*corev1.Node{
				testNode{name: "a-1", zone: "b", region: "r"}.object(), testNode{name: "a-2", zone: "a", region: "r"}.object(),
				testNode{name: "b-1", zone: "b", region: "r"}.object(),
			},
			slices: slicesOf("a a@a-2 b"), delivery: allocate.DeliveryHints, want: "b a b",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.state != "" {
				test.service.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionTopologyRouting, Reason: test.state}}
			}
			in := inputOf(test.service, test.nodes, test.slices)
			in.Settings.TakeOverAuto = test.takeOver
			in.Policies = []*v1alpha1.RoutingPolicy{localPolicy()}
			before := deepCopies(test.slices)
			d := mustDecide(t, in)
			if d.Delivery != test.delivery {
				t.Errorf("delivery %s, want %s", d.Delivery, test.delivery)
			}
			if got := hintText(test.slices, d); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			notes := strings.Join(d.Notes, "; ")
			if test.note == "" && notes != "" || !strings.Contains(notes, test.note) {
				t.Errorf("notes %q, want %q", notes, test.note)
			}
			if !reflect.DeepEqual(test.slices, before) {
				t.Error("the slices are changed")
			}
		})
	}
}

func deepCopies(eps []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	var copies []*discoveryv1.EndpointSlice
	for _, slice := range eps {
		copies = append(copies, slice.DeepCopy())
	}
	return copies
}

// The label of the Gardener project hints every endpoint to its own zone, ready or not.
func TestDecideOwnZone(t *testing.T) {
	service := routedService(v1alpha1.AnnotationTopologyAwareHints, "auto")
	service.Labels = map[string]string{v1alpha1.LabelOwnZone: "true"}
	eps := slicesOf("a b! ? a=b")
	eps[0].Endpoints[3].Hints.ForNodes = []discoveryv1.ForNode{{Name: "kept"}}
	d := mustDecide(t, inputOf(service, nodesIn(map[string]int{"a": 1, "b": 1, "c": 1}), eps))
	if got, want := hintText(eps, d), "a b - a/kept"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Each family of a Service is decided separately, and the condition has both states.
func TestDecideDualStack(t *testing.T) {
	eps := slicesOf("a a a a b b b b", "a b")
	eps[1].AddressType = discoveryv1.AddressTypeIPv6
	fqdn := eps[1].DeepCopy()
	fqdn.Name, fqdn.AddressType = "web-names", discoveryv1.AddressTypeFQDN
	eps = append(eps, fqdn)
	service := routedService(mode, "vicinity.dev/local")
	in := inputOf(service, nodesIn(map[string]int{"a": 1, "b": 1}), eps)
	in.Policies = []*v1alpha1.RoutingPolicy{localPolicy()}
	service.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionTopologyRouting, Reason: "IPv4:Allocated,IPv6:Waiting"}}
	d := mustDecide(t, in)
	if got, want := hintText(eps, d), "a a a a b b b b | - - | - -"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	condition := d.Condition()
	if condition.Reason != "IPv4:Allocated,IPv6:Waiting" || condition.Status != metav1.ConditionTrue {
		t.Errorf("got %s %s", condition.Status, condition.Reason)
	}
	if !strings.Contains(condition.Message, "EndpointSlices with addressType FQDN are ignored") {
		t.Errorf("message %q", condition.Message)
	}
	service.Status.Conditions[0].Reason = "IPv4:Waiting,IPv6:Waiting"
	if got, want := hintText(eps, mustDecide(t, in)), "- - - - - - - - | - - | - -"; got != want {
		t.Errorf("with IPv4 waiting in the band: got %s, want %s", got, want)
	}
}

// While slices lack the hints, before the write or after a loss, the next decision follows the last one.
func TestDecideFollowsLastDecision(t *testing.T) {
	in := inputOf(routedService(sameZone, "Prefer"), nodesIn(map[string]int{"a": 1, "b": 1, "c": 1}),
		slicesOf("a a=b a=b a a a b=a b=a b b c c c"))
	in.Service.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionTopologyRouting, Reason: "Allocated"}}
	first := mustDecide(t, in)
	bare := applyStep(in.Slices, hints.Unroute(in.Slices))
	in.Slices, in.Last = bare, first.Essence()
	in.Service.Status.Conditions = nil
	if got, want := hintText(bare, mustDecide(t, in)), hintText(bare, first); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A delivery that is switched off is no default. Hints deliver topology-mode: Auto, so it is left to Kubernetes without them.
func TestOptionsFollowSettings(t *testing.T) {
	for _, test := range []struct {
		settings     Settings
		auto, groups bool
	}{
		{Settings{}, false, false},
		{Settings{TakeOverAuto: true, GroupsByDefault: true}, true, true},
		{Settings{TakeOverAuto: true, GroupsByDefault: true, WithoutGroups: true}, true, false},
		{Settings{TakeOverAuto: true, GroupsByDefault: true, WithoutHints: true}, false, true},
	} {
		if got := test.settings.Options(); got.TakeOverAuto != test.auto || got.GroupsByDefault != test.groups {
			t.Errorf("%+v: %+v, want %t, %t", test.settings, got, test.auto, test.groups)
		}
	}
}
