package inspect

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/consumer"
	"vicinity.dev/vicinity/internal/routing/explain"
	"vicinity.dev/vicinity/internal/routing/hints"
	"vicinity.dev/vicinity/internal/routing/intent"
	"vicinity.dev/vicinity/internal/topology"
)

// Explanation is all about one Service. Percentages are from 0 to 100.
type Explanation struct {
	Namespace     string            `json:"namespace"`
	Service       string            `json:"service"`
	AsksFor       string            `json:"asksFor"`
	Approach      string            `json:"approach"`
	Source        string            `json:"source,omitempty"`
	Policy        string            `json:"policy,omitempty"`
	ClusterPolicy string            `json:"clusterPolicy,omitempty"`
	Tiers         topology.Tiers    `json:"tiers,omitempty"`
	Upstream      bool              `json:"upstream,omitempty"`
	Headless      bool              `json:"headless,omitempty"` // DNS delivers the plan, and no proxy
	Delivery      allocate.Delivery `json:"delivery"`
	GroupsBy      string            `json:"groupsBy,omitempty"`    // what asks for groups, if the Service itself does not
	Undelivered   bool              `json:"undelivered,omitempty"` // hints cannot express the plan, so it is not in force
	LeftAlone     string            `json:"leftAlone,omitempty"`   // why Vicinity ignores the Service
	Groups        int               `json:"groups"`
	ServedBy      []string          `json:"servedBy,omitempty"`  // programs on nodes, and whether they follow the hints of the Service
	Meanwhile     *Interim          `json:"meanwhile,omitempty"` // in force until vicinity-proxy serves the Service
	Condition     *Condition        `json:"condition,omitempty"`
	NoPlan        string            `json:"noPlan,omitempty"`
	Families      []Family          `json:"families"`
	NoProxy       string            `json:"noStockProxy,omitempty"`
	Written       *bool             `json:"written,omitempty"` // nil without a known plan
	Pending       []string          `json:"pending,omitempty"` // parts of the decision that are not written
	ZoneShifts    []string          `json:"zoneShifts,omitempty"`
	// Held are the zones that endpoints keep for a moment, by address.
	Held     map[string][]string `json:"held,omitempty"`
	Warnings []string            `json:"warnings,omitempty"`
	Limits   []explain.Limit     `json:"limits,omitempty"`
	NotKnown []string            `json:"notKnown,omitempty"`
	// Next are the steps to take, most important first. It is empty for most Services, and before Advise.
	Next []string `json:"next,omitempty"`

	// LacksNodes says that the nodes are unknown, and so are plans.
	LacksNodes bool `json:"-"`
	// AwaitsProxy says that the plan is not in force, because it is for vicinity-proxy and stock proxies still serve
	// the Service.
	AwaitsProxy bool `json:"-"`
	// NoAddresses is why there is no family.
	NoAddresses string `json:"-"`

	reading  Reading
	decision routing.Decision
}

// Interim is a temporary decision.
type Interim struct {
	Undelivered bool            `json:"undelivered,omitempty"`
	Notes       []string        `json:"notes,omitempty"`
	Families    []InterimFamily `json:"families"`

	Delivery allocate.Delivery `json:"-"`
}

// InterimFamily is its part for an address family.
type InterimFamily struct {
	Family    string              `json:"family"`
	State     string              `json:"state"`
	Rule      allocate.Rule       `json:"rule,omitempty"`
	Why       string              `json:"why,omitempty"`
	Expected  *Figures            `json:"expected,omitempty"`
	Endpoints map[string][]string `json:"endpoints,omitempty"`
}

// Condition is the outcome in the Service's status.
type Condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Since   string `json:"since"`
}

// Family is the part for an address family: the plan, with those of other algorithms, and the work of stock proxies.
type Family struct {
	Family string `json:"family"`
	// Decided says that Vicinity made the plan. Otherwise it is a prediction of what Kubernetes does.
	Decided    bool                `json:"decided"`
	State      string              `json:"state"`
	Rule       allocate.Rule       `json:"rule,omitempty"`
	Why        string              `json:"why,omitempty"`
	Capacity   string              `json:"capacity,omitempty"`
	Expected   *Figures            `json:"expected,omitempty"` // of the plan, delivered or not
	Zones      []Zone              `json:"zones,omitempty"`
	Plan       *Groups             `json:"plan,omitempty"`
	Endpoints  map[string][]string `json:"endpoints,omitempty"` // the zones that use each address
	Algorithms []Algorithm         `json:"algorithms,omitempty"`
	Stock      []Stock             `json:"stockProxies"`

	Plans `json:"-"`

	limits  []explain.Limit
	divided bool // zones use different endpoints
}

