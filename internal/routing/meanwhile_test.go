package routing

import (
	"testing"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
)

// Until groups with weights are served, the plan for hints has no weights.
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
	d := mustDecide(t, in)
	if got := algorithms(d); got != "flow, meanwhile optimal" || d.Meanwhile.Undelivered || d.Meanwhile.Request.Groups {
		t.Errorf("%s, undelivered %t", got, d.Meanwhile.Undelivered)
	}
	in.Settings.WithoutGroups = true
	if d = mustDecide(t, in); d.Delivery != allocate.DeliveryHints || algorithms(d) != "optimal, meanwhile none" {
		t.Errorf("without groups: %s by %s", algorithms(d), d.Delivery)
	}
	in.Settings.WithoutGroups = false
	in.Service.Annotations, in.Policies = dividedBy("flow")
	if d = mustDecide(t, in); algorithms(d) != "flow, meanwhile flow" || !d.Meanwhile.Undelivered {
		t.Errorf("a policy that names flow: %s, delivered", algorithms(d))
	}
}
