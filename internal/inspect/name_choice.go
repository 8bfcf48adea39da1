package inspect

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/internal/endpoint"
	"vicinity.dev/vicinity/internal/explain"
	"vicinity.dev/vicinity/internal/names"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/topology"
	"vicinity.dev/vicinity/internal/translate"
)

// choose keeps of an answer the records that are for the client.
func (v *nameView) choose(a *NameAnswer) {
	if v.groups == nil || !v.ofService || a.Result != ResultRecords || v.e.Rule == RuleExternalName {
		return
	}
	addresses := addressesIn(slices.Concat(a.Records, a.Additional))
	if !v.groups.Decides(slices.Values(addresses)) {
		if v.e.Rule == RuleGroups {
			v.e.Rule = RuleLeftOver
		}
		return
	}
	v.e.Rule = RuleGroups
	if v.placeUnknown() {
		a.Result, a.Records, a.Additional = ResultUnknown, []NameRecord{}, nil
		a.Why = "it depends on where the client is"
		return
	}
	var chosen endpoint.Chosen
	if a.Type == TypeSRV {
		chosen = v.chooseTargets(a, addresses)
	} else {
		endpoints := v.groups.Endpoints[names.FamilyOf(addresses[0])]
		if endpoints == nil {
			a.Why = "no group of the Service has addresses of the family, so every client gets all"
			return
		}
		chosen = endpoints.Choose(v.client, addresses)
		a.Records = kept(a.Records, func(i int) bool { return chosen.Takes[i] })
	}
	a.Tier = chosen.Tier
	if len(a.Records) == 0 {
		a.Result = ResultEmpty
	}
	a.Why = v.chosenText(a, chosen)
}

// chooseTargets keeps the SRV records whose targets the client uses.
func (v *nameView) chooseTargets(a *NameAnswer, addresses []netip.Addr) endpoint.Chosen {
	targets := v.groups.Targets(v.client, addresses)
	of := map[string][]netip.Addr{}
	for i := range a.Additional {
		r := &a.Additional[i]
		of[strings.ToLower(r.Name)] = append(of[strings.ToLower(r.Name)], addressesIn(a.Additional[i:i+1])...)
	}
	a.Records = kept(a.Records, func(i int) bool { return targets.Takes(of[strings.ToLower(a.Records[i].Target)]) })
	additional := addressesIn(a.Additional)
	a.Additional = kept(a.Additional, func(i int) bool { return targets.Uses(additional[i]) })
	if len(a.Records) == 0 {
		a.Additional = nil
	}
	return endpoint.Chosen{All: targets.All, Tier: targets.Tier, Count: len(a.Records)}
}

// kept are the records that a rule keeps.
func kept(records []NameRecord, keep func(i int) bool) []NameRecord {
	all := []NameRecord{}
	for i := range records {
		if keep(i) {
			all = append(all, records[i])
		}
	}
	return all
}

// chosenText says which records a client gets by its place.
func (v *nameView) chosenText(a *NameAnswer, chosen endpoint.Chosen) string {
	switch {
	case len(a.Records) == 0:
		return fmt.Sprintf("the keys do not end with %s, and none of %s shares one of them with the client", topology.Anywhere, v.endpointsFor())
	case chosen.All:
		return "nothing is meant for the client, so it gets everything"
	case chosen.Tier == topology.Anywhere:
		return "no endpoint shares a key with the client, and the keys end with " + topology.Anywhere
	case chosen.Tier != "":
		return fmt.Sprintf("those that share %s=%s with the client", chosen.Tier, v.client.Value(chosen.Tier))
	case len(a.Records) == a.Of:
		return "the plan has all for " + v.zoneText()
	}
	return "those that the plan has for " + v.zoneText()
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

// why says what the records are that every client gets, or why there are none.
func (s *stockName) why(a *NameAnswer) string {
	service := s.in.Service.Service
	headless := translate.IsHeadless(service)
	switch {
	case s.impossible:
		return "no name of a Service has this form"
	case s.zone != "" && !headless:
		return "names with a zone are of headless Services only"
	case service.Spec.Type == corev1.ServiceTypeExternalName && s.name.Prefix == "" && a.Result == ResultNoName:
		return "the external name is an address, of which CoreDNS makes no alias"
	case service.Spec.Type == corev1.ServiceTypeExternalName && a.Result == ResultEmpty:
		return "the Service is an alias, and CoreDNS has no SRV records of aliases"
	case service.Spec.Type == corev1.ServiceTypeExternalName && a.Result == ResultNoName:
		return "an external name has neither endpoints nor ports"
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return "the Service is an alias"
	case a.Result == ResultNoName && s.endpoint != "":
		return "no endpoint that is ready has the name"
	case a.Result == ResultNoName && headless && s.port == "":
		return "no endpoint of the Service is ready"
	case a.Result == ResultNoName && headless:
		return "no endpoint of the Service that is ready has the port"
	case a.Result == ResultNoName:
		return "the Service has no such port"
	case a.Result == ResultEmpty && s.zone != "":
		return "no endpoint that is ready is in the zone"
	case a.Result == ResultEmpty && s.exists && len(s.endpoints()) == 0:
		return "no endpoint of the Service is ready"
	case a.Result == ResultEmpty && a.Type == TypeSRV && s.nameAsEndpoint() != "":
		return "the endpoints are names, of which CoreDNS has no SRV records"
	case a.Result == ResultEmpty && a.Type == TypeSRV:
		return "there is no port"
	case a.Result == ResultEmpty:
		return "there are only addresses of the other family"
	case s.endpoint != "":
		return "the endpoint that the name is of, for every client"
	case s.zone != "":
		return "what CoreDNS' option zonal gives for the zone in the name, whoever asks"
	case headless:
		return "all endpoints, for every client"
	}
	return "the cluster IP, for every client: proxies choose among the endpoints"
}

// dropOtherFamily leaves out that there are no addresses of a family, unless it was asked for.
func (v *nameView) dropOtherFamily() {
	some := slices.ContainsFunc(v.e.Answers, func(a NameAnswer) bool { return a.Result == ResultRecords || a.Of > 0 })
	if len(v.in.Types) > 0 || len(v.e.Answers) == 0 {
		return
	}
	if !some {
		v.e.Answers = v.e.Answers[:1]
		return
	}
	v.e.Answers = slices.DeleteFunc(v.e.Answers, func(a NameAnswer) bool { return a.Of == 0 })
}

// tell says why the client gets that.
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
		e.Why = append(e.Why, "its groups have none of these addresses, and there is no EndpointSlice with the label "+names.Selector+": they are left of when the Service was headless")
	case RuleEndpoint:
		e.Why = append(e.Why, "names of endpoints are left as they are")
	case RuleZoneName:
		e.Why = append(e.Why, v.zoneNameText())
	case RuleClusterIP:
		e.Why = append(e.Why, "only names of headless Services depend on the client")
	}
	if e.Rule == RuleGroups || e.Rule == RuleWhole || e.Rule == RuleLeftOver {
		e.Warnings = appendNew(e.Warnings, d.Request.Warnings)
	}
	if e.Rule != RuleGroups {
		return
	}
	for _, slice := range in.Slices {
		if _, counts := slice.Labels[names.Selector]; !counts {
			e.Warnings = append(e.Warnings, fmt.Sprintf("the DNS server does not read EndpointSlice %s, which lacks the label %s: what no group has of it yet is nowhere near a client", slice.Name, names.Selector))
		}
	}
	if slices.ContainsFunc(e.Answers, func(a NameAnswer) bool { return len(a.Records) < a.Of }) {
		e.NotKnown = append(e.NotKnown, "which DNS server the client asks: any but vicinity-dns gives every client all")
	}
}