// Explain decides about a Service and compares algorithms.
func Explain(in Reading) (*Explanation, error) {
	d, err := in.Decide()
	if err != nil {
		return nil, err
	}
	service, request := in.Service, &d.Request
	e := &Explanation{
		Namespace: service.Namespace, Service: service.Name,
		AsksFor: explain.Intent(request.Intent), Approach: string(request.Approach), Source: request.Source,
		Policy: request.Policy, ClusterPolicy: request.ClusterPolicy, Tiers: request.Intent.Tiers, Upstream: request.Upstream, Headless: request.Headless,
		Delivery: d.Delivery, Undelivered: d.Undelivered, LeftAlone: in.LeftAlone, Groups: len(in.Groups),
		Meanwhile: interimOf(d.Meanwhile), NoPlan: request.NoPlan, Families: []Family{}, NoProxy: stockLeaves(service),
		Pending: in.pending(d), ZoneShifts: in.shiftSentences(&d.Shifting), Held: hints.Held(in.Slices), Warnings: in.warnings(&d),
		LacksNodes: in.lacksNodes(), AwaitsProxy: awaitsProxy(service, d.Delivery),
		reading: in, decision: d,
	}
	if request.Groups && request.GroupsBy != intent.ProxyAnnotation {
		e.GroupsBy = request.GroupsBy
	}
	if c := routing.ConditionOf(service); c != nil {
		e.Condition = &Condition{c.Type, string(c.Status), c.Reason, c.Message, c.LastTransitionTime.UTC().Format(time.RFC3339)}
	}
	if request.NoPlan != "" {
		return e, nil
	}
	endpoints := intent.SliceEndpoints(intent.ProxySlices(in.Service, in.Slices), in.Cluster)
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		ready, found := endpoints[family]
		if !found {
			continue
		}
		f, err := in.family(&d, family, ready)
		if err != nil {
			return nil, err
		}
		e.Families = append(e.Families, f)
	}
	if len(e.Families) == 0 {
		e.NoAddresses = in.withoutAddresses()
	}
	e.Limits = e.limits()
	planned := d.Delivery != allocate.DeliveryNone && !d.Undelivered && len(e.Families) > 0
	readable := !e.LacksNodes && (d.Delivery != allocate.DeliveryGroups || !slices.Contains(in.Unread, KindGroups))
	if planned && readable {
		all := len(e.Pending) == 0
		e.Written = &all
	}
	return e, nil
}

// AwaitsCondition reports whether the controller will write a first condition. That is unknown while something is unread, such as whether
// a controller runs.
func (e *Explanation) AwaitsCondition() bool {
	return e.Condition == nil && e.reading.Stopped == "" && e.LeftAlone == "" && !e.LacksNodes && len(e.reading.Unread) == 0 && e.decision.IsReported() && !e.decision.IsUnremarkable()
}

func (in *Reading) family(d *routing.Decision, family corev1.IPFamily, ready []intent.Endpoint) (Family, error) {
	request := &d.Request
	decided := slices.IndexFunc(d.Families, func(d routing.FamilyDecision) bool { return d.Family == family })
	planned := ready
	if decided >= 0 {
		planned = d.Families[decided].Endpoints // none in a shifted domain
	}
	f := Family{Family: string(family), Stock: []Stock{}, Plans: Plans{Request: *request, Unit: request.Capacity.Type, Question: in.question(d, planned)}}
	var assigned map[string]allocate.ConsumerSet
	if decided >= 0 {
		f.Question.Region = d.Families[decided].Region
	}
	var err error
	if f.Comparison, err = explain.Compare(f.Question); err != nil {
		return f, err
	}
	if decided >= 0 {
		d := &d.Families[decided]
		f.Decided, assigned = true, d.Assigned
		f.Comparison.Decide(f.Question, d.Plan, d.Outcome, d.Nodes, d.Placed())
	}
	// The plan in force is shown, even if nothing is asked for.
	f.Comparison.Shown = f.Comparison.Asked
	if stockLeaves(in.Service) == "" {
		f.Stock = in.stock(request.Capacity, family, ready)
	}
	f.limits = explain.Limits(f.Question.Region)
	if !d.Undelivered { // otherwise the plan is not in force
		var limit explain.Limit
		if limit, f.divided = explain.TrafficFromOneZone(f.Question.Region, f.Asked().Plan); f.divided {
			f.limits = append(f.limits, limit)
		}
	}
	if in.lacksNodes() {
		f.limits = slices.DeleteFunc(f.limits, func(l explain.Limit) bool { return l.Name == explain.LimitZonesWithoutNodes })
		f.Decided, f.State = false, "unknown"
		return f, nil
	}
	asked := f.Asked()
	f.State, f.Rule, f.Why = in.stateOf(d, asked.Outcome), asked.Outcome.Rule, explain.Outcome(asked.Outcome)
	f.Capacity, f.Expected = string(f.Unit), figuresOf(asked.Figures)
	f.Zones, f.Plan, f.Algorithms, f.Endpoints = f.zones(), f.groups(), f.algorithms(), consumersOf(assigned)
	return f, nil
}

