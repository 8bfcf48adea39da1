package routing

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/translate"
)

// byNames completes the decision about a headless Service, which only groups can deliver.
func (d *Decision) byNames(in Input) {
	switch {
	case d.Delivery == allocate.DeliveryNone:
		return
	case in.Settings.WithoutGroups:
		d.Delivery = allocate.DeliveryNone
		d.note("%s has no effect: %s, and DNS reads the plan of a headless Service from groups", d.Request.Source, translate.GroupsAreOff)
		if d.Request.Selected {
			d.unreported++
		}
		return
	case d.Request.Selected && len(in.Groups) == 0 && !hasEndpoints(in.Slices):
		// Only endpoints tell whether its members have names: a policy must not hide the
		// first members of a StatefulSet from each other.
		d.Delivery = allocate.DeliveryNone
		return
	}
	if d.Request.Hides != "" {
		d.note("%s", d.Request.Hides)
	}
}

func hasEndpoints(eps []*discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(eps, func(slice *discoveryv1.EndpointSlice) bool { return len(slice.Endpoints) > 0 })
}

// Unproxied reports whether no proxy reads the groups of a Service: it is headless, or it
// asks for no groups and those that are left are of a headless one.
func Unproxied(in Input, d Decision) bool {
	switch {
	case translate.IsHeadless(in.Service):
		return true
	case d.Delivery == allocate.DeliveryGroups:
		return false
	}
	return len(in.Groups) > 0 && !slices.ContainsFunc(in.Groups, func(group *v1alpha1.EndpointGroup) bool {
		_, headless := group.Labels[corev1.IsHeadlessService]
		return !headless
	})
}
