package routing

import (
	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/translate"
)

// meanwhile is what would be decided about a Service that is for vicinity-proxy if it
// were not, which is what hints say as long as kube-proxy serves it: that may be for
// good, if one node never gets a proxy. It is nil if there is nothing to hint.
func meanwhile(in Input, request translate.Request) (*Decision, error) {
	request = request.WithGroups(false)
	d := &Decision{Request: request, Delivery: deliveryOf(in.Service, request)}
	if served(in.Service) || d.Delivery != allocate.DeliveryHints {
		return nil, nil
	}
	if in.Settings.WithoutHints {
		d.Delivery, d.Undelivered = allocate.DeliveryNone, true
		d.note(translate.HintsAreOff)
		return d, nil
	}
	in.Last = in.Last.Hinted()
	if err := d.planByHints(in); err != nil {
		return nil, err
	}
	return d, nil
}

func served(service *corev1.Service) bool {
	return service.Labels[v1alpha1.LabelServiceProxyName] == v1alpha1.ServiceProxyName
}

// Hinted is the decision that hints follow, which is another than that of the groups.
func (d *Decision) Hinted() *Decision {
	if d != nil && d.Meanwhile != nil {
		return d.Meanwhile
	}
	return d
}

// Leaving is what the groups of a Service that is not for vicinity-proxy any more
// follow until they are deleted, because nodes go on using them: the decision, or
// balanced traffic if it has no plan.
func Leaving(in Input, d Decision) (Decision, error) {
	if len(d.Families) > 0 {
		return d, nil
	}
	d.Request.Intent = allocate.Intent{}
	in.Slices = translate.ProxySlices(in.Service, in.Slices)
	err := d.plan(in)
	return d, err
}
