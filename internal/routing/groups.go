package routing

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/routing/groups"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// GroupState is the input of groups besides the decision.
type GroupState struct {
	Now time.Time
	// HandOver says that kube-proxy serves the Service too, or that its endpoints leave a domain, so proxies have to
	// acknowledge what they have programmed.
	HandOver bool
}

// Groups returns the next step towards the groups that deliver a decision.
func Groups(in Input, d Decision, at GroupState) groups.Changes {
	of := groups.Input{
		Service: in.Service, Slices: intent.ProxySlices(in.Service, in.Slices), Groups: in.Groups, Cluster: in.Cluster, Intent: d.Request.Intent,
		Size: in.Settings.GroupSize, Grace: in.Settings.ShrinkGrace, Now: at.Now, HandOver: at.HandOver,
	}
	if d.Shifting.Moves && !intent.IsHeadless(in.Service) {
		of.IsDrained = func(e *v1alpha1.GroupEndpoint) bool {
			s := in.shiftOf(e.Node, e.Zone)
			return s != nil && s.Drained
		}
	}
	for i := range d.Families {
		f := &d.Families[i]
		plan := groups.Plan{Family: f.Family, Region: f.Region, Plan: f.Plan, Assigned: f.Assigned}
		if f.Nodes != nil {
			plan.Skips = f.Nodes.Skips
		}
		of.Plans = append(of.Plans, plan)
	}
	return groups.Next(of)
}

// decideHeadless completes the decision about a headless Service, which only groups can deliver.
func (d *Decision) decideHeadless(in Input) {
	switch {
	case d.Delivery == allocate.DeliveryNone:
		return
	case in.Settings.WithoutGroups:
		d.Delivery = allocate.DeliveryNone
		d.note("%s has no effect: %s, and DNS reads the plan of a headless Service from groups", d.Request.Source, intent.GroupsAreOff)
		if d.Request.Selected {
			d.unreported++
		}
		return
	case d.Request.Selected && len(in.Groups) == 0 && !hasEndpoints(in.Slices):
		// Only endpoints show whether members have names, and a policy must not hide the first members of a StatefulSet
		// from each other.
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

// Unproxied reports whether no proxy reads the groups of a Service: it is headless, or it asks for no groups and was
// headless when its groups were written.
func Unproxied(in Input, d Decision) bool {
	switch {
	case intent.IsHeadless(in.Service):
		return true
	case d.Delivery == allocate.DeliveryGroups:
		return false
	}
	return len(in.Groups) > 0 && !slices.ContainsFunc(in.Groups, func(group *v1alpha1.EndpointGroup) bool {
		_, headless := group.Labels[corev1.IsHeadlessService]
		return !headless
	})
}

// decideMeanwhile returns the decision that hints follow while kube-proxy serves a Service that asks for
// vicinity-proxy, which may last for ever if one node never gets a proxy. It is nil if there is nothing to hint.
func decideMeanwhile(in Input, request intent.Request) (*Decision, error) {
	request = request.WithGroups(false)
	d := &Decision{Request: request, Shifting: shiftingOf(&in, request)}
	d.Delivery = d.delivery(in.Service)
	if intent.IsHandedOver(in.Service) || d.Delivery != allocate.DeliveryHints {
		return nil, nil
	}
	if in.Settings.WithoutHints {
		d.Delivery, d.Undelivered = allocate.DeliveryNone, true
		d.note(intent.HintsAreOff)
		return d, nil
	}
	in.Last = in.Last.Hinted()
	if err := d.planByHints(in); err != nil {
		return nil, err
	}
	return d, nil
}

// Hinted returns the decision that hints follow.
func (d *Decision) Hinted() *Decision {
	if d != nil && d.Meanwhile != nil {
		return d.Meanwhile
	}
	return d
}

// Leaving returns the decision that groups follow between the hand-back to kube-proxy and their deletion, while nodes
// still use them: the given one, or balanced traffic if it has no plan.
func Leaving(in Input, d Decision) (Decision, error) {
	if len(d.Families) > 0 {
		return d, nil
	}
	d.Request.Intent = allocate.Intent{}
	in.Slices = intent.ProxySlices(in.Service, in.Slices)
	err := d.plan(in)
	return d, err
}
