package translate

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/topology"
)

// policy makes a RoutingPolicy of the namespace shop, born so many minutes after
// the start, from what a change makes of it.
func policy(name string, born int, changes ...func(*v1alpha1.RoutingPolicySpec)) *v1alpha1.RoutingPolicy {
	p := &v1alpha1.RoutingPolicy{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: name,
		CreationTimestamp: metav1.NewTime(time.Unix(0, 0).Add(time.Duration(born) * time.Minute)),
	}}
	for _, change := range changes {
		change(&p.Spec)
	}
	return p
}

type change = func(*v1alpha1.RoutingPolicySpec)

// web selects the Service of the tests.
func web(spec *v1alpha1.RoutingPolicySpec) {
	spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
}

func keys(keys ...string) change {
	return func(spec *v1alpha1.RoutingPolicySpec) { spec.Keys = keys }
}

func mode(mode v1alpha1.Mode, level v1alpha1.Level) change {
	return func(spec *v1alpha1.RoutingPolicySpec) { spec.Mode, spec.Level = mode, level }
}

func capacity(by v1alpha1.CapacityType, expression string) change {
	return func(spec *v1alpha1.RoutingPolicySpec) {
		spec.Capacity = v1alpha1.Capacity{Type: by, Expression: expression}
	}
}

func elsewhere(p *v1alpha1.RoutingPolicy) *v1alpha1.RoutingPolicy {
	p.Namespace = "elsewhere"
	return p
}

