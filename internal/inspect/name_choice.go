package inspect

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/internal/endpoint"
	"vicinity.dev/vicinity/internal/names"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/explain"
	"vicinity.dev/vicinity/internal/topology"
)

// choose keeps only the client's records of an answer. The addresses are those of its records.
func (v *nameView) choose(a *NameAnswer, family int, addresses []netip.Addr) {
	if v.groups == nil {
		return
	}
	if !v.groups.Decides(slices.Values(addresses)) {
		if v.e.Rule == RuleGroups {
			v.e.Rule = RuleLeftOver
		}
		return
	}
	v.e.Rule = RuleGroups
	if v.placeUnknown() {
		a.Result, a.Records, a.Why = ResultUnknown, []NameRecord{}, "it depends on where the client is"
		return
	}
	endpoints := v.groups.Endpoints[family]
	if endpoints == nil {
		a.Why = "no group of the Service has addresses of the family, so every client gets all"
		return
	}
	chosen := endpoints.Choose(v.client, addresses)
	kept := []NameRecord{}
	for i, record := range a.Records {
		if chosen.Takes[i] {
			kept = append(kept, record)
		}
	}
	a.Records, a.Tier = kept, chosen.Tier
	if len(kept) == 0 {
		a.Result = ResultEmpty
	}
	a.Why = v.chosenText(a, chosen)
}

// chosenText says which records a client gets in its place.
func (v *nameView) chosenText(a *NameAnswer, chosen endpoint.Chosen) string {
	switch {
	case len(a.Records) == 0:
		return fmt.Sprintf("the keys do not end with %s, and none of %s shares one of them with the client", topology.Anywhere, v.endpointsFor())
	case chosen.All:
		return "the plan has nothing for the client, so it gets all endpoints"
	case chosen.Tier == topology.Anywhere:
		return "no endpoint shares a key with the client, and the keys end with " + topology.Anywhere
	case chosen.Tier != "":
		return fmt.Sprintf("the endpoints that share %s=%s with the client", chosen.Tier, v.client.Value(chosen.Tier))
	case len(a.Records) == a.Of:
		return "the plan gives all endpoints to " + v.zoneText()
	}
	return "the endpoints that the plan gives to " + v.zoneText()
}

func (v *nameView) zoneText() string {
	if v.client.Zone == "" {
		return "clients without a zone"
	}
	return "zone " + v.client.Zone
}

func (v *nameView) endpointsFor() string {
	if v.client.Zone == "" {
		return "the endpoints"
	}
	return "the endpoints that the plan has for zone " + v.client.Zone
}

func (v *nameView) tell() {
	e, in, d := v.e, v.in.Service, &v.decision
	e.AsksFor, e.Source = explain.Intent(d.Request.Intent), d.Request.Source
	if !v.placeUnknown() {
		v.countGroups()
	}
	switch e.Rule {
	case RuleGroups:
		if !v.anyClient {
			e.Why = append(e.Why, v.whereText())
		}
		if d.Request.Hides != "" {
			e.Warnings = append(e.Warnings, d.Request.Hides)
		}
	case RuleWhole:
		e.Why = append(e.Why, v.wholeText()...)
	case RuleLeftOver:
		e.Why = append(e.Why, "its groups have none of these addresses, and there is no EndpointSlice with the label "+names.Selector+": they are left over from when the Service was headless")
	}
	for _, warning := range d.Request.Warnings {
		if !slices.Contains(e.Warnings, warning) {
			e.Warnings = append(e.Warnings, warning)
		}
	}
	if e.Rule != RuleGroups {
		return
	}
	for _, slice := range in.Slices {
		if _, counts := slice.Labels[names.Selector]; !counts {
			e.Warnings = append(e.Warnings, fmt.Sprintf("the DNS server does not read EndpointSlice %s, which lacks the label %s: endpoints that no group has yet are near no client", slice.Name, names.Selector))
		}
	}
	if slices.ContainsFunc(e.Answers, func(a NameAnswer) bool { return len(a.Records) < a.Of }) {
		e.NotKnown = append(e.NotKnown, "which DNS server the client asks: only vicinity-dns follows the plan")
	}
}

