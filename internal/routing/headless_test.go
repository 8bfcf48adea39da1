package routing

import (
	"fmt"
	"maps"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
)

// headlessService takes annotations as key and value in turn.
func headlessService(annotations ...string) *corev1.Service {
	service := routedService(annotations...)
	service.Spec.ClusterIP, service.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
	service.Spec.Selector = map[string]string{"app": service.Name}
	service.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	return service
}

// hostnames gives all endpoints names, as pods of a StatefulSet have.
func hostnames(eps []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	n := 0
	for _, slice := range eps {
		for i := range slice.Endpoints {
			slice.Endpoints[i].Hostname = new(fmt.Sprintf("web-%d", n))
			n++
		}
	}
	return eps
}

// selectingAll returns a ClusterRoutingPolicy that requires the same zone for all Services.
func selectingAll() *v1alpha1.ClusterRoutingPolicy {
	policy := &v1alpha1.ClusterRoutingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "near"}}
	policy.Spec.NamespaceSelector = &metav1.LabelSelector{}
	policy.Spec.Mode, policy.Spec.Level = v1alpha1.Require, v1alpha1.Zone
	return policy
}

// A headless Service gets the same groups as a Service that vicinity-proxy serves, step by step, apart from the label that
// hides them from proxies.
func TestHeadlessIsPlannedAsGroups(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newGroupScene(rt)
		s.in.Policies[0].Spec.Algorithm = "optimal"
		served, dns := s.clone(), s.clone()
		for range rapid.IntRange(1, 4).Draw(rt, "steps") {
			s.changeSome()
			for _, w := range []*groupWorld{served, dns} {
				w.in.Slices, w.in.Cluster, w.now = s.in.Slices, s.in.Cluster, s.now
				w.in.Service = s.in.Service.DeepCopy()
				// The default algorithm for vicinity-proxy has weights.
				if _, near := w.in.Service.Annotations[sameZone]; near {
					w.in.Service.Annotations = map[string]string{mode: "vicinity.dev/weighted", v1alpha1.AnnotationProxy: "true"}
				}
				w.in.Service.Labels = map[string]string{v1alpha1.LabelServiceProxyName: v1alpha1.ServiceProxyName}
			}
			if dns.in.Service.Spec.ClusterIP = corev1.ClusterIPNone; len(dns.in.Service.Annotations) == 1 {
				continue // only vicinity-proxy is asked for
			}
			delete(dns.in.Service.Annotations, v1alpha1.AnnotationProxy)
			delete(dns.in.Service.Labels, v1alpha1.LabelServiceProxyName)
			want, got := served.decide(), dns.decide()
			if !reflect.DeepEqual(got.Families, want.Families) || got.Delivery != want.Delivery || got.Meanwhile != nil {
				rt.Fatalf("got\n%+v\nwant\n%+v", got, want)
			}
			served.sync(want)
			dns.sync(got)
			if got, want := dns.text(), served.text(); got != want {
				rt.Fatalf("got\n%swant\n%s", got, want)
			}
			for name, g := range dns.groups {
				labels := maps.Clone(g.Labels)
				if _, marked := labels[corev1.IsHeadlessService]; !marked {
					rt.Fatalf("%s has the labels %v", name, labels)
				}
				delete(labels, corev1.IsHeadlessService)
				if !maps.Equal(labels, served.groups[name].Labels) {
					rt.Fatalf("%s has the labels %v, want %v", name, labels, served.groups[name].Labels)
				}
			}
		}
	})
}

// headlessWorld returns a world with a headless Service and its groups.
func headlessWorld(t *testing.T, eps []*discoveryv1.EndpointSlice, annotations ...string) *groupWorld {
	t.Helper()
	return newGroupWorld(t, inputOf(headlessService(annotations...), nodesIn(map[string]int{"a": 1, "b": 1, "c": 1}), eps))
}

// A headless Service may have no ports, and slices that users wrote.
func TestGroupsOfHeadlessServices(t *testing.T) {
	portless, foreign := slicesOf("a b c"), slicesOf("a b c")
	portless[0].Ports = nil
	foreign[0].Labels[discoveryv1.LabelManagedBy] = "example.com"
	for i := range foreign[0].Endpoints {
		foreign[0].Endpoints[i].NodeName = nil
	}
	for name, eps := range map[string][]*discoveryv1.EndpointSlice{"no ports": portless, "slices by hand": foreign} {
		t.Run(name, func(t *testing.T) {
			w := headlessWorld(t, eps, sameZone, "Require")
			w.settle(w.decide(), GroupState{})
			const tiers = " tiers topology.kubernetes.io/zone"
			w.expectGroups(t, "IPv4 a1 -> a not b c"+tiers, "IPv4 b2 -> b not a c"+tiers, "IPv4 c3 -> c not a b"+tiers)
			for _, g := range w.groups {
				if _, marked := g.Labels[corev1.IsHeadlessService]; !marked || len(g.Spec.Ports) != len(eps[0].Ports) {
					t.Errorf("%s has the labels %v and the ports %v", g.Name, g.Labels, g.Spec.Ports)
				}
			}
		})
	}
}

func withPolicy(in Input) Input {
	in.Defaults = []*v1alpha1.ClusterRoutingPolicy{selectingAll()}
	return in
}

func without(in Input, change func(*Settings)) Input {
	change(&in.Settings)
	return in
}

// A policy still applies after the last pod is deleted. Otherwise all clients would use the next pod for a moment.
func TestPolicyKeepsAHeadlessServiceWithoutEndpoints(t *testing.T) {
	w := headlessWorld(t, slicesOf("a b c"))
	w.in = withPolicy(w.in)
	w.settle(w.decide(), GroupState{})
	w.in.Slices = slicesOf("")
	w.settle(w.decide(), GroupState{})
	if len(w.groups) == 0 {
		t.Error("there are no groups")
	}
}

func TestUnproxied(t *testing.T) {
	dns := &v1alpha1.EndpointGroup{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.IsHeadlessService: ""}}}
	for _, test := range []struct {
		name     string
		service  *corev1.Service
		groups   []*v1alpha1.EndpointGroup
		delivery allocate.Delivery
		want     bool
	}{
		{"headless", headlessService(), nil, allocate.DeliveryGroups, true},
		{"headless, with groups for proxies", headlessService(), []*v1alpha1.EndpointGroup{{}}, allocate.DeliveryNone, true},
		{"with an address", routedService(), nil, allocate.DeliveryNone, false},
		{"headless before", routedService(), []*v1alpha1.EndpointGroup{dns}, allocate.DeliveryHints, true},
		{"headless before, for a proxy now", routedService(), []*v1alpha1.EndpointGroup{dns}, allocate.DeliveryGroups, false},
		{"some for proxies", routedService(), []*v1alpha1.EndpointGroup{dns, {}}, allocate.DeliveryNone, false},
	} {
		if got := Unproxied(Input{Service: test.service, Groups: test.groups}, Decision{Delivery: test.delivery}); got != test.want {
			t.Errorf("%s: %t", test.name, got)
		}
	}
}
