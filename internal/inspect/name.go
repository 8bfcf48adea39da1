package inspect

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/endpoint"
	"vicinity.dev/vicinity/internal/names"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/translate"
)

// The types of records that a name is asked for.
const (
	TypeA    = "A"
	TypeAAAA = "AAAA"
	TypeSRV  = "SRV"

	typeCNAME = "CNAME"
)

// NameReading is all that the answer for a name depends on, as it was read of a cluster.
type NameReading struct {
	// Name is the whole name, and Zone that of the cluster. Both end with a dot.
	Name, Zone string
	// Types are those of the records that are asked for. Without any they are those of addresses.
	Types []string
	// Plan says that the Corefile of the server has the directive plan.
	Plan   bool
	Client ClientReading
	// Service is what the decision about the name's Service depends on, nil if there is none.
	Service *Reading
	// Unread are the kinds of objects that may not be read.
	Unread []string
}

// NameExplanation is what a client gets for a name, and why.
type NameExplanation struct {
	Name      string     `json:"name"`
	Namespace string     `json:"namespace,omitempty"`
	Service   string     `json:"service,omitempty"`
	Client    NameClient `json:"client"`
	// Rule says which rule decides.
	Rule    NameRule     `json:"rule"`
	Answers []NameAnswer `json:"answers"`
	// Keys are those by which endpoints are near, with the client's values.
	Keys []NameKey `json:"keys,omitempty"`
	// Groups are those of the Service, and GroupsUsed those that are for the client's zone.
	Groups     int      `json:"groups,omitempty"`
	GroupsUsed int      `json:"groupsUsed,omitempty"`
	AsksFor    string   `json:"asksFor,omitempty"`
	Source     string   `json:"source,omitempty"`
	Why        []string `json:"why,omitempty"`
	Warnings   []string `json:"warnings,omitempty"`
	NotKnown   []string `json:"notKnown,omitempty"`
	Next       []string `json:"next,omitempty"`
	// Target is what the client gets for the name that this one is an alias of, as far as the
	// cluster has it.
	Target *NameExplanation `json:"target,omitempty"`
}

// NameRule is a rule that decides which records a client gets.
type NameRule string

// The rules.
const (
	// RuleGroups has the groups of a headless Service, its keys and the client's place decide.
	RuleGroups NameRule = "groups"
	// RuleWhole gives all endpoints of a headless Service without groups.
	RuleWhole NameRule = "whole"
	// RuleLeftOver gives all since groups are left of when the Service was headless.
	RuleLeftOver NameRule = "leftOver"
	// RuleEndpoint gives the endpoint that the name is of.
	RuleEndpoint NameRule = "endpointName"
	// RuleZoneName gives what the plugin kubernetes has for a name with a zone.
	RuleZoneName     NameRule = "zoneName"
	RuleClusterIP    NameRule = "clusterIP"
	RuleExternalName NameRule = "externalName"
	// RuleNoService is for names in the zone that are of no Service, as those of pods.
	RuleNoService NameRule = "noService"
	// RuleOutside is for names of other zones.
	RuleOutside NameRule = "outsideOfZone"
	// RuleUnread is for what depends on objects that may not be read.
	RuleUnread NameRule = "unread"
)

// NameResult is what an answer is.
type NameResult string

// The results.
const (
	// ResultRecords has records of the type.
	ResultRecords NameResult = "records"
	// ResultEmpty has none: NOERROR, which DNS servers call NODATA.
	ResultEmpty NameResult = "empty"
	// ResultNoName is NXDOMAIN: resolvers go on with the next name of their search list.
	ResultNoName NameResult = "noSuchName"
	// ResultUnknown is for what depends on more than was read.
	ResultUnknown NameResult = "unknown"
)

// NameAnswer is what the client gets of one type.
type NameAnswer struct {
	Type   string     `json:"type"`
	Result NameResult `json:"result"`
	// Why says what the records are, or why there are none.
	Why string `json:"why"`
	// Of is how many records of the type there are for the name, whoever asks.
	Of int `json:"of"`
	// Tier is the key that the endpoints share with the client.
	Tier    string       `json:"tier,omitempty"`
	Records []NameRecord `json:"records"`
	// Additional are the addresses of SRV records' targets.
	Additional []NameRecord `json:"additional,omitempty"`
}