func TestRequestOfPolicies(t *testing.T) {
	const (
		named    = "annotation service.kubernetes.io/topology-mode: vicinity.dev/near"
		selected = "RoutingPolicy near by its selector"
	)
	optimal := new(allocate.DefaultBound(DefaultAlgorithm(false)))
	for _, test := range []struct {
		name     string
		written  string
		policies []*v1alpha1.RoutingPolicy
		want     Request
	}{
		{
			"named", "mode=vicinity.dev/near",
			[]*v1alpha1.RoutingPolicy{policy("far", 0, web), policy("near", 1)},
			Request{Source: named, Policy: "near", Approach: ApproachPrefer, Intent: allocate.Intent{Tiers: topology.Tiers{zone, all}, Bound: optimal}},
		},
		{
			"named in another namespace", "mode=vicinity.dev/near",
			[]*v1alpha1.RoutingPolicy{elsewhere(policy("near", 0))},
			Request{
				Approach: ApproachBalanced,
				Warnings: []string{`annotation service.kubernetes.io/topology-mode: no RoutingPolicy "near" is known in namespace "shop"`},
			},
		},
		{
			"named and not there, another by its selector", "mode=vicinity.dev/nera",
			[]*v1alpha1.RoutingPolicy{policy("near", 0, web)},
			Request{
				Source: selected, Policy: "near", Approach: ApproachPrefer, Intent: allocate.Intent{Tiers: topology.Tiers{zone, all}, Bound: optimal},
				Warnings: []string{`annotation service.kubernetes.io/topology-mode: no RoutingPolicy "nera" is known in namespace "shop"`},
			},
		},
		{
			"selected in another namespace", "",
			[]*v1alpha1.RoutingPolicy{elsewhere(policy("near", 0, web))},
			Request{Approach: ApproachBalanced},
		},
		{
			"without a selector", "",
			[]*v1alpha1.RoutingPolicy{policy("near", 0)},
			Request{Approach: ApproachBalanced},
		},
		{
			"an empty selector selects all", "",
			[]*v1alpha1.RoutingPolicy{policy("near", 0, func(spec *v1alpha1.RoutingPolicySpec) { spec.Selector = &metav1.LabelSelector{} })},
			Request{Source: selected, Policy: "near", Approach: ApproachPrefer, Intent: allocate.Intent{Tiers: topology.Tiers{zone, all}, Bound: optimal}},
		},
		{
			"the oldest, then the first by name", "",
			[]*v1alpha1.RoutingPolicy{policy("a", 2, web), policy("z", 1, web), policy("near", 1, web), elsewhere(policy("b", 0, web))},
			Request{
				Source: selected, Policy: "near", Approach: ApproachPrefer, Intent: allocate.Intent{Tiers: topology.Tiers{zone, all}, Bound: optimal},
				Warnings: []string{"these select the Service too and have no effect, since of several the oldest counts, then the first by name: RoutingPolicy z, a"},
			},
		},
		{
			// What the Service says comes first, and the policy is for many.
			"after same-zone", "same-zone=Balanced",
			[]*v1alpha1.RoutingPolicy{policy("near", 0, web)},
			Request{Source: "annotation endpointslice.kubernetes.io/same-zone: Balanced", Approach: ApproachBalanced},
		},
		{
			"named, after same-zone", "same-zone=Require mode=vicinity.dev/near",
			[]*v1alpha1.RoutingPolicy{policy("near", 0)},
			Request{
				Source: "annotation endpointslice.kubernetes.io/same-zone: Require", Approach: ApproachRequire, Intent: allocate.Intent{Tiers: topology.Tiers{zone}},
			},
		},
		{
			"named, before the label for own zones", "gardener=true mode=vicinity.dev/near",
			[]*v1alpha1.RoutingPolicy{policy("near", 0)},
			Request{
				Source: named, Policy: "near", Approach: ApproachPrefer, Intent: allocate.Intent{Tiers: topology.Tiers{zone, all}, Bound: optimal},
				Warnings: []string{`label endpoint-slice-hints.resources.gardener.cloud/consider: "true" has no effect: ` + named + " comes first"},
			},
		},
		{
			"selected, after the label for own zones", "gardener=true",
			[]*v1alpha1.RoutingPolicy{policy("near", 0, web)},
			Request{
				Source:  `label endpoint-slice-hints.resources.gardener.cloud/consider: "true"`,
				OwnZone: true, Approach: ApproachPrefer, Intent: allocate.Intent{Tiers: topology.Tiers{zone, all}},
			},
		},
		{
			"selected, before Auto", "mode=Auto",
			[]*v1alpha1.RoutingPolicy{policy("near", 0, web)},
			Request{
				Source: selected, Policy: "near", Approach: ApproachPrefer, Intent: allocate.Intent{Tiers: topology.Tiers{zone, all}, Bound: optimal},
				Warnings: []string{"annotation service.kubernetes.io/topology-mode: Auto has no effect: " + selected + " comes first"},
			},
		},
		{
			"bounds PreferSameZone", "distribution=PreferSameZone",
			[]*v1alpha1.RoutingPolicy{policy("near", 0, web)},
			Request{
				Source: "spec.trafficDistribution: PreferSameZone, bounded by " + selected, Policy: "near", Approach: ApproachPrefer,
				Intent: allocate.Intent{Tiers: topology.Tiers{zone, all}, Bound: optimal},
			},
		},
		{
			"bounds PreferSameNode, named", "distribution=PreferSameNode mode=vicinity.dev/near",
			[]*v1alpha1.RoutingPolicy{policy("near", 0)},
			Request{
				Source: "spec.trafficDistribution: PreferSameNode, bounded by " + named, Policy: "near", Approach: ApproachPrefer,
				Intent: allocate.Intent{Tiers: topology.Tiers{node, zone, all}, Bound: optimal},
			},
		},
		{
			"names places of its own", "distribution=PreferSameNode",
			[]*v1alpha1.RoutingPolicy{policy("near", 0, web, mode("", v1alpha1.Zone))},
			Request{
				Source: selected, Policy: "near", Approach: ApproachPrefer,
				Intent:   allocate.Intent{Tiers: topology.Tiers{zone, all}, Bound: optimal},
				Warnings: []string{"spec.trafficDistribution: PreferSameNode has no effect: " + selected + " comes first"},
			},
		},
		{
			"bounds nothing that is unknown", "distribution=PreferFar",
			[]*v1alpha1.RoutingPolicy{policy("near", 0, web)},
			Request{
				Source: selected, Policy: "near", Approach: ApproachPrefer,
				Intent:   allocate.Intent{Tiers: topology.Tiers{zone, all}, Bound: optimal},
				Warnings: []string{`spec.trafficDistribution: "PreferFar" is unknown; allowed are PreferSameZone, PreferSameNode and PreferClose`},
			},
		},
		{
			"named, with keys that a local policy forbids", "mode=vicinity.dev/near external=Local",
			[]*v1alpha1.RoutingPolicy{policy("near", 0, keys("rack", all))},
			Request{
				Approach: ApproachBalanced,
				Warnings: []string{named + `: spec.keys of RoutingPolicy near, "rack,*", cannot be together with spec.externalTrafficPolicy: Local, which lets external traffic reach the endpoints of its node only; remove one of them`},
			},
		},
		{
			"selected, with keys that a local policy forbids, before another", "external=Local",
			[]*v1alpha1.RoutingPolicy{policy("racks", 0, web, keys("rack", all)), policy("near", 1, web)},
			Request{
				Source: selected, Policy: "near", Approach: ApproachPrefer, Intent: allocate.Intent{Tiers: topology.Tiers{zone, all}, Bound: optimal},
				Warnings: []string{`spec.keys of RoutingPolicy racks, "rack,*", cannot be together with spec.externalTrafficPolicy: Local, which lets external traffic reach the endpoints of its node only; remove one of them`},
			},
		},
		{
			"not in force, with keys that a local policy forbids", "same-zone=Balanced external=Local",
			[]*v1alpha1.RoutingPolicy{policy("racks", 0, web, keys("rack", all))},
			Request{Source: "annotation endpointslice.kubernetes.io/same-zone: Balanced", Approach: ApproachBalanced},
		},
		{
			"faults are the Service's warnings", "",
			[]*v1alpha1.RoutingPolicy{policy("near", 0, web, mode("Near", ""))},
			Request{
				Source: selected, Policy: "near", Approach: ApproachPrefer,
				Intent:   allocate.Intent{Tiers: topology.Tiers{zone, all}, Bound: optimal},
				Warnings: []string{`RoutingPolicy near: spec.mode: "Near" is unknown; allowed are Balanced, Prefer and Require; Prefer holds`},
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var before []*v1alpha1.RoutingPolicy
			for _, p := range test.policies {
				before = append(before, p.DeepCopy())
			}
			if test.want.Capacity.Type == "" {
				test.want.Capacity.Type = CapacityNodes
			}
			test.want.Selected = strings.HasSuffix(test.want.Source, "by its selector")
			for range 2 {
				got := RequestOf(service(strings.Fields(test.written)...), test.policies, Options{})
				got.unnamed, got.SelectedWarnings = false, 0
				if !reflect.DeepEqual(got, test.want) {
					t.Errorf("got\n%+v\nwant\n%+v", got, test.want)
				}
				if err := got.Intent.Validate(); err != nil {
					t.Errorf("the intent is not valid: %v", err)
				}
				if !reflect.DeepEqual(test.policies, before) {
					t.Fatal("the policies are changed")
				}
				// The order in which they are listed says nothing.
				slices.Reverse(test.policies)
				slices.Reverse(before)
			}
		})
	}
}

