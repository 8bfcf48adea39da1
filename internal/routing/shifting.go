package routing

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/routing/hints"
	routingintent "vicinity.dev/vicinity/internal/routing/intent"
	"vicinity.dev/vicinity/internal/shift"
)

// Shifting is the effect of zone shifts on one Service.
type Shifting struct {
	// Moves says that the endpoints in shifted domains get no new connections.
	Moves bool
	// Yields says that they stay in service, because those outside would get more load than the bound allows.
	Yields bool
	// Stays says why they stay in service for another reason, or which connections still reach them. It is empty for most
	// Services.
	Stays string
	// Inside and Outside count the ready endpoints, of the family that gets more load.
	Inside, Outside int
	// Near says which domain of a near Service has too few endpoints left for its clients, empty if none has.
	Near string
	// Bound is the least bound of the shifts that hold endpoints of the Service, in percent.
	Bound int
	// load is the greatest load of an endpoint outside, as a multiple of today's.
	load float64
}

// ShiftingOf returns the effect of an input's shifts.
func ShiftingOf(in Input) Shifting {
	in.Slices = routingintent.ProxySlices(in.Service, in.Slices)
	return shiftingOf(&in, RequestOf(in))
}

// FollowsGroups reports whether groups deliver the shifts of an input, rather than hints.
func FollowsGroups(in Input) bool {
	request := RequestOf(in)
	return (request.Groups || request.Headless) && !in.Settings.WithoutGroups
}

func shiftingOf(in *Input, request routingintent.Request) (s Shifting) {
	request.Groups = request.Groups && !in.Settings.WithoutGroups
	in.Shifts = slices.DeleteFunc(slices.Clone(in.Shifts), func(s shift.Shift) bool {
		return s.Returning && !request.Groups || !in.hasEndpointIn(&s)
	})
	if len(in.Shifts) == 0 {
		return s
	}
	s.Bound = slices.MinFunc(in.Shifts, func(a, b shift.Shift) int { return cmp.Compare(a.MaxOverload, b.MaxOverload) }).MaxOverload
	isReady := false
	// Clients of a port need an endpoint that has it.
	for _, eps := range hints.ByPort(in.Slices) {
		endpoints := routingintent.SliceEndpoints(eps, in.Cluster)
		for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
			if len(endpoints[family]) == 0 {
				continue
			}
			isReady = true
			outside, inside := in.divide(endpoints[family])
			if s.Stays == "" {
				s.Stays = in.stays(request, inside, outside)
			}
			if len(inside)*s.Outside >= s.Inside*len(outside) {
				s.Inside, s.Outside = len(inside), len(outside)
			}
			s.addNear(in, request, inside, outside)
			s.Yields = s.Yields || s.Near != "" || in.exceeds(request, inside, outside, s.Bound)
		}
	}
	if !isReady && in.Service.Labels[v1alpha1.LabelRouted] != "true" && len(in.Groups) == 0 {
		return Shifting{} // reasons to stay depend on ready endpoints
	}
	if s.Stays != "" {
		s.Yields, s.Near = false, ""
		return s
	}
	s.Moves = !s.Yields
	if s.Moves && in.Service.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		s.Stays = "externalTrafficPolicy: Local: connections from outside the cluster still end on the node that they reach; others move"
	}
	return s
}

// addNear notes the load of the endpoints outside. Clients that prefer a domain concentrate on what is left of it, unless
// a plan bounds that; it cannot within a required domain. Hints that cannot express a request express no preference.
func (s *Shifting) addNear(in *Input, request routingintent.Request, inside, outside []routingintent.Endpoint) {
	s.load = max(s.load, 1+float64(len(inside))/float64(max(len(outside), 1)))
	intent := shifted(request).Intent
	keys := intent.Tiers
	switch {
	case !request.Groups && !request.Headless && routingintent.NeedOfGroups(intent) != "":
		return
	case intent.Bound != nil && intent.Tiers.Hard():
		keys = keys[len(keys)-1:]
	case intent.Bound != nil:
		return
	}
	for _, key := range keys {
		leave, left := in.countByDomain(key, inside), in.countByDomain(key, outside)
		for _, domain := range slices.Sorted(maps.Keys(leave)) {
			leaving, staying := leave[domain], left[domain]
			if domain == "" || staying == 0 {
				continue
			}
			s.load = max(s.load, 1+float64(leaving)/float64(staying))
			if s.Near == "" && shift.Exceeds(leaving, staying, s.Bound) {
				s.Near = fmt.Sprintf("clients near %s=%s have %s left, and %d leave", key, domain, plaintext.Plural(staying, "ready endpoint"), leaving)
			}
		}
	}
}

