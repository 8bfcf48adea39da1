package translate

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/topology"
)

// clusterWide makes a ClusterRoutingPolicy for all namespaces, born so many minutes after
// the start.
func clusterWide(name string, born int, changes ...change) *v1alpha1.ClusterRoutingPolicy {
	p := &v1alpha1.ClusterRoutingPolicy{ObjectMeta: metav1.ObjectMeta{
		Name: name, CreationTimestamp: metav1.NewTime(time.Unix(0, 0).Add(time.Duration(born) * time.Minute)),
	}}
	p.Spec.NamespaceSelector = &metav1.LabelSelector{}
	for _, change := range changes {
		change(&p.Spec.RoutingPolicySpec)
	}
	return p
}

func TestRequestOfClusterPolicies(t *testing.T) {
	near := Request{
		Source: "ClusterRoutingPolicy near by its selector", ClusterPolicy: "near", Approach: ApproachPrefer,
		Intent: allocate.Intent{Tiers: topology.Tiers{zone, all}, Bound: new(allocate.DefaultBound(DefaultAlgorithm(false)))}, Capacity: Capacity{Type: CapacityNodes}, unnamed: true,
	}
	warned := near
	warned.Warnings = []string{"these select the Service too and have no effect, since of several the oldest counts, then the first by name: ClusterRoutingPolicy z, a"}
	other := func(spec *v1alpha1.RoutingPolicySpec) {
		spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}
	}
	for _, test := range []struct {
		name, written string
		policies      []*v1alpha1.RoutingPolicy
		defaults      []*v1alpha1.ClusterRoutingPolicy
		want          Request
	}{
		{"without a selector it is for all", "", nil, []*v1alpha1.ClusterRoutingPolicy{clusterWide("near", 0)}, near},
		{"selects others", "", nil, []*v1alpha1.ClusterRoutingPolicy{clusterWide("near", 0, other)}, Request{}},
		{
			"the oldest, then the first by name", "", nil,
			[]*v1alpha1.ClusterRoutingPolicy{clusterWide("a", 2), clusterWide("z", 1), clusterWide("near", 1), clusterWide("b", 0, other)},
			warned,
		},
		{
			"after a RoutingPolicy", "",
			[]*v1alpha1.RoutingPolicy{policy("own", 5, web)},
			[]*v1alpha1.ClusterRoutingPolicy{clusterWide("near", 0)},
			Request{Source: "RoutingPolicy own by its selector", Policy: "own", Approach: ApproachPrefer, Intent: near.Intent, unnamed: true},
		},
		{
			"opted out of", "same-zone=Balanced", nil,
			[]*v1alpha1.ClusterRoutingPolicy{clusterWide("near", 0)},
			Request{Source: "annotation endpointslice.kubernetes.io/same-zone: Balanced"},
		},
		{
			"after Auto", "mode=Auto", nil,
			[]*v1alpha1.ClusterRoutingPolicy{clusterWide("near", 0)},
			Request{
				Source: "annotation service.kubernetes.io/topology-mode: Auto", Approach: ApproachAuto, Upstream: true,
				Intent: allocate.Intent{Tiers: topology.Tiers{zone, all}, Bound: new(allocate.DefaultBound(allocate.Auto))}, Capacity: AutoCapacity(),
			},
		},
		{
			"not where the Service opts out", "mode=Disabled", nil,
			[]*v1alpha1.ClusterRoutingPolicy{clusterWide("near", 0)},
			Request{Declined: "ClusterRoutingPolicy near selects the Service and has no effect: annotation service.kubernetes.io/topology-mode: Disabled opts out of it"},
		},
		{
			"nor by the older name", "hints=disabled mode=Auto",
			[]*v1alpha1.RoutingPolicy{policy("own", 5, web)},
			[]*v1alpha1.ClusterRoutingPolicy{clusterWide("near", 0)},
			Request{Declined: "RoutingPolicy own selects the Service and has no effect: annotation service.kubernetes.io/topology-aware-hints: disabled opts out of it"},
		},
		{
			"nor where another controller writes hints", "mode=example.com/other distribution=PreferSameZone", nil,
			[]*v1alpha1.ClusterRoutingPolicy{clusterWide("near", 0)},
			Request{
				Source: "spec.trafficDistribution: PreferSameZone", Approach: ApproachPrefer, Upstream: true,
				Intent: allocate.Intent{Tiers: topology.Tiers{zone, all}},
			},
		},
		{
			"one that the Service names counts", "hints=Disabled mode=vicinity.dev/own",
			[]*v1alpha1.RoutingPolicy{policy("own", 5, web)},
			nil,
			Request{
				Source: "annotation service.kubernetes.io/topology-mode: vicinity.dev/own", Policy: "own", Approach: ApproachPrefer,
				Intent: near.Intent, unnamed: true,
			},
		},
		{"what does not select is not declined", "mode=Disabled", nil, []*v1alpha1.ClusterRoutingPolicy{clusterWide("near", 0, other)}, Request{}},
		{
			"cannot be named", "mode=vicinity.dev/near", nil,
			[]*v1alpha1.ClusterRoutingPolicy{clusterWide("near", 0, other)},
			Request{Warnings: []string{`annotation service.kubernetes.io/topology-mode: no RoutingPolicy "near" is known in namespace "shop"`}},
		},
		{
			"keys that a local policy forbids", "external=Local", nil,
			[]*v1alpha1.ClusterRoutingPolicy{clusterWide("racks", 0, keys("rack", all))},
			Request{Warnings: []string{`spec.keys of ClusterRoutingPolicy racks, "rack,*", cannot be together with spec.externalTrafficPolicy: Local, which lets external traffic reach the endpoints of its node only; remove one of them`}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.want.Approach == "" {
				test.want.Approach = ApproachBalanced
			}
			if test.want.Capacity.Type == "" {
				test.want.Capacity.Type = CapacityNodes
			}
			test.want.Selected = strings.HasSuffix(test.want.Source, "by its selector")
			for range 2 {
				got := RequestOf(service(strings.Fields(test.written)...), test.policies, Options{Defaults: test.defaults})
				got.SelectedWarnings = 0
				if !reflect.DeepEqual(got, test.want) {
					t.Errorf("got\n%+v\nwant\n%+v", got, test.want)
				}
				slices.Reverse(test.defaults)
			}
		})
	}
}

