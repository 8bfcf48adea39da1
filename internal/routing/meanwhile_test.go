package routing

import (
	"maps"
	"testing"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
)

// Hints and groups of a Service that is being handed over are each planned from what
// they were before, so that neither moves endpoints because of the other.
func TestHandOverKeepsBothPlans(t *testing.T) {
	nodes := nodesIn(map[string]int{"a": 2, "b": 2, "c": 2})
	eps := slicesOf("a a a a a a a a b b b b c c c c")
	in := inputOf(routedService(), nodes, eps)
	in.Service.Annotations, in.Policies = dividedBy("optimal")
	first := decided(t, in)
	if first.Delivery != allocate.DeliveryGroups || first.Meanwhile == nil || !first.Meanwhile.Families[0].hints.Wanted {
		t.Fatalf("no hints meanwhile: %+v", first.Meanwhile)
	}
	in.Last = first.Essence()
	groups := &in.Last.Families[0]
	groups.Assigned = exchanged(t, first.Families[0])
	second := decided(t, in)
	for _, test := range []struct {
		name      string
		got, want map[string]allocate.ConsumerSet
	}{
		{"groups", second.Families[0].Assigned, groups.Assigned},
		{"hints", second.Meanwhile.Families[0].Assigned, first.Meanwhile.Families[0].Assigned},
	} {
		if !maps.Equal(test.got, test.want) {
			t.Errorf("%s: %v becomes %v", test.name, test.want, test.got)
		}
	}

	// Once vicinity-proxy serves the Service there are none.
	in.Service = in.Service.DeepCopy()
	in.Service.Labels = map[string]string{v1alpha1.LabelServiceProxyName: v1alpha1.ServiceProxyName}
	if d := decided(t, in); d.Meanwhile != nil {
		t.Errorf("hints for nobody: %+v", d.Meanwhile)
	}
	// The way back begins with the hints that there were.
	in.Service = routedService(sameZone, "Prefer")
	if d := decided(t, in); !maps.Equal(d.Families[0].Assigned, first.Meanwhile.Families[0].Assigned) {
		t.Errorf("hints move on the way back: %v", d.Families[0].Assigned)
	}
}

// While hints deliver, a Service whose groups will have weights has a plan that hints can
// carry.
func TestHintsMeanwhileHaveNoWeights(t *testing.T) {
	in := inputOf(routedService(sameZone, "Prefer", v1alpha1.AnnotationProxy, "true"), nodesIn(map[string]int{"a": 2, "b": 2, "c": 2}),
		slicesOf("a a a a a a a a b b b b c c c c"))
	algorithms := func(d Decision) string {
		meanwhile := "none"
		if d.Meanwhile != nil {
			meanwhile = string(d.Meanwhile.Request.Intent.Bound.Algorithm)
		}
		return string(d.Request.Intent.Bound.Algorithm) + ", meanwhile " + meanwhile
	}
	d := decided(t, in)
	if got := algorithms(d); got != "flow, meanwhile optimal" || d.Meanwhile.Undelivered || d.Meanwhile.Request.Groups {
		t.Errorf("%s, undelivered %t", got, d.Meanwhile.Undelivered)
	}
	in.Settings.WithoutGroups = true
	if d = decided(t, in); d.Delivery != allocate.DeliveryHints || algorithms(d) != "optimal, meanwhile none" {
		t.Errorf("without groups: %s by %s", algorithms(d), d.Delivery)
	}
	in.Settings.WithoutGroups = false
	in.Service.Annotations, in.Policies = dividedBy("flow")
	if d = decided(t, in); algorithms(d) != "flow, meanwhile flow" || !d.Meanwhile.Undelivered {
		t.Errorf("a policy that names flow: %s, delivered", algorithms(d))
	}
}

// exchanged are the consumers of the endpoints, but that two of one zone have those of
// each other.
func exchanged(t *testing.T, f FamilyDecision) map[string]allocate.ConsumerSet {
	t.Helper()
	assigned := maps.Clone(f.Assigned)
	for _, a := range f.Endpoints {
		for _, b := range f.Endpoints {
			if x, y := assigned[a.Address], assigned[b.Address]; a.Zone == b.Zone && x != y {
				assigned[a.Address], assigned[b.Address] = y, x
				return assigned
			}
		}
	}
	t.Fatal("all endpoints of a zone have the same consumers")
	return nil
}