func (in *Input) countByDomain(key string, endpoints []routingintent.Endpoint) map[string]int {
	counts := map[string]int{}
	for _, e := range endpoints {
		counts[in.Cluster.DomainOf(e.Node, e.Zone, key)]++
	}
	return counts
}

// hasEndpointIn reports whether a slice has an endpoint in the domain, ready or not.
func (in *Input) hasEndpointIn(s *shift.Shift) bool {
	return slices.ContainsFunc(in.Slices, func(slice *discoveryv1.EndpointSlice) bool {
		return slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool { return s.HoldsEndpoint(&e, in.Cluster) })
	})
}

// exceeds reports whether endpoints outside would get more load than the bound. Hints may have to divide many zones into
// groups, which adds to the load of the busiest.
func (in *Input) exceeds(request routingintent.Request, inside, outside []routingintent.Endpoint, bound int) bool {
	if request.Groups || request.Headless || len(in.Cluster.Zones()) <= v1alpha1.MaxHints || len(outside) == 0 {
		return shift.Exceeds(len(inside), len(outside), bound)
	}
	of := hints.Input{Region: in.Cluster.Region(request.Capacity, outside), Endpoints: outside}
	load := of.BusiestGroup(in.Cluster.Zones()) * float64(len(inside)+len(outside)) / float64(len(outside))
	return len(inside) > 0 && 100*(load-1) > float64(bound)+tolerance
}

// tolerance is for sums of fractions, in percent.
const tolerance = 0.001

// shiftOf returns the shift of the domain of an endpoint, nil if there is none.
func (in *Input) shiftOf(node, zone string) *shift.Shift {
	for i := range in.Shifts {
		if s := &in.Shifts[i]; s.Holds(in.Cluster.Labels(node), zone) {
			return s
		}
	}
	return nil
}

// isOut reports whether an endpoint of a slice is in a shifted domain.
func (in *Input) isOut(e *discoveryv1.Endpoint) bool {
	return slices.ContainsFunc(in.Shifts, func(s shift.Shift) bool { return s.HoldsEndpoint(e, in.Cluster) })
}

// divide divides ready endpoints into those outside all shifted domains and those inside one.
func (in *Input) divide(ready []routingintent.Endpoint) (outside, inside []routingintent.Endpoint) {
	for _, e := range ready {
		if in.shiftOf(e.Node, e.Zone) != nil {
			inside = append(inside, e)
		} else {
			outside = append(outside, e)
		}
	}
	return outside, inside
}

// stays returns why the endpoints of a Service cannot leave a domain, empty if they can.
func (in *Input) stays(request routingintent.Request, inside, outside []routingintent.Endpoint) string {
	service := in.Service
	byHints := !request.Groups && !request.Headless
	proxy := service.Labels[v1alpha1.LabelServiceProxyName]
	foreign := slices.IndexFunc(in.Slices, hints.IsForeign)
	switch zones := len(in.Cluster.Zones()); {
	case request.NoPlan != "" && !request.Headless:
		return request.NoPlan
	case request.Headless && routingintent.PeersReason(service, routingintent.GivesNames(in.Slices)) != "":
		return routingintent.PeersReason(service, routingintent.GivesNames(in.Slices))
	case request.Headless && in.Settings.WithoutGroups:
		return routingintent.GroupsAreOff + ", and DNS reads from groups which endpoints leave"
	case foreign >= 0:
		return fmt.Sprintf("EndpointSlice %s is not written by Kubernetes' own controller", in.Slices[foreign].Name)
	case proxy != "" && proxy != v1alpha1.ServiceProxyName:
		return fmt.Sprintf("label %s gives the Service to %q", v1alpha1.LabelServiceProxyName, proxy)
	case len(inside) > 0 && len(outside) == 0:
		return "all its ready endpoints are in the domain"
	case byHints && slices.Contains(in.Cluster.Zones(), hints.NoZone):
		return "a zone has the name " + hints.NoZone + ", by which hints name no zone"
	case byHints && len(hints.ByPort(in.Slices)) > 1 && zones > v1alpha1.MaxHints:
		return fmt.Sprintf("its endpoints have different ports, and hints cannot give %d zones endpoints of each", zones)
	case byHints && in.Settings.WithoutHints:
		return routingintent.HintsAreOff
	case zones == 0:
		return "no node has the label " + corev1.LabelTopologyZone + ", by which clients follow hints and groups"
	case byHints && len(outside)*v1alpha1.MaxHints < zones:
		return fmt.Sprintf("an endpoint can have hints for at most %d zones, so %d endpoints outside cannot serve %d zones", v1alpha1.MaxHints, len(outside), zones)
	case !byHints && request.Intent.Tiers.Hard():
		return in.strands(request, outside)
	}
	return ""
}

