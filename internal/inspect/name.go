package inspect

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/endpoint"
	"vicinity.dev/vicinity/internal/names"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// Types of records.
const (
	TypeA    = "A"
	TypeAAAA = "AAAA"
)

// NameReading is the input for the answer for a name, as it was read of a cluster.
type NameReading struct {
	// Name is the whole name of a Service, of one of its ports or endpoints, or one with a zone. Zone is that of the
	// cluster. Both end with a dot.
	Name, Zone string
	// Plan says that the Corefile of the server has the directive plan.
	Plan   bool
	Client ClientReading
	// Service is the input of the decision about the name's Service.
	Service *Reading
	// Unread are the kinds of objects that may not be read.
	Unread []string
}

// NameExplanation is the answer for a name, and the reason.
type NameExplanation struct {
	Name      string     `json:"name"`
	Namespace string     `json:"namespace,omitempty"`
	Service   string     `json:"service,omitempty"`
	Client    NameClient `json:"client"`
	// Rule is the rule that decides.
	Rule NameRule `json:"rule"`
	// Alias is the other name of a Service of type ExternalName.
	Alias string `json:"alias,omitempty"`
	// Missing says that the name does not exist now. A client then tries the next name of its search list.
	Missing bool `json:"missing,omitempty"`
	// Answers are empty if Vicinity does not change the answer, and for an alias.
	Answers []NameAnswer `json:"answers"`
	// Keys are the keys of near endpoints, with the client's values.
	Keys []NameKey `json:"keys,omitempty"`
	// Groups counts the groups of the Service, and GroupsUsed those for the client's zone.
	Groups     int      `json:"groups,omitempty"`
	GroupsUsed int      `json:"groupsUsed,omitempty"`
	AsksFor    string   `json:"asksFor,omitempty"`
	Source     string   `json:"source,omitempty"`
	Why        []string `json:"why,omitempty"`
	Warnings   []string `json:"warnings,omitempty"`
	NotKnown   []string `json:"notKnown,omitempty"`
	Next       []string `json:"next,omitempty"`
}

// NameRule is a rule that decides which records a client gets.
type NameRule string

// The rules.
const (
	// RuleGroups decides by the groups of a headless Service, its keys and the client's place.
	RuleGroups NameRule = "groups"
	// RuleWhole gives all endpoints of a headless Service without groups.
	RuleWhole NameRule = "whole"
	// RuleLeftOver gives all endpoints, because groups are left over from when the Service was headless.
	RuleLeftOver NameRule = "leftOver"
	// RuleUnchanged is for names whose answers Vicinity does not change.
	RuleUnchanged NameRule = "unchanged"
	// RuleAlias is for names of ExternalName Services: the client gets the answer for the other name.
	RuleAlias NameRule = "alias"
	// RuleUnread is for answers that depend on unread objects.
	RuleUnread NameRule = "unread"
)

// NameResult is the kind of an answer.
type NameResult string

// The results.
const (
	// ResultRecords has records of the type.
	ResultRecords NameResult = "records"
	// ResultEmpty has none.
	ResultEmpty NameResult = "empty"
	// ResultUnknown is for answers that depend on more than was read.
	ResultUnknown NameResult = "unknown"
)

// NameAnswer is the client's answer for one type.
type NameAnswer struct {
	Type   string     `json:"type"`
	Result NameResult `json:"result"`
	// Why explains the records, or their absence.
	Why string `json:"why"`
	// Of is the number of records of the type for the name, for any client.
	Of int `json:"of"`
	// Tier is the key that the endpoints share with the client.
	Tier    string       `json:"tier,omitempty"`
	Records []NameRecord `json:"records"`
}

// NameRecord is a record without its TTL.
type NameRecord struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Address string `json:"address"`
	Zone    string `json:"zone,omitempty"`
	Node    string `json:"node,omitempty"`
}

// NameKey is a topology key with the client's value, empty if it has none.
type NameKey struct {
	Key   string `json:"key"`
	Value string `json:"value,omitempty"`
}

