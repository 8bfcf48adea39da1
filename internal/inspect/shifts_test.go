package inspect

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/capacity"
	"vicinity.dev/vicinity/internal/shift"
	"vicinity.dev/vicinity/internal/topology"
)

// The sentence about a shift tells the same as the decision.
func TestShiftSentences(t *testing.T) {
	until := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var nodes []*corev1.Node
	for _, zone := range []string{"a", "b", "c"} {
		nodes = append(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: zone, Labels: map[string]string{topology.Zone: zone}}})
	}
	proxied := map[string]string{v1alpha1.AnnotationProxy: "true"}
	for _, test := range []struct {
		name, zones string
		annotations map[string]string
		change      func(*Reading, *shift.Shift)
		want        string
	}{
		{name: "moves", zones: "aabbcc", want: "2 endpoints in topology.kubernetes.io/zone=a get no new connections until 2026-11-20 12:00:00 UTC"},
		{
			name: "yields", zones: "abc", change: func(_ *Reading, s *shift.Shift) { s.MaxOverload = 49 },
			want: "1 endpoint in topology.kubernetes.io/zone=a stays in service: the Service yields, because those outside (2 for 1 inside) would get more than 49 % load on top",
		},
		{name: "stays", zones: "a", want: "1 endpoint in topology.kubernetes.io/zone=a stays in service: all its ready endpoints are in the domain"},
		{name: "moves for some", zones: "abc", change: func(r *Reading, _ *shift.Shift) {
			r.Service.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}, want: "1 endpoint in topology.kubernetes.io/zone=a gets no new connections until 2026-11-20 12:00:00 UTC; " +
			"externalTrafficPolicy: Local: connections from outside the cluster still end on the node that they reach; others move"},
		{
			name: "leaves slowly", zones: "abc", annotations: proxied, change: func(_ *Reading, s *shift.Shift) { s.Weight = 0.3 },
			want: "1 endpoint in topology.kubernetes.io/zone=a gets 30 % of the usual new connections, and soon none until 2026-11-20 12:00:00 UTC",
		},
		{
			name: "leaves at once without groups", zones: "abc", change: func(_ *Reading, s *shift.Shift) { s.Weight = 0.3 },
			want: "1 endpoint in topology.kubernetes.io/zone=a gets no new connections until 2026-11-20 12:00:00 UTC",
		},
		{
			name: "comes back", zones: "abc", annotations: proxied, change: func(_ *Reading, s *shift.Shift) { s.Weight, s.Returning = 0.3, true },
			want: "1 endpoint in topology.kubernetes.io/zone=a gets 30 % of the usual new connections, and soon all: the shift ended at 2026-11-20 12:00:00 UTC",
		},
		{
			name: "is back without groups", zones: "abc", change: func(_ *Reading, s *shift.Shift) { s.Weight, s.Returning = 0.3, true },
			want: "1 endpoint in topology.kubernetes.io/zone=a serves again: the shift ended at 2026-11-20 12:00:00 UTC",
		},
		{
			name: "is left alone", zones: "abc", change: func(r *Reading, _ *shift.Shift) { r.LeftAlone = "it is excluded" },
			want: "1 endpoint in topology.kubernetes.io/zone=a stays in service: vicinity-controller ignores the Service, because it is excluded",
		},
		{name: "none of its endpoints", zones: "bbc"},
		{name: "unknown nodes", zones: "abc", change: func(r *Reading, _ *shift.Shift) { r.Unread = []string{KindNodes} }},
	} {
		t.Run(test.name, func(t *testing.T) {
			slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}}, AddressType: discoveryv1.AddressTypeIPv4}
			for i, zone := range test.zones {
				slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.0.0." + string(rune('1'+i))}, NodeName: new(string(zone)), Zone: new(string(zone))})
			}
			in := Reading{Input: routing.Input{
				Service: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: test.annotations}}, Slices: []*discoveryv1.EndpointSlice{slice},
				Cluster: capacity.NewCluster(nodes), Settings: routing.DefaultSettings(),
				Shifts: []shift.Shift{{Name: "out", Key: topology.Zone, Value: "a", MaxOverload: 50, Until: until}},
			}}
			if test.change != nil {
				test.change(&in, &in.Shifts[0])
			}
			d, err := in.Decide()
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			if test.want != "" {
				want = []string{"zone shift out: " + test.want}
			}
			if got := in.shiftSentences(&d.Shifting); !slices.Equal(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
}

// An unknown namespace is not taken for one that a selector excludes, or includes.
func TestSelectForNamespaces(t *testing.T) {
	accepted := func(name string, selector *metav1.LabelSelector) *v1alpha1.ZoneShift {
		zs := &v1alpha1.ZoneShift{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ZoneShiftSpec{For: metav1.Duration{Duration: time.Hour}}}
		zs.Spec.Services.NamespaceSelector = selector
		zs.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Accepted, Status: metav1.ConditionTrue}}
		return zs
	}
	wide := ClusterSettings{Shifts: []*v1alpha1.ZoneShift{accepted("all", nil), accepted("some", &metav1.LabelSelector{})}}
	if !wide.NeedsNamespaces() {
		t.Error("namespaces are not needed")
	}
	for namespace, want := range map[*corev1.Namespace]int{nil: 1, new(corev1.Namespace): 2} {
		in := routing.Input{Service: new(corev1.Service)}
		if wide.SelectFor(&in, namespace, time.Time{}.Add(time.Minute)); len(in.Shifts) != want {
			t.Errorf("namespace %v: %+v", namespace, in.Shifts)
		}
	}
}