func TestReadPolicyIntent(t *testing.T) {
	for _, test := range []struct {
		change   change
		tiers    topology.Tiers
		bounded  bool
		approach Approach
	}{
		{mode("", ""), topology.Tiers{zone, all}, true, ApproachPrefer},
		{mode(v1alpha1.Balanced, ""), nil, false, ApproachBalanced},
		{mode(v1alpha1.Balanced, v1alpha1.Node), nil, false, ApproachBalanced},
		{mode(v1alpha1.Prefer, v1alpha1.Zone), topology.Tiers{zone, all}, true, ApproachPrefer},
		{mode(v1alpha1.Prefer, v1alpha1.Node), topology.Tiers{node, zone, all}, true, ApproachPrefer},
		{mode("", v1alpha1.Node), topology.Tiers{node, zone, all}, true, ApproachPrefer},
		{mode(v1alpha1.Prefer, v1alpha1.Region), topology.Tiers{region, all}, false, ApproachPrefer},
		{mode(v1alpha1.Require, ""), topology.Tiers{zone}, false, ApproachRequire},
		{mode(v1alpha1.Require, v1alpha1.Node), topology.Tiers{node}, false, ApproachRequire},
		{mode(v1alpha1.Require, v1alpha1.Region), topology.Tiers{region}, false, ApproachRequire},
		{keys("example.com/rack", zone, all), topology.Tiers{"example.com/rack", zone, all}, true, ApproachKeys},
		{keys(zone, region), topology.Tiers{zone, region}, true, ApproachKeys},
		{keys(zone, region, all), topology.Tiers{zone, region, all}, true, ApproachKeys},
		// There is nothing to divide, or no way to keep to what is required.
		{keys(region, all), topology.Tiers{region, all}, false, ApproachKeys},
		{keys("example.com/rack", all), topology.Tiers{"example.com/rack", all}, false, ApproachKeys},
		{keys(node, zone), topology.Tiers{node, zone}, false, ApproachKeys},
		{keys(zone, "example.com/hall"), topology.Tiers{zone, "example.com/hall"}, false, ApproachKeys},
		{keys(all), topology.Tiers{all}, false, ApproachKeys},
	} {
		p := policy("near", 0, test.change)
		t.Run(fmt.Sprint(p.Spec.Mode, p.Spec.Level, p.Spec.Keys), func(t *testing.T) {
			got := ReadPolicy(p)
			if !slices.Equal(got.Intent.Tiers, test.tiers) || (got.Intent.Bound != nil) != test.bounded || got.Approach != test.approach {
				t.Errorf("got %s %+v, want %s %q, bounded %t", got.Approach, got.Intent, test.approach, test.tiers, test.bounded)
			}
			if err := got.Intent.Validate(); err != nil || len(got.Faults) > 0 {
				t.Errorf("error %v, faults %q", err, got.Faults)
			}
		})
	}
}