// ExplainName returns the endpoints of a headless Service that a client gets for a name. For other names it says why
// Vicinity does not change the answer.
func ExplainName(in NameReading) (*NameExplanation, error) {
	name, ofService := names.Parse(in.Name, []string{in.Zone})
	if !ofService {
		return nil, fmt.Errorf("no Service in the domain %s has the name %s", in.Zone, in.Name)
	}
	service := in.Service.Service
	v := nameView{in: &in, name: name, e: &NameExplanation{
		Name: in.Name, Namespace: service.Namespace, Service: service.Name, Answers: []NameAnswer{},
	}}
	v.locate()
	if err := v.explain(); err != nil {
		return nil, err
	}
	return v.e, nil
}

// nameView is a name with the input of its answer.
type nameView struct {
	in   *NameReading
	e    *NameExplanation
	name names.Name
	// client is the client of groups.
	client   endpoint.Client
	decision routing.Decision
	// groups are the groups that count, also listed in counting in the order of names. It is nil without any.
	groups   *names.Service
	counting []*v1alpha1.EndpointGroup
	// anyClient says that the name determines the place of the records, for any client.
	anyClient bool
}

func (v *nameView) explain() error {
	in := v.in.Service
	var err error
	if v.decision, err = in.Decide(); err != nil {
		return err
	}
	for _, kind := range []string{KindSlices, KindGroups} {
		if slices.Contains(v.in.Unread, kind) {
			v.e.Rule = RuleUnread
			v.e.Answers = append(v.e.Answers, NameAnswer{Type: TypeA, Result: ResultUnknown, Why: kind + " may not be read", Records: []NameRecord{}})
			v.advise()
			return nil
		}
	}
	v.e.Missing = v.isMissing()
	if service := in.Service; service.Spec.Type == corev1.ServiceTypeExternalName {
		v.e.Rule, v.e.Alias = RuleAlias, service.Spec.ExternalName
		v.e.Why = append(v.e.Why, "the Service is of type ExternalName")
		v.advise()
		return nil
	}
	v.readGroups()
	v.e.Rule = RuleWhole
	if v.groups != nil {
		v.e.Rule = RuleGroups
	}
	if zone, prefers := v.name.Preferred(); prefers && v.in.Plan && v.groups != nil && v.groups.Sliced {
		v.client, v.anyClient = v.groups.ClientIn(zone), true
		v.e.Why = append(v.e.Why, "with the directive plan the name answers like the Service's name for a client in that zone; nothing else is known of that client")
	} else if why := v.unchanged(); why != "" {
		v.e.Rule, v.e.Why = RuleUnchanged, append(v.e.Why, why)
		v.advise()
		return nil
	}
	v.answer()
	v.tell()
	v.advise()
	return nil
}

// isMissing reports whether CoreDNS has no such name: no ready endpoint has it.
func (v *nameView) isMissing() bool {
	service := v.in.Service.Service
	_, pinned := v.name.Pinned()
	_, prefers := v.name.Preferred()
	switch isHeadless := intent.IsHeadless(service); {
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return v.name.Prefix != ""
	case pinned, prefers:
		return !isHeadless
	case v.name.IsPort() && !isHeadless:
		port, protocol := v.port()
		return !slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool {
			return strings.EqualFold(p.Name, port) && strings.EqualFold(string(p.Protocol), protocol)
		})
	case v.name.IsService():
		return isHeadless && len(v.ready()) == 0
	}
	return !slices.ContainsFunc(v.ready(), func(e names.Endpoint) bool {
		return strings.EqualFold(cmp.Or(e.Host, names.Dashed(e.IP)), v.name.Prefix)
	})
}

// port returns the port of the name, with its protocol.
func (v *nameView) port() (name, protocol string) {
	name, protocol, _ = strings.Cut(v.name.Prefix, ".")
	return strings.TrimPrefix(name, "_"), strings.TrimPrefix(protocol, "_")
}

// unchanged says why Vicinity does not change the answer, empty if it does.
func (v *nameView) unchanged() string {
	service := v.in.Service.Service
	_, pinned := v.name.Pinned()
	_, prefers := v.name.Preferred()
	switch {
	case pinned:
		return "Vicinity does not change names that are confined to a zone"
	case prefers && !v.in.Plan:
		return "Vicinity does not change names with a zone; --plan is for servers whose Corefile has the directive plan"
	case prefers:
		return "the directive plan is for headless Services with groups and EndpointSlices, so Vicinity does not change the name"
	case !v.name.IsService():
		return "Vicinity does not change names of endpoints"
	case !intent.IsHeadless(service):
		return "only names of headless Services depend on the client"
	}
	return ""
}

