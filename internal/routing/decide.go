package routing

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	routingintent "vicinity.dev/vicinity/internal/routing/intent"
	"vicinity.dev/vicinity/internal/topology"
)

// Decide decides about a Service. An error means invalid input, which objects of the API cannot cause.
func Decide(in Input) (Decision, error) {
	in.Slices = routingintent.ProxySlices(in.Service, in.Slices)
	d, err := decide(in)
	if err != nil || !in.Renew || !d.HasRule(allocate.RuleRenewed) && !d.Undelivered {
		return d, err
	}
	in.Renew = false
	kept, err := decide(in)
	if err != nil || d.Undelivered || !d.improves(&kept) { // hints may not express the new plan
		return kept, err
	}
	d.noteKeptFigures(&kept)
	return d, nil
}

// RequestOf reads what the Service of an input asks for.
func RequestOf(in Input) routingintent.Request {
	options := in.Settings.Options()
	options.Defaults, options.GivesNames = in.Defaults, routingintent.GivesNames(in.Slices)
	return routingintent.RequestOf(in.Service, in.Policies, options)
}

// DeliveryOf returns how the plan of an input's Service gets to proxies, apart from hints that are switched off.
func DeliveryOf(in Input) allocate.Delivery {
	request := RequestOf(in)
	return deliveryOf(in.Service, request.WithGroups(request.Groups && !in.Settings.WithoutGroups))
}

// decide is Decide, except that it keeps a renewed plan that is no better than the previous one.
func decide(in Input) (Decision, error) {
	d := Decision{Request: RequestOf(in)}
	if d.Shifting = shiftingOf(&in, d.Request); d.Shifting.Moves {
		d.onlyShifted = deliveryOf(in.Service, d.Request) == allocate.DeliveryNone
		d.Request = shifted(d.Request)
	}
	if d.Request.Groups && in.Settings.WithoutGroups {
		d.Request = d.Request.WithGroups(false)
		d.note("%s has no effect: %s", d.Request.GroupsBy, routingintent.GroupsAreOff)
		if d.Request.GroupsBy != routingintent.ProxyAnnotation {
			d.unreported++
		}
	}
	if d.Delivery = d.delivery(in.Service); d.Delivery == allocate.DeliveryHints && in.Settings.WithoutHints {
		d.Delivery = allocate.DeliveryNone
		d.note("%s has no effect: %s", d.Request.Source, routingintent.HintsAreOff)
		if d.Request.Selected {
			d.unreported++
		}
	}
	if d.Request.Headless {
		d.decideHeadless(in)
	}
	if d.Request.Declined != "" {
		d.note("%s", d.Request.Declined)
		d.unreported++
	}
	var err error
	switch d.Delivery {
	case allocate.DeliveryNone:
		return d, nil
	case allocate.DeliveryHints:
		in.Last = in.Last.Hinted()
	case allocate.DeliveryGroups:
		if d.Request.Headless {
			break
		}
		if len(in.Cluster.Proxies().Windows) > 0 {
			d.note(WindowsUnserved)
		}
		if d.Meanwhile, err = decideMeanwhile(in, d.Request); err != nil {
			return Decision{}, err
		}
	}
	if d.Delivery == allocate.DeliveryHints {
		err = d.planByHints(in)
	} else {
		err = d.plan(in)
	}
	if err != nil {
		return Decision{}, err
	}
	if zones := in.Cluster.ImpossibleZones(in.Slices); len(zones) > 0 {
		d.note("an endpoint has the zone %q, which no node label can have, so it counts as unknown", zones[0])
	}
	if slices.ContainsFunc(in.Slices, hasHostNames) {
		d.note("EndpointSlices with addressType FQDN are ignored: %s addresses", d.needOfAddresses())
	}
	return d, nil
}

// WindowsUnserved is a note about a Service of vicinity-proxy in a cluster with Windows nodes. It does not count or name
// them: the condition would change with each node.
const WindowsUnserved = "pods on Windows nodes cannot reach the Service while vicinity-proxy serves it, since the proxy needs Linux: " +
	"annotate it with " + v1alpha1.AnnotationProxy + `: "false" if they need it`

// hasHostNames reports whether the slice has host names, which no proxy uses.
func hasHostNames(slice *discoveryv1.EndpointSlice) bool {
	return slice.AddressType == discoveryv1.AddressTypeFQDN
}

func (d *Decision) needOfAddresses() string {
	if d.Request.Headless {
		return "DNS records need"
	}
	return "proxies need"
}