func TestForNamespace(t *testing.T) {
	choosing := func(name string, selector *metav1.LabelSelector) *v1alpha1.ClusterRoutingPolicy {
		p := clusterWide(name, 0)
		p.Spec.NamespaceSelector = selector
		return p
	}
	policies := []*v1alpha1.ClusterRoutingPolicy{
		choosing("all", &metav1.LabelSelector{}),
		choosing("near", &metav1.LabelSelector{MatchLabels: map[string]string{"near": "yes"}}),
		choosing("not-near", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "near", Operator: metav1.LabelSelectorOpDoesNotExist}}}),
		choosing("none", nil),
		choosing("faulty", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "near", Operator: "Near"}}}),
	}
	for _, test := range []struct {
		labels map[string]string
		want   string
	}{
		{map[string]string{"near": "yes"}, "all near"},
		{map[string]string{"near": "no"}, "all"},
		{nil, "all not-near"},
	} {
		var names []string
		for _, p := range ForNamespace(policies, test.labels) {
			names = append(names, p.Name)
		}
		if got := strings.Join(names, " "); got != test.want {
			t.Errorf("%v: got %q, want %q", test.labels, got, test.want)
		}
	}
	for name, want := range map[string]string{
		"near":   "",
		"none":   "spec.namespaceSelector: it is not given; the policy chooses no namespace",
		"faulty": `spec.namespaceSelector: "Near" is not a valid label selector operator; the policy chooses no namespace`,
	} {
		at := slices.IndexFunc(policies, func(p *v1alpha1.ClusterRoutingPolicy) bool { return p.Name == name })
		if got := strings.Join(ReadClusterPolicy(policies[at]).Faults, " "); got != want {
			t.Errorf("%s: faults %q, want %q", name, got, want)
		}
	}
}