// strands says which clients in a shifted domain reach only endpoints that leave, because the Service requires a near
// one.
func (in *Input) strands(request routingintent.Request, outside []routingintent.Endpoint) string {
	for i := range in.Shifts {
		s := &in.Shifts[i]
		for _, node := range in.Cluster.Domains(s.Key)[s.Value] {
			reaches := slices.ContainsFunc(request.Intent.Tiers, func(key string) bool {
				domain := in.Cluster.Domain(node, key)
				return domain != "" && slices.ContainsFunc(outside, func(e routingintent.Endpoint) bool { return in.Cluster.Domain(e.Node, key) == domain })
			})
			if !reaches {
				return fmt.Sprintf("%s: clients on node %s would reach no endpoint", request.Source, node)
			}
		}
	}
	return ""
}

// shifted completes a request for a Service whose endpoints leave: one that asks for nothing gets balanced traffic.
func shifted(request routingintent.Request) routingintent.Request {
	if request.Headless && request.NoPlan != "" {
		request.NoPlan, request.Intent = "", allocate.Intent{}
	}
	return request
}

// boundRequest is the request with the bound that keeps the load of a shift and of the plan together within that of the
// shift. hasRoom says that the bound is enough for a plan.
func (d *Decision) boundRequest() (request routingintent.Request, hasRoom bool) {
	request = d.Request
	if !d.Shifting.Moves || request.Intent.Bound == nil {
		return request, true
	}
	bound := *request.Intent.Bound
	left := (1+float64(d.Shifting.Bound)/100)/max(d.Shifting.load, 1) - 1
	bound.OverloadThreshold = min(bound.OverloadThreshold, max(left, minimalBound))
	request.Intent.Bound = &bound
	return request, left > minimalBound
}

// minimalBound is the least overload for which a plan is made.
const minimalBound = 0.01

// keepShare gives the endpoints that leave the share of connections that a ramp leaves them. DNS has no weights, so there
// they leave at once.
func (f *FamilyDecision) keepShare(in *Input, request *routingintent.Request, inside []routingintent.Endpoint) {
	for _, e := range inside {
		weight := in.shiftOf(e.Node, e.Zone).Weight
		if weight == 0 || request.Headless {
			f.Assigned[e.Address] = allocate.ConsumerSet{}
			continue
		}
		weights := map[string]float64{}
		for i := range f.Region.Zones {
			if zone := f.Region.Zones[i].Name; request.AsksNothing() || zone == e.Zone {
				weights[zone] = weight
			}
		}
		f.Assigned[e.Address] = allocate.NewWeightedConsumerSet(weights)
	}
}

// KeptOut counts the endpoints of a domain that stored slices and groups keep out of service.
func KeptOut(s *shift.Shift, in *Input) (out int) {
	for _, slice := range in.Slices {
		_, kept := SliceShare(s, slice, in.Cluster)
		out += kept
	}
	for _, group := range in.Groups {
		// Without zones, groups have no consumers.
		if inside, weight := GroupShare(s, group, in.Cluster); inside && weight == 0 && len(in.Cluster.Zones()) > 0 {
			out += len(group.Spec.Endpoints)
		}
	}
	return out
}

// SliceShare counts the endpoints of a slice in a domain, and how many of them its hints keep out of service.
func SliceShare(s *shift.Shift, slice *discoveryv1.EndpointSlice, cluster *routingintent.Cluster) (inside, out int) {
	for i := range slice.Endpoints {
		if e := &slice.Endpoints[i]; hints.IsUsed(e) && s.HoldsEndpoint(e, cluster) {
			inside++
			if hints.IsOut(e) {
				out++
			}
		}
	}
	return inside, out
}

// GroupShare reports whether a group has endpoints of a domain, and the greatest weight that a zone gives them.
func GroupShare(s *shift.Shift, group *v1alpha1.EndpointGroup, cluster *routingintent.Cluster) (inside bool, weight int32) {
	inside = slices.ContainsFunc(group.Spec.Endpoints, func(e v1alpha1.GroupEndpoint) bool {
		return !e.NotReady && s.HoldsEndpoint(&discoveryv1.Endpoint{NodeName: &e.Node, Zone: &e.Zone}, cluster)
	})
	for _, consumer := range group.Spec.Consumers {
		weight = max(weight, consumer.Weight)
	}
	return inside, weight
}