func (v *nameView) wholeText() []string {
	in, d := v.in.Service, &v.decision
	switch {
	case in.LeftAlone != "":
		return []string{"vicinity-controller ignores the Service, because " + in.LeftAlone}
	case v.undelivered():
		return []string{"the Service asks for near endpoints, and no group of it is written yet"}
	case len(d.Notes) > 0:
		return d.Notes
	case d.Request.NoPlan != "":
		return []string{d.Request.NoPlan}
	}
	return []string{"there are no groups of the Service"}
}

// advise sets the next steps, most important first.
func (v *nameView) advise() {
	in := v.in.Service
	var next []string
	add := func(format string, args ...any) { next = append(next, fmt.Sprintf(format, args...)) }
	for _, kind := range []string{KindSlices, KindGroups, KindNodes, KindLocators} {
		if slices.Contains(v.in.Unread, kind) && (kind != KindLocators || v.placeUnknown()) {
			add("get the right to read %s (%s)", kind, PermissionsDocument)
		}
	}
	decides := v.e.Rule == RuleGroups
	if in.Stopped != "" && (decides || v.undelivered()) {
		add("start vicinity-controller: %s (%s)", in.Stopped, runbookController)
	}
	switch address := v.in.Client.Addresses[0]; {
	case !decides || v.placeUnknown() || v.e.Client.Located != unlocated || v.anyClient || len(v.e.Keys) == 0:
	case locatesNone(address):
		add("give the address that the DNS server sees of the client")
	default:
		add("find out what has the address %s (%s)", v.e.Client.Address, runbookLocation)
	}
	if pod := v.in.Client.Pod; pod != nil && names.ResolvesAsNode(&pod.Spec) {
		policy := corev1.DNSClusterFirst
		if pod.Spec.HostNetwork {
			policy = corev1.DNSClusterFirstWithHostNet
		}
		add("give the pod the dnsPolicy %s, so that it asks the DNS server of the cluster", policy)
	}
	if pod := v.in.Client.Pod; pod != nil && v.client.Node != "" && pod.Spec.NodeName != v.client.Node {
		add("find out why the address is found on another node (%s)", runbookLocation)
	}
	if decides && slices.ContainsFunc(v.in.Client.Nodes, func(n *corev1.Node) bool { return n.Name == v.client.Node }) {
		for _, key := range v.e.Keys {
			if key.Value == "" && key.Key != topology.Anywhere {
				add("label node %s with %s, if it is in such a place", v.client.Node, key.Key)
			}
		}
	}
	noneNear := decides && slices.ContainsFunc(v.e.Answers, func(a NameAnswer) bool { return a.Result == ResultEmpty && a.Of > 0 })
	noneReady := (decides || v.e.Rule == RuleWhole) && !v.name.IsPort() && v.e.Answers[0].Of == 0
	byHand := len(in.Service.Spec.Selector) == 0
	switch {
	case noneNear && len(next) == 0 && byHand:
		add("add an endpoint near the client to the Service's EndpointSlices, or end the keys with %s", topology.Anywhere)
	case noneNear && len(next) == 0:
		add("run a pod of the Service near the client, or end the keys with %s", topology.Anywhere)
	case noneReady && byHand:
		add("add ready endpoints to the Service's EndpointSlices: it has no selector")
	case noneReady:
		add("run ready pods that the Service selects")
	case v.e.Rule == RuleWhole && len(v.decision.Request.Warnings) > 0:
		add("correct what the warnings say of the Service")
	}
	if (decides || v.undelivered()) && in.Stopped == "" && len(in.pending(v.decision)) > 0 {
		if routing.TroubleNotWritten.IsOn(in.Service) {
			add("find out what refuses the writes of the controller (%s)", runbookRefused)
		} else {
			add("wait some seconds; if the groups still do not follow the plan, look at the controller (%s)", runbookController)
		}
	}
	if alias := v.e.Alias + "."; v.e.Alias != "" && names.Within(alias, v.in.Zone) {
		add("ask for the other name: vicinity explain dns %s --from ...", alias)
	}
	v.e.Next = next
}