// answer sets the records of each family, among which groups choose.
func (v *nameView) answer() {
	endpoints := v.endpoints()
	for family, kind := range [...]string{names.V4: TypeA, names.V6: TypeAAAA} {
		a := NameAnswer{Type: kind, Result: ResultRecords, Why: "all endpoints, for every client"}
		var addresses []netip.Addr
		for i := range endpoints {
			if e := &endpoints[i]; names.FamilyOf(e.IP) == family {
				addresses = append(addresses, e.IP)
				a.Records = append(a.Records, NameRecord{Name: v.in.Name, Type: kind, Address: e.IP.String(), Zone: e.Zone, Node: e.Node})
			}
		}
		if a.Of = len(a.Records); a.Of > 0 {
			v.choose(&a, family, addresses)
			v.e.Answers = append(v.e.Answers, a)
		}
	}
	if len(v.e.Answers) > 0 {
		return
	}
	none := NameAnswer{Type: TypeA, Result: ResultEmpty, Why: "no endpoint of the Service with an address is ready", Records: []NameRecord{}}
	if v.name.IsPort() {
		none.Why = "no endpoint of the Service that is ready has the port"
	}
	v.e.Answers = append(v.e.Answers, none)
}

// ready returns the ready endpoints, with the port if the name has one.
func (v *nameView) ready() []names.Endpoint {
	port, protocol := v.port()
	isNamed := func(p discoveryv1.EndpointPort) bool {
		return p.Name != nil && p.Protocol != nil && strings.EqualFold(*p.Name, port) && strings.EqualFold(string(*p.Protocol), protocol)
	}
	var all []names.Endpoint
	for _, slice := range v.in.Service.Slices {
		if v.name.IsPort() && !slices.ContainsFunc(slice.Ports, isNamed) {
			continue
		}
		given, _ := names.EndpointsOf(slice)
		all = append(all, slices.DeleteFunc(given, func(e names.Endpoint) bool { return e.NotReady })...)
	}
	return all
}

// endpoints returns the ready endpoints, one for each address, in the order of addresses.
func (v *nameView) endpoints() []names.Endpoint {
	all := v.ready()
	slices.SortStableFunc(all, func(a, b names.Endpoint) int {
		return cmp.Or(a.IP.Compare(b.IP), cmp.Compare(endpoint.StateInGroup(&a.GroupEndpoint), endpoint.StateInGroup(&b.GroupEndpoint)))
	})
	return slices.CompactFunc(all, func(a, b names.Endpoint) bool { return a.IP == b.IP })
}

// readGroups reads the groups and slices that the server reads.
func (v *nameView) readGroups() {
	in := v.in.Service
	var groups []*v1alpha1.EndpointGroup
	for _, g := range in.Groups {
		if _, counts := g.Labels[names.Selector]; counts && g.Spec.Service == in.Service.Name {
			groups = append(groups, g)
		}
	}
	sliced := map[string][]names.Endpoint{}
	for _, slice := range in.Slices {
		if _, counts := slice.Labels[names.Selector]; counts {
			sliced[slice.Name], _ = names.EndpointsOf(slice)
		}
	}
	v.groups = names.NewService(groups, sliced)
	slices.SortFunc(groups, func(a, b *v1alpha1.EndpointGroup) int { return strings.Compare(a.Name, b.Name) })
	v.counting = groups
}

// countGroups counts the groups of the Service and those for the client, and sets the keys.
func (v *nameView) countGroups() {
	choice := endpoint.NewChoice(v.client)
	v.e.Groups = len(v.counting)
	for i, g := range v.counting {
		if choice.Read(g).Used() {
			v.e.GroupsUsed++
		}
		if i == 0 {
			for _, key := range g.Spec.Tiers {
				v.e.Keys = append(v.e.Keys, NameKey{Key: key, Value: v.client.Value(key)})
			}
		}
	}
}

// undelivered reports whether the plan of a headless Service is in no group yet.
func (v *nameView) undelivered() bool {
	return v.decision.Delivery == allocate.DeliveryGroups && v.decision.Request.Headless && v.groups == nil
}
