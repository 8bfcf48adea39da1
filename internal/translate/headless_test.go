package translate

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/topology"
)

// headless is a Service as service makes it, without a cluster IP. "early" publishes
// addresses that are not ready, "local" has a local policy for internal traffic.
func headless(lines ...string) *corev1.Service {
	s := service(lines...)
	s.Spec.ClusterIP, s.Spec.Selector = corev1.ClusterIPNone, map[string]string{"app": "web"}
	s.Spec.PublishNotReadyAddresses = slices.Contains(lines, "early")
	if slices.Contains(lines, "local") {
		s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
	}
	return s
}

func policyNamed(name string, spec v1alpha1.RoutingPolicySpec) *v1alpha1.RoutingPolicy {
	return &v1alpha1.RoutingPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: spec}
}

func TestRequestOfHeadlessServices(t *testing.T) {
	const (
		sameZone = "annotation endpointslice.kubernetes.io/same-zone: "
		early    = "its members may find each other by its name, since publishNotReadyAddresses is true"
		named    = "its members may find each other by its name, since pods have names under it, as those of a StatefulSet"
		whole    = "; DNS gives all of them, unless the Service itself asks for a plan"
	)
	usual, auto := allocate.DefaultBound(allocate.Optimal), allocate.DefaultBound(allocate.Auto)
	tight := usual
	tight.OverloadThreshold = 0.2
	prefer := topology.Tiers{zone, all}
	everywhere := policyNamed("everywhere", v1alpha1.RoutingPolicySpec{Selector: &metav1.LabelSelector{}, Mode: v1alpha1.Require, Level: v1alpha1.Zone})
	flow := policyNamed("flow", v1alpha1.RoutingPolicySpec{Algorithm: "flow", OverloadThreshold: "20%"})
	nearest := policyNamed("nearest", v1alpha1.RoutingPolicySpec{Mode: v1alpha1.Require, Level: v1alpha1.Zone})
	unselected := headless()
	unselected.Spec.Selector = nil
	for _, test := range []struct {
		name     string
		service  *corev1.Service
		policies []*v1alpha1.RoutingPolicy
		options  Options

		tiers                     topology.Tiers
		bound                     *allocate.Bound
		noPlan, hides             string
		declined, warning, policy string
	}{
		{name: "nothing", service: headless(), noPlan: "headless (clusterIP: None): nothing is asked for, so DNS gives all endpoints to every client"},
		{name: "whole endpoints", service: headless("same-zone=Prefer"), tiers: prefer, bound: &usual},
		{name: "keys", service: headless("keys=kubernetes.io/hostname,*"), tiers: topology.Tiers{node, all}},
		{name: "a label for hints", service: headless("gardener=true"), tiers: prefer},
		{
			name: "for vicinity-proxy", service: headless("same-zone=Prefer", "proxy=true"), tiers: prefer, bound: &usual,
			warning: "annotation vicinity.dev/proxy: true has no effect: the Service is headless (clusterIP: None), so no proxy serves it",
		},
		{
			name: "all endpoints", service: headless("same-zone=Balanced"),
			noPlan: "headless (clusterIP: None): DNS gives all endpoints to every client, as " + sameZone + "Balanced asks",
		},
		{
			name: "Kubernetes' heuristic", service: headless("mode=Auto"), tiers: prefer, bound: &auto,
			noPlan: "headless (clusterIP: None): Kubernetes does nothing about annotation service.kubernetes.io/topology-mode: Auto there, and Vicinity leaves it alone, so DNS gives all endpoints to every client",
		},
		{name: "Kubernetes' heuristic, taken over", service: headless("mode=Auto"), options: Options{TakeOverAuto: true}, tiers: prefer, bound: &auto},
		{
			name: "Kubernetes' heuristic, taken over among members", service: headless("mode=Auto"), options: Options{TakeOverAuto: true, GivesNames: true}, tiers: prefer, bound: &auto,
			noPlan: "headless (clusterIP: None): Kubernetes does nothing about annotation service.kubernetes.io/topology-mode: Auto there, and Vicinity leaves it alone, so DNS gives all endpoints to every client",
		},
		{
			name: "Kubernetes' field", service: headless("distribution=PreferClose"), tiers: prefer,
			noPlan: "headless (clusterIP: None): Kubernetes does nothing about spec.trafficDistribution: PreferClose there, and Vicinity leaves it alone, so DNS gives all endpoints to every client",
		},
		{
			name: "weights", service: headless("mode=vicinity.dev/flow"), policies: []*v1alpha1.RoutingPolicy{flow}, tiers: prefer, bound: &tight, policy: "flow",
			warning: "RoutingPolicy flow: the algorithm flow weighs endpoints, which the DNS records of a headless Service cannot; optimal holds",
		},
		{name: "a policy that selects it", service: headless(), policies: []*v1alpha1.RoutingPolicy{everywhere}, tiers: topology.Tiers{zone}, policy: "everywhere"},
		{
			name: "a policy that selects members", service: headless(), policies: []*v1alpha1.RoutingPolicy{everywhere}, options: Options{GivesNames: true},
			noPlan:   "headless (clusterIP: None): nothing is asked for, so DNS gives all endpoints to every client",
			declined: "RoutingPolicy everywhere selects the Service and has no effect: " + named + whole,
		},
		{
			name: "a policy that selects early members", service: headless("early"), policies: []*v1alpha1.RoutingPolicy{everywhere},
			noPlan:   "headless (clusterIP: None): nothing is asked for, so DNS gives all endpoints to every client",
			declined: "RoutingPolicy everywhere selects the Service and has no effect: " + early + whole,
		},
		{
			name: "a policy that members name", service: headless("mode=vicinity.dev/nearest"), policies: []*v1alpha1.RoutingPolicy{nearest}, options: Options{GivesNames: true},
			tiers: topology.Tiers{zone}, policy: "nearest",
			hides: named + ": annotation service.kubernetes.io/topology-mode: vicinity.dev/nearest hides from each client those that are not near it, and all where none is near; names of single pods stay",
		},
		{
			name: "endpoints that are written by hand", service: unselected, policies: []*v1alpha1.RoutingPolicy{everywhere}, options: Options{GivesNames: true},
			noPlan:   "headless (clusterIP: None): nothing is asked for, so DNS gives all endpoints to every client",
			declined: "RoutingPolicy everywhere selects the Service and has no effect: its members may find each other by its name, since endpoints have names under it" + whole,
		},
		{
			name: "members ask themselves", service: headless("same-zone=Prefer", "early"), tiers: prefer, bound: &usual,
			hides: early + ": " + sameZone + "Prefer hides from each client those that are not near it; names of single pods stay",
		},
		{name: "members need all", service: headless("same-zone=Balanced", "early"), noPlan: "headless (clusterIP: None): DNS gives all endpoints to every client, as " + sameZone + "Balanced asks"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := RequestOf(test.service, test.policies, test.options)
			if !got.Headless || got.Groups || got.OwnZone {
				t.Errorf("not for DNS: %+v", got)
			}
			if !slices.Equal(got.Intent.Tiers, test.tiers) || (got.Intent.Bound == nil) != (test.bound == nil) || test.bound != nil && *got.Intent.Bound != *test.bound {
				t.Errorf("tiers %v, bound %+v", got.Intent.Tiers, got.Intent.Bound)
			}
			if again := got.WithGroups(true); again.Groups || again.Intent.Bound != nil && *again.Intent.Bound != *got.Intent.Bound {
				t.Errorf("for vicinity-proxy it is %+v", again)
			}
			for _, pair := range [][2]string{
				{got.NoPlan, test.noPlan}, {got.Hides, test.hides}, {got.Declined, test.declined}, {strings.Join(got.Warnings, "; "), test.warning}, {got.Policy, test.policy},
			} {
				if pair[0] != pair[1] {
					t.Errorf("got  %q\nwant %q", pair[0], pair[1])
				}
			}
		})
	}
}
