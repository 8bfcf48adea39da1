package routing

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"vicinity.dev/vicinity/api/v1alpha1"
)

const impossibleZone = "rack 7/a"

// A zone that no node can have is in no hint and no label, so that the rest of what is
// written is not refused with it, and somebody is told.
func TestZoneThatNoNodeCanHave(t *testing.T) {
	nodes := nodesIn(map[string]int{"a": 2, "b": 2, "c": 2})
	for name, test := range map[string]struct {
		annotations []string
		own         bool
		want        string // hints
	}{
		"preferred": {annotations: []string{sameZone, "Prefer"}},
		"own zone":  {own: true, want: "- - a a a a b b b b c c c c"},
		"groups":    {annotations: []string{sameZone, "Require", v1alpha1.AnnotationProxy, "true"}},
	} {
		t.Run(name, func(t *testing.T) {
			service := routedService(test.annotations...)
			if test.own {
				service.Labels = map[string]string{v1alpha1.LabelOwnZone: "true"}
			}
			eps := slicesOf("a! a a a a a b b b b c c c c")
			zone := impossibleZone
			for i := range 2 {
				eps[0].Endpoints[i].Zone, eps[0].Endpoints[i].NodeName = &zone, nil
			}
			in := inputOf(service, nodes, eps)
			d := decided(t, in)
			if !slices.Contains(d.Notes, `zone "rack 7/a" of an endpoint is none that a node can have, and counts as unknown`) {
				t.Errorf("notes %q", d.Notes)
			}
			text := hintText(eps, d)
			if strings.Contains(text, impossibleZone) || test.want != "" && text != test.want {
				t.Errorf("hints %s, want %s", text, test.want)
			}
			for _, group := range Groups(in, d, GroupState{Now: time.Unix(1, 0)}).Create {
				for label := range group.Labels {
					if errs := validation.IsQualifiedName(label); len(errs) > 0 {
						t.Errorf("label %q: %v", label, errs)
					}
				}
				for _, e := range group.Spec.Endpoints {
					if e.Zone == impossibleZone {
						t.Errorf("endpoint %+v", e)
					}
				}
			}
		})
	}
}

// Slices do not follow when a node gets another zone; hints to the own zone do, also
// those of an endpoint that is not ready yet.
func TestHintsFollowTheNode(t *testing.T) {
	nodes := nodesIn(map[string]int{"a": 2, "b": 2})
	nodes = append(nodes, testNode{name: "x-1", zone: "b", region: "r"}.object())
	own := routedService()
	own.Labels = map[string]string{v1alpha1.LabelOwnZone: "true"}
	eps := slicesOf("a a a a a a b b b b b b x x!")
	if got, want := hintText(eps, decided(t, inputOf(own, nodes, eps))), "a a a a a a b b b b b b b b"; got != want {
		t.Errorf("own zones: %s, want %s", got, want)
	}
	if got, want := hintText(eps, decided(t, inputOf(routedService(sameZone, "Prefer"), nodes, eps))), "a a a a a a b b b b b b b b"; got != want {
		t.Errorf("preferred zones: %s, want %s", got, want)
	}
	// A node that nobody knows keeps its endpoint where the slice says.
	eps = slicesOf("a a a a b b b b@gone")
	if got, want := hintText(eps, decided(t, inputOf(own, nodes, eps))), "a a a a b b b b"; got != want {
		t.Errorf("a node that is gone: %s, want %s", got, want)
	}
}