func (d *Decision) plan(in Input) error {
	states := reasonOf(in.Service)
	planner := in.Planner
	if planner == nil {
		planner = new(allocate.Planner)
	}
	endpoints := routingintent.SliceEndpoints(in.Slices, in.Cluster)
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		ready, found := endpoints[family]
		if !found {
			continue
		}
		var inside []routingintent.Endpoint
		if d.Shifting.Moves {
			ready, inside = in.divide(ready)
		}
		f := FamilyDecision{Family: family, Endpoints: ready, Region: in.Cluster.Region(d.Request.Capacity, ready)}
		bound, hasRoom := d.boundRequest()
		intent := bound.Intent
		if !hasRoom {
			intent = allocate.Intent{}
		}
		if !hasRoom && !d.onlyShifted {
			d.note("a ZoneShift leaves no room for nearness: the endpoints outside its domain hold its bound only if all zones use all of them")
		}
		if d.Delivery == allocate.DeliveryHints && !intent.Tiers.Hard() && f.Region.ActiveZones() != 1 {
			intent.Tiers = withoutFineTiers(intent.Tiers)
		}
		before := previous{state: states.State(family), assigned: assignedBefore(in, d.Delivery, family), renew: in.Renew, discarded: slices.Contains(in.discarded, family)}
		if last := in.Last.family(family); last != nil {
			before.state = last.Outcome.State
		} else if d.Delivery == allocate.DeliveryHints && before.state == allocate.Allocated && len(before.assigned) == 0 && !states.isUnwritten() {
			assignToAll(before.assigned, ready, f.Region)
		}
		if err := f.decide(planner, intent, before); err != nil {
			return fmt.Errorf("planning %s: %w", family, err)
		}
		if d.Delivery == allocate.DeliveryGroups {
			f.keepShare(&in, &d.Request, inside)
			if tiers, _ := NodeTiers(in.Cluster, bound, d.Delivery, ready); tiers != nil {
				f.planNodes(in, tiers)
			}
		}
		d.Families = append(d.Families, f)
	}
	return nil
}

// deliveryOf returns how the plan of a Service gets to proxies. Balanced traffic needs hints only where Kubernetes
// would write its own.
func deliveryOf(service *corev1.Service, request routingintent.Request) allocate.Delivery {
	switch {
	case request.NoPlan != "":
		return allocate.DeliveryNone
	case request.Groups || request.Headless:
		return allocate.DeliveryGroups
	case request.Source == "" || request.Upstream:
		return allocate.DeliveryNone
	case request.AsksNothing() && !routingintent.HintedUpstream(service):
		return allocate.DeliveryNone
	}
	return allocate.DeliveryHints
}

// delivery is deliveryOf, except that a Service whose endpoints leave a domain has a plan in any case.
func (d *Decision) delivery(service *corev1.Service) allocate.Delivery {
	if delivery := deliveryOf(service, d.Request); delivery != allocate.DeliveryNone || !d.Shifting.Moves {
		return delivery
	}
	return allocate.DeliveryHints
}

// NothingToChoose reports whether hints would change nothing, because one zone has all nodes and all endpoints.
func (d *Decision) NothingToChoose() bool {
	return !d.Shifting.Moves && d.Delivery == allocate.DeliveryHints && !d.Request.OwnZone && !d.Undelivered && len(d.Families) > 0 &&
		!slices.ContainsFunc(d.Families, func(f FamilyDecision) bool { return f.Outcome.Rule != allocate.RuleOneZone })
}

// withoutFineTiers returns the tiers that a plan by zones decides. Nodes apply finer tiers to the endpoints of their zone.
func withoutFineTiers(tiers topology.Tiers) topology.Tiers {
	kept := topology.Tiers{}
	for _, key := range tiers {
		if !topology.IsFine(key) {
			kept = append(kept, key)
		}
	}
	if len(kept) == 0 && len(tiers) > 0 {
		kept = topology.Tiers{topology.Anywhere}
	}
	return kept
}

type previous struct {
	state    allocate.State
	assigned map[string]allocate.ConsumerSet

	// renew is Input.Renew. discarded says that the previous plan is not kept.
	renew, discarded bool
}

// decide plans for one family.
func (f *FamilyDecision) decide(planner *allocate.Planner, intent allocate.Intent, before previous) error {
	endpoints := make([]allocate.Endpoint, len(f.Endpoints))
	for i, e := range f.Endpoints {
		endpoints[i] = allocate.Endpoint{ID: e.Address, Zone: e.Zone, Assigned: before.assigned[e.Address]}
	}
	past := allocate.Previous{State: before.state, Renew: before.renew}
	if past.State == allocate.Allocated && !before.discarded {
		past.Plan = allocate.Survivors(endpoints)
	}
	plan, outcome, err := planner.Allocate(f.Region, intent, past)
	if err != nil {
		return err
	}
	f.Plan, f.Outcome = plan.Clone(), outcome
	if f.Moved, err = allocate.Assign(plan, endpoints); err != nil {
		return err
	}
	f.Assigned = make(map[string]allocate.ConsumerSet, len(endpoints))
	for i := range endpoints {
		f.Assigned[endpoints[i].ID] = endpoints[i].Assigned
	}
	return nil
}

func (d *Decision) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(d.Notes, text) {
		d.Notes = append(d.Notes, text)
	}
}