// zoneNameText says why a name with a zone is CoreDNS' own.
func (v *nameView) zoneNameText() string {
	switch _, prefers := v.name.Preferred(); {
	case !prefers:
		return "Vicinity leaves names that are confined to a zone as they are"
	case !v.in.Plan:
		return "Vicinity leaves names with a zone as they are; --plan is for servers whose Corefile has the directive plan"
	}
	return "the directive plan is for headless Services with groups and EndpointSlices, so the name is left as it is"
}

// wholeText says why there are no groups.
func (v *nameView) wholeText() []string {
	in, d := v.in.Service, &v.decision
	switch {
	case in.LeftAlone != "":
		return []string{"vicinity-controller leaves the Service alone, since " + in.LeftAlone}
	case v.undelivered():
		return []string{"the Service asks for what is near, and no group of it is written yet"}
	case len(d.Notes) > 0:
		return d.Notes
	case d.Request.NoPlan != "":
		return []string{d.Request.NoPlan}
	}
	return []string{"there are no groups of the Service"}
}

// advise finds what to do, what matters most first.
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
		add("have vicinity-controller run: %s (%s)", in.Stopped, runbookController)
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
	if decides && v.disputed && v.placeUnknown() {
		add("find out which of the pods has the address %s (%s)", v.e.Client.Address, runbookLocation)
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
	none := func(result NameResult) bool {
		return slices.ContainsFunc(v.e.Answers, func(a NameAnswer) bool { return a.Result == result && (a.Of > 0 || result == ResultNoName) })
	}
	byHand := len(in.Service.Spec.Selector) == 0
	noneReady := (decides || v.e.Rule == RuleWhole) && none(ResultNoName) && v.name.Prefix == "" ||
		v.anyClient && len(v.groups.Ready[names.V4])+len(v.groups.Ready[names.V6]) == 0
	switch {
	case decides && none(ResultEmpty) && len(next) == 0 && byHand:
		add("add an endpoint near the client to the Service's EndpointSlices, or end the keys with %s", topology.Anywhere)
	case decides && none(ResultEmpty) && len(next) == 0:
		add("run a pod of the Service near the client, or end the keys with %s", topology.Anywhere)
	case noneReady && byHand:
		add("add ready endpoints to the Service's EndpointSlices: it has no selector")
	case noneReady:
		add("run ready pods that the Service selects")
	case v.e.Rule == RuleNoService:
		add("ask for a name that Services have: of the Service itself, of a port (_http._tcp.%s), of an endpoint, or with a zone", v.name.Service)
	case v.e.Rule == RuleExternalName && v.name.Prefix == "" && slices.Contains(v.in.Types, TypeSRV) && !none(ResultNoName):
		add("ask for the SRV records of %s", v.in.Service.Service.Spec.ExternalName)
	case v.e.Rule == RuleExternalName && none(ResultNoName) && v.name.Prefix == "":
		add("give the Service a name as its externalName, or make it a headless one with an EndpointSlice of the address")
	case v.e.Rule == RuleWhole && len(v.decision.Request.Warnings) > 0:
		add("correct what the warnings say of the Service")
	}
	if (decides || v.undelivered()) && in.Stopped == "" && len(in.pending(v.decision)) > 0 {
		if routing.NotWritten(in.Service) {
			add("find out what refuses the writes of the controller (%s)", runbookRefused)
		} else {
			add("wait some seconds; if the groups do not follow the plan then, look at the controller (%s)", runbookController)
		}
	}
	v.e.Next = next
}