func TestReadPolicyValues(t *testing.T) {
	start, byZone, padding := intstr.FromInt32(12), intstr.FromString("1.5x"), int32(0)
	got := ReadPolicy(policy("near", 0, func(spec *v1alpha1.RoutingPolicySpec) {
		spec.Algorithm, spec.OverloadThreshold, spec.StartingThreshold, spec.Padding = "local-weighted", "12.5%", &start, &padding
		spec.NodeSelector = &metav1.LabelSelector{
			MatchLabels:      map[string]string{"pool": "web"},
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "size", Operator: metav1.LabelSelectorOpIn, Values: []string{"m", "l"}}},
		}
		spec.Capacity.Type = v1alpha1.CapacityCPU
	}))
	if want := (allocate.Bound{Algorithm: allocate.LocalWeighted, OverloadThreshold: 0.125, Start: allocate.Start{Endpoints: 12}}); *got.Intent.Bound != want {
		t.Errorf("got %+v, want %+v", *got.Intent.Bound, want)
	}
	if want := (Capacity{Type: CapacityCPU, NodeSelector: "pool=web,size in (l,m)"}); got.Capacity != want {
		t.Errorf("got %+v, want %+v", got.Capacity, want)
	}
	if len(got.Faults) > 0 {
		t.Errorf("faults %q", got.Faults)
	}
	got = ReadPolicy(policy("near", 0, capacity(v1alpha1.CapacityExpression, "zone.cpu"),
		func(spec *v1alpha1.RoutingPolicySpec) { spec.StartingThreshold = &byZone }))
	if want := (Capacity{Type: CapacityExpression, Expression: "zone.cpu"}); got.Capacity != want || len(got.Faults) > 0 {
		t.Errorf("got %+v, want %+v; faults %q", got.Capacity, want, got.Faults)
	}
	if got.Intent.Bound.Start != (allocate.Start{PerZone: 1.5}) {
		t.Errorf("start %s, want 1.5x", got.Intent.Bound.Start)
	}
}

// What a policy does not say is the default of the algorithm that it names. What it
// says holds for every algorithm.
func TestReadPolicyThresholds(t *testing.T) {
	nine, none := intstr.FromInt32(9), intstr.FromInt32(0)
	two, zero := int32(2), int32(0)
	for _, test := range []struct {
		algorithm string
		start     *intstr.IntOrString
		padding   *int32
		want      allocate.Start
		wide      int
	}{
		{"", nil, nil, allocate.Start{}, 0},
		{"optimal", nil, nil, allocate.Start{}, 0},
		{"local", nil, nil, allocate.Start{PerZone: 3}, 3},
		{"local-shared", nil, nil, allocate.Start{PerZone: 3}, 3},
		{"local", &none, &zero, allocate.Start{}, 0},
		{"optimal", &nine, nil, allocate.Start{Endpoints: 9}, 3},
		{"optimal", &nine, &zero, allocate.Start{Endpoints: 9}, 0},
		{"optimal", &nine, &two, allocate.Start{Endpoints: 9}, 2},
		{"optimal", &none, nil, allocate.Start{}, 0},
		{"optimal", nil, &two, allocate.Start{}, 2},
	} {
		bound := ReadPolicy(policy("near", 0, func(s *v1alpha1.RoutingPolicySpec) {
			s.Algorithm, s.StartingThreshold, s.Padding = v1alpha1.Algorithm(test.algorithm), test.start, test.padding
		})).Intent.Bound
		if bound.Start != test.want || bound.Padding != test.wide {
			t.Errorf("%q, start %v, padding %v: %s and %d, want %s and %d", test.algorithm, test.start, test.padding, bound.Start, bound.Padding, test.want, test.wide)
		}
	}
}

