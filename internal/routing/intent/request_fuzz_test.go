package intent

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
)

// Any Service and policy give a request that can be planned.
func FuzzRequestOf(f *testing.F) {
	f.Add("same-zone=Prefer same-node=Require", "", "", "", "", "", int32(0))
	f.Add("keys=kubernetes.io/hostname,* proxy=true external=Local", "", "", "", "", "", int32(0))
	f.Add("mode=vicinity.dev/near distribution=PreferSameNode", "Prefer", "Node", "", "optimal/50%/3x", "Nodes/", int32(3))
	f.Add("gardener=true hints=auto", "", "", "topology.kubernetes.io/zone,rack,*", "local-opt/1000%/1.5x", "Expression/zone.cpu", int32(3))
	f.Add("distribution=PreferClose", "Require", "Zone", "*,zone", "auto/-1%/3", "CPU/1", int32(-3))
	f.Add("", "", "", "topology.kubernetes.io/zone,rack", "//", "Expression/zone.cpu / zone.pods", int32(0))
	f.Add("mode=example.com/\x1b[2J hints=\u009b/x", "", "", "", "", "", int32(0))
	cluster := pools()
	f.Fuzz(func(t *testing.T, text, mode, level, keys, bound, by string, number int32) {
		given := service(strings.Fields(text)...)
		if strings.ContainsRune(text, 'l') {
			local := corev1.ServiceInternalTrafficPolicyLocal
			given.Spec.InternalTrafficPolicy = &local
		}
		written := selecting("near")
		spec := &written.Spec
		spec.Mode, spec.Level, spec.Padding = v1alpha1.Mode(mode), v1alpha1.Level(level), &number
		if keys != "" {
			spec.Keys = strings.Split(keys, ",")
		}
		algorithm, rest, _ := strings.Cut(bound, "/")
		threshold, startText, _ := strings.Cut(rest, "/")
		spec.Algorithm, spec.OverloadThreshold = v1alpha1.Algorithm(algorithm), threshold
		start := intstr.FromInt32(number)
		if startText != "" {
			start = intstr.FromString(startText)
		}
		spec.StartingThreshold = &start
		kind, expression, _ := strings.Cut(by, "/")
		spec.Capacity = v1alpha1.Capacity{Type: v1alpha1.CapacityType(kind), Expression: expression}
		spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{mode: level}}

		policies := []*v1alpha1.RoutingPolicy{written, selecting("other")}
		if number%3 == 0 {
			spec.Delivery = v1alpha1.DeliveryGroups
		}
		before, beforePolicy := given.DeepCopy(), written.DeepCopy()
		options := Options{TakeOverAuto: number%2 == 0, GroupsByDefault: number%5 == 0}
		request := RequestOf(given, policies, options)
		// A policy changes no tier that annotations ask for.
		own := RequestOf(given, nil, options)
		if strings.HasPrefix(own.Source, "annotation") && own.Approach != ApproachAuto && !slices.Equal(own.Intent.Tiers, request.Intent.Tiers) {
			t.Fatalf("a policy makes %q of %q", request.Intent.Tiers, own.Intent.Tiers)
		}
		if err := request.Intent.Validate(); err != nil {
			t.Fatalf("%+v is not valid: %v", request.Intent, err)
		}
		if request.Approach == "" || request.Capacity.Type == "" {
			t.Fatalf("no approach or capacity: %+v", request)
		}
		for _, warning := range request.Warnings {
			if strings.TrimSpace(warning) == "" {
				t.Fatalf("an empty warning among %q", request.Warnings)
			}
		}
		// Terminals show them.
		for _, text := range append(request.Warnings, request.Source, request.GroupsBy, request.Declined, request.Hides, request.NoPlan) {
			if strings.ContainsFunc(text, unicode.IsControl) {
				t.Fatalf("a text for people is %q", text)
			}
		}
		region := cluster.Region(request.Capacity, []Endpoint{{Zone: "a"}, {Zone: "b"}, {Zone: "b"}, {}})
		if _, _, err := allocate.Allocate(region, request.Intent, allocate.Previous{}); err != nil {
			t.Fatalf("no plan for %+v: %v", request, err)
		}
		Impossible(given, policies)
		if !reflect.DeepEqual(given, before) || !reflect.DeepEqual(written, beforePolicy) {
			t.Fatal("what is given is changed")
		}
	})
}

// selecting returns a policy that selects the Service of the helper service.
func selecting(name string) *v1alpha1.RoutingPolicy {
	p := &v1alpha1.RoutingPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	p.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	return p
}