// question returns the comparison for the ready endpoints of a family.
func (in *Reading) question(d *routing.Decision, ready []intent.Endpoint) explain.Question {
	request, cluster := d.Request, in.Cluster
	auto := intent.AutoCapacity()
	auto.NodeSelector = request.Capacity.NodeSelector
	q := explain.Question{
		Region:   cluster.Region(request.Capacity, ready),
		CPU:      cluster.Region(auto, ready),
		Asked:    request.Intent,
		Delivery: allocate.DeliveryHints,
		Pods:     examples(ready),
	}
	if bound := q.Asked.Bound; bound != nil && bound.Algorithm != allocate.Auto {
		q.Thresholds = allocate.ThresholdsOf(*bound)
	}
	if d.Delivery == allocate.DeliveryGroups {
		q.Delivery = allocate.DeliveryGroups
	}
	if q.Algorithms = carried(q.Delivery); request.Headless {
		q.Algorithms = withoutWeights(q.Algorithms)
	}
	q.Nodes, _ = routing.NodeTiers(cluster, request, d.Delivery, ready)
	return q
}

func consumersOf(assigned map[string]allocate.ConsumerSet) map[string][]string {
	endpoints := make(map[string][]string, len(assigned))
	for address, set := range assigned {
		zones := []string{}
		for _, zone := range set.Zones() {
			if strings.TrimSpace(zone) != "" {
				zones = append(zones, zone)
			}
		}
		endpoints[address] = zones
	}
	return endpoints
}

func interimOf(d *routing.Decision) *Interim {
	if d == nil {
		return nil
	}
	interim := &Interim{Undelivered: d.Undelivered, Notes: d.Notes, Families: []InterimFamily{}, Delivery: d.Delivery}
	for i := range d.Families {
		f := &d.Families[i]
		interim.Families = append(interim.Families, InterimFamily{
			Family: string(f.Family), State: f.Outcome.State.String(), Rule: f.Outcome.Rule, Why: explain.Outcome(f.Outcome),
			Expected: figuresOf(f.Outcome.Figures), Endpoints: consumersOf(f.Assigned),
		})
	}
	return interim
}

// Divided reports whether zones use different endpoints.
func (e *Explanation) Divided() bool {
	return slices.ContainsFunc(e.Families, func(f Family) bool { return f.divided })
}

// HintKinds returns the kinds of hints in force.
func (e *Explanation) HintKinds() hints.Kinds { return e.decision.HintKinds() }

// limits returns the limits of all families, each once.
func (e *Explanation) limits() []explain.Limit {
	var limits []explain.Limit
	for i := range e.Families {
		for _, limit := range e.Families[i].limits {
			if !slices.Contains(limits, limit) {
				limits = append(limits, limit)
			}
		}
	}
	return limits
}

// Autoscaled notes the autoscalers of a Service that is divided.
func (e *Explanation) Autoscaled(names []string) {
	if len(names) > 0 {
		e.Limits = append(e.Limits, explain.Autoscaled(names))
	}
}

func programName(c *consumer.Consumer) string {
	return strings.TrimSpace(c.Name + " " + plaintext.Of(c.Version))
}

// Follows says whether a program follows the hints of a Service.
func Follows(c *consumer.Consumer, service *corev1.Service, kinds hints.Kinds) (sentence string, ignores bool) {
	name := programName(c)
	why, remedy := c.Ignores(service, kinds)
	switch {
	case why != "":
		return fmt.Sprintf("%s ignores its hints: %s; %s", name, why, remedy), true
	case c.IsUnknown(service, kinds):
		return name + "; whether it follows hints is not known", false
	}
	return name + " follows its hints" + c.Exception, false
}

// warnings returns sentences about wrong settings, wrong nodes and plans that cannot be delivered, each once.
func (in *Reading) warnings(d *routing.Decision) []string {
	var warnings []string
	if sentence := in.abandoned(); sentence != "" {
		warnings = append(warnings, sentence)
	}
	warnings = slices.Concat(warnings, d.Request.Warnings, d.Notes)
	if !in.lacksNodes() {
		warnings = append(warnings, in.Cluster.Warnings()...)
	}
	if fault := in.Cluster.Fault(d.Request.Capacity); fault != "" {
		warnings = append(warnings, fmt.Sprintf("%s: spec.%s", d.Request.FromPolicy(), fault))
	}
	var once []string
	for _, warning := range warnings {
		if !slices.Contains(once, warning) {
			once = append(once, warning)
		}
	}
	return once
}