// NameRecord is a record without its TTL.
type NameRecord struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Address string `json:"address,omitempty"`
	Target  string `json:"target,omitempty"`
	Port    *int32 `json:"port,omitempty"` // of SRV records
	Zone    string `json:"zone,omitempty"`
	Node    string `json:"node,omitempty"`
}

// NameKey is a topology key with the client's value, empty if it has none.
type NameKey struct {
	Key   string `json:"key"`
	Value string `json:"value,omitempty"`
}

// ExplainName says what a client gets for a name, as vicinity-dns answers.
func ExplainName(in NameReading) (*NameExplanation, error) {
	e := &NameExplanation{Name: in.Name, Answers: []NameAnswer{}}
	v := nameView{in: &in, e: e}
	v.locate()
	name, ofService := names.Parse(in.Name, []string{in.Zone})
	switch {
	case !ofService && !names.Within(in.Name, in.Zone):
		v.leave(RuleOutside, "the name is not of the zone "+strings.TrimSuffix(in.Zone, ".")+": the server asks elsewhere, as its Corefile says (forward)")
	case !ofService:
		v.leave(RuleNoService, "the name is of no Service: CoreDNS answers as without Vicinity")
	case in.Service == nil:
		namespace, service := name.ServiceName()
		v.e.Rule = RuleNoService
		v.answerAll(ResultNoName, "there is no Service "+namespace+"/"+service)
	default:
		v.name, e.Namespace, e.Service = name, in.Service.Service.Namespace, in.Service.Service.Name
		if err := v.explain(); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// Exists reports whether resolvers are content with the answer: if not they try the next name of
// their search list.
func (e *NameExplanation) Exists() bool {
	return slices.ContainsFunc(e.Answers, func(a NameAnswer) bool { return a.Result != ResultNoName })
}

// Alias is the name that this one is an alias of, empty for most.
func (e *NameExplanation) Alias() string {
	if e.Rule != RuleExternalName || len(e.Answers) == 0 || len(e.Answers[0].Records) == 0 {
		return ""
	}
	return e.Answers[0].Records[0].Target
}

// Follow adds what the client gets for the name that this one is an alias of. What there is to say beside the
// answer moves here from the target, since much of it is about the client, and so the same for both.
func (e *NameExplanation) Follow(target *NameExplanation) {
	e.Target = target
	e.Warnings = appendNew(e.Warnings, target.Warnings)
	e.NotKnown = appendNew(e.NotKnown, target.NotKnown)
	e.Next = appendNew(e.Next, target.Next)
	target.Warnings, target.NotKnown, target.Next = nil, nil, nil
	var answers []NameAnswer
	for _, a := range e.Answers {
		at := slices.IndexFunc(target.Answers, func(t NameAnswer) bool { return t.Type == a.Type })
		if at >= 0 {
			answers = append(answers, a.followedBy(&target.Answers[at]))
		}
	}
	e.Answers = answers
}

// EndLoop makes of an alias the last of aliases that lead back to one of them: there is no record to get to.
func (e *NameExplanation) EndLoop() {
	target := e.Alias()
	for i := range e.Answers {
		a := &e.Answers[i]
		a.Records, a.Of, a.Result = []NameRecord{}, 0, ResultEmpty
		a.Why = "the aliases are a loop: " + e.Service + " leads back to " + strings.TrimSuffix(target, ".")
	}
	e.Answers = e.Answers[:1]
	e.Next = append(e.Next, "give the Service "+e.Namespace+"/"+e.Service+" another externalName, which leads out of the loop")
}

// appendNew adds the sentences that are not there yet.
func appendNew(all, more []string) []string {
	for _, sentence := range more {
		if !slices.Contains(all, sentence) {
			all = append(all, sentence)
		}
	}
	return all
}

// followedBy is the answer for an alias with that for its target.
func (a NameAnswer) followedBy(target *NameAnswer) NameAnswer {
	a.Why += "; " + target.Why
	switch {
	case target.Result == ResultUnknown:
		return a
	case target.Of == 0:
		// CoreDNS does not even say that it is an alias.
		a.Records = nil
	}
	a.Records, a.Result, a.Of = append(append([]NameRecord{}, a.Records...), target.Records...), target.Result, target.Of
	if a.Result == ResultNoName {
		a.Result = ResultEmpty
	}
	return a
}

// nameView is a name with what its answer is made of.
type nameView struct {
	in   *NameReading
	e    *NameExplanation
	name names.Name
	// client is as groups know it.
	client   endpoint.Client
	decision routing.Decision
	// groups are nil without any that count, which are those in counting, in the order of names.
	groups   *names.Service
	counting []*v1alpha1.EndpointGroup
	// ofService says that the records are those of the Service's endpoints, from which groups choose.
	ofService bool
	// anyClient says that the name decides for which place the records are.
	anyClient bool
	// disputed says that PodLocators of equal rank locate the client in different places.
	disputed bool
}

// leave says that Vicinity has nothing to do with the name, nor is it known what others make of it.
func (v *nameView) leave(rule NameRule, why string) {
	v.e.Rule = rule
	v.answerAll(ResultUnknown, why)
}

func (v *nameView) answerAll(result NameResult, why string) {
	for _, kind := range v.types() {
		v.e.Answers = append(v.e.Answers, NameAnswer{Type: kind, Result: result, Why: why, Records: []NameRecord{}})
	}
	v.dropOtherFamily()
}

func (v *nameView) types() []string {
	if len(v.in.Types) == 0 {
		return []string{TypeA, TypeAAAA}
	}
	return v.in.Types
}

// explain answers for a name of a Service that exists.
func (v *nameView) explain() error {
	in := v.in.Service
	var err error
	if v.decision, err = in.Decide(); err != nil {
		return err
	}
	for _, kind := range []string{KindSlices, KindGroups} {
		if slices.Contains(v.in.Unread, kind) {
			v.leave(RuleUnread, kind+" may not be read")
			v.advise()
			return nil
		}
	}
	v.readGroups()
	stock := v.stock()
	v.e.Rule, v.ofService = v.kindOfName(), v.name.IsService()
	if stock.impossible {
		v.e.Rule = RuleNoService
	}
	if zone, prefers := v.name.Preferred(); prefers && v.in.Plan && v.groups != nil && v.groups.Sliced {
		stock = stockName{nameView: v, exists: true}
		v.e.Rule, v.client, v.ofService, v.anyClient = RuleGroups, v.groups.ClientIn(zone), true, true
		v.e.Why = append(v.e.Why, "with the directive plan the name gives what a client in that zone gets of the Service's name; nothing else is known of such a client")
	}
	for _, kind := range v.types() {
		a := stock.answer(kind)
		v.choose(&a)
		v.e.Answers = append(v.e.Answers, a)
	}
	v.dropOtherFamily()
	v.tell()
	v.advise()
	return nil
}

// kindOfName is the rule, unless groups turn out to be left over.
func (v *nameView) kindOfName() NameRule {
	service := v.in.Service.Service
	_, pinned := v.name.Pinned()
	_, prefers := v.name.Preferred()
	switch {
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return RuleExternalName
	case pinned || prefers:
		return RuleZoneName
	case !v.name.IsService():
		return RuleEndpoint
	case !translate.IsHeadless(service):
		return RuleClusterIP
	case v.groups != nil:
		return RuleGroups
	}
	return RuleWhole
}

// readGroups reads the groups and slices that the server knows of.
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

// countGroups says how many groups the Service has, how many are for the client, and by which
// keys endpoints are near.
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

// addressesIn are the addresses of some records.
func addressesIn(records []NameRecord) []netip.Addr {
	var all []netip.Addr
	for i := range records {
		if address, err := netip.ParseAddr(records[i].Address); err == nil {
			all = append(all, address)
		}
	}
	return all
}