// What is stored in spite of the schema falls back to what would be the default.
func TestReadPolicyFallsBack(t *testing.T) {
	negative, many, padding := intstr.FromInt32(-1), intstr.FromInt32(maxEndpoints+1), int32(-1)
	word, quoted := intstr.FromString("three"), intstr.FromString("100")
	wide := int32(1001)
	const start = `it must be a number of endpoints from 0 to 1000000, such as 12, or one for each zone, such as "3x"; 0 holds`
	const threshold = `it must be a percentage above 0 and at most 1000, such as "50%"; 50% holds`
	for _, test := range []struct {
		change change
		fault  string
	}{
		{mode("prefer", ""), `spec.mode: "prefer" is unknown; allowed are Balanced, Prefer and Require; Prefer holds`},
		{mode("", "Rack"), `spec.level: "Rack" is unknown; allowed are Node, Zone and Region; Zone holds`},
		{keys(all, zone), `spec.keys: topology keys: "*" is key 1 of 2; it matches everything and must be the last; they have no effect`},
		{keys(zone, zone), `spec.keys: topology keys: "topology.kubernetes.io/zone" is given twice, the second time as key 2 of 2; each key may appear once; they have no effect`},
		{keys("/rack"), `spec.keys: topology keys: "/rack" is not a label key: prefix part must be non-empty; they have no effect`},
		{func(s *v1alpha1.RoutingPolicySpec) { s.Algorithm = "auto" }, `spec.algorithm: "auto" is unknown; allowed are optimal, flow, local, local-shared, local-weighted, local-opt; optimal holds, or flow by groups`},
		{func(s *v1alpha1.RoutingPolicySpec) { s.OverloadThreshold = "50" }, `spec.overloadThreshold: "50" is not allowed; ` + threshold},
		{func(s *v1alpha1.RoutingPolicySpec) { s.OverloadThreshold = "-50%" }, `spec.overloadThreshold: "-50%" is not allowed; ` + threshold},
		{func(s *v1alpha1.RoutingPolicySpec) { s.OverloadThreshold = "0.00%" }, `spec.overloadThreshold: "0.00%" is not allowed; ` + threshold},
		{func(s *v1alpha1.RoutingPolicySpec) { s.OverloadThreshold = "1000.01%" }, `spec.overloadThreshold: "1000.01%" is not allowed; ` + threshold},
		{func(s *v1alpha1.RoutingPolicySpec) { s.StartingThreshold = &negative }, "spec.startingThreshold: -1 is not allowed; " + start},
		{func(s *v1alpha1.RoutingPolicySpec) { s.StartingThreshold = &word }, `spec.startingThreshold: "three" is not allowed; ` + start},
		{func(s *v1alpha1.RoutingPolicySpec) { s.StartingThreshold = &quoted }, `spec.startingThreshold: "100" is not allowed; it must be a number, which is written without quotes: 100, or one for each zone, such as "3x"; 0 holds`},
		{func(s *v1alpha1.RoutingPolicySpec) { s.StartingThreshold = &many }, "spec.startingThreshold: 1000001 is not allowed; " + start},
		{func(s *v1alpha1.RoutingPolicySpec) { s.Padding = &padding }, "spec.padding: -1 is not allowed; it must be from 0 to 1000; 0 holds"},
		{func(s *v1alpha1.RoutingPolicySpec) { s.Padding = &wide }, "spec.padding: 1001 is not allowed; it must be from 0 to 1000; 0 holds"},
		{capacity("Memory", ""), `spec.capacity.type: "Memory" is unknown; allowed are Nodes, CPU and Expression; Nodes holds`},
		{capacity(v1alpha1.CapacityExpression, ""), "spec.capacity.expression: it is empty; nodes are counted instead"},
		{capacity(v1alpha1.CapacityNodes, "1"), "spec.capacity.expression has no effect unless spec.capacity.type is Expression"},
		{
			func(s *v1alpha1.RoutingPolicySpec) {
				s.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
			},
			`spec.nodeSelector: "Near" is not a valid label selector operator; all nodes count`,
		},
		{
			func(s *v1alpha1.RoutingPolicySpec) {
				s.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
			},
			`spec.selector: "Near" is not a valid label selector operator; the policy selects no Service`,
		},
	} {
		t.Run(test.fault, func(t *testing.T) {
			got := ReadPolicy(policy("near", 0, test.change))
			if !slices.Equal(got.Faults, []string{test.fault}) {
				t.Errorf("faults\n%q\nwant\n%q", got.Faults, test.fault)
			}
			want := allocate.Intent{Tiers: topology.Tiers{zone, all}, Bound: new(allocate.DefaultBound(DefaultAlgorithm(false)))}
			if !reflect.DeepEqual(got.Intent, want) || got.Capacity != (Capacity{Type: CapacityNodes}) {
				t.Errorf("got %+v, %+v; want what an empty policy asks for", got.Intent, got.Capacity)
			}
		})
	}
	got := ReadPolicy(policy("near", 0, keys(zone), mode(v1alpha1.Prefer, "")))
	if want := []string{"spec.mode and spec.level have no effect together with spec.keys"}; !slices.Equal(got.Faults, want) || !slices.Equal(got.Intent.Tiers, []string{zone}) {
		t.Errorf("keys and mode: tiers %q, faults %q", got.Intent.Tiers, got.Faults)
	}
}
