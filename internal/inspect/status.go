package inspect

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/explain"
	routingintent "vicinity.dev/vicinity/internal/routing/intent"
)

// Status is a summary of many Services. Percentages are from 0 to 100.
type Status struct {
	// ZoneShifts are those in force.
	ZoneShifts []ShiftStatus `json:"zoneShifts,omitempty"`

	Services []ServiceStatus `json:"services"`
	NotKnown []string        `json:"notKnown,omitempty"`
}

// ServiceStatus is the summary of a Service, or of one of its address families if they differ.
type ServiceStatus struct {
	Namespace     string            `json:"namespace"`
	Service       string            `json:"service"`
	Family        string            `json:"family,omitempty"`
	Mode          string            `json:"mode"`
	AsksFor       string            `json:"asksFor"`
	Source        string            `json:"source,omitempty"`
	Policy        string            `json:"policy,omitempty"`
	ClusterPolicy string            `json:"clusterPolicy,omitempty"`
	State         string            `json:"state,omitempty"`
	Endpoints     *int              `json:"endpoints,omitempty"` // nil without a plan
	Zones         *int              `json:"zones,omitempty"`     // that have endpoints
	Expected      *Figures          `json:"expected,omitempty"`  // nil where figures mean nothing
	Why           string            `json:"why,omitempty"`
	Delivery      allocate.Delivery `json:"delivery"`
	Notes         []string          `json:"notes,omitempty"` // worth a look, most important first

	// Intent is that of AsksFor, and Figures are those of Expected.
	Intent  allocate.Intent  `json:"-"`
	Figures allocate.Figures `json:"-"`

	// certain are the notes that are true even if the nodes are unknown.
	certain []string
}

// Title is the name, with the family where there are two.
func (s *ServiceStatus) Title() string {
	if s.Family == "" {
		return s.Service
	}
	return s.Service + " (" + s.Family + ")"
}

// StatusOf returns the status of one Service: one, or one for each of its families if they differ.
func StatusOf(in Reading) ([]ServiceStatus, error) {
	all, err := in.statuses()
	if sentence := in.abandoned(); sentence != "" {
		for i := range all {
			all[i].putFirst(sentence)
		}
	}
	return all, err
}

func (in *Reading) statuses() ([]ServiceStatus, error) {
	decision, err := in.Decide()
	if err != nil {
		return nil, err
	}
	request := &decision.Request
	s := ServiceStatus{
		Namespace: in.Service.Namespace, Service: in.Service.Name, Mode: string(request.Approach),
		AsksFor: explain.Intent(request.Intent), Source: request.Source, Policy: request.Policy, ClusterPolicy: request.ClusterPolicy,
		Delivery: decision.Delivery, Notes: slices.Concat(in.pending(decision), decision.Notes, request.Warnings),
		Intent: request.Intent, certain: request.Warnings,
	}
	if !decision.Shifting.Moves {
		s.Notes = append(in.shiftSentences(&decision.Shifting), s.Notes...)
	}
	inForce := &decision
	if awaitsProxy(in.Service, decision.Delivery) {
		inForce = decision.Hinted()
		s.putFirst("stock proxies serve it until every node has vicinity-proxy")
	}
	if request.NoPlan != "" {
		s.Notes = append([]string{request.NoPlan}, s.Notes...)
		return []ServiceStatus{s}, nil
	}
	endpoints := routingintent.SliceEndpoints(routingintent.ProxySlices(in.Service, in.Slices), in.Cluster)
	var all []ServiceStatus
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		ready, found := endpoints[family]
		if !found {
			continue
		}
		one := s
		if len(endpoints) > 1 {
			one.Family = string(family)
		}
		if err := one.plan(in, inForce, family, ready); err != nil {
			return nil, err
		}
		if in.lacksNodes() {
			one.forget()
		}
		all = append(all, one)
	}
	if len(all) == 2 && all[0].alike(&all[1]) {
		all = all[:1]
		all[0].Family = ""
	}
	if len(all) == 0 {
		s.Notes = append(s.Notes, in.withoutAddresses())
		all = append(all, s)
	}
	return all, nil
}

// plan describes the plan for the ready endpoints of a family: the decided one, or a prediction if Vicinity decides
// nothing.
func (s *ServiceStatus) plan(in *Reading, decision *routing.Decision, family corev1.IPFamily, ready []routingintent.Endpoint) error {
	var region allocate.Region
	var outcome allocate.Outcome
	at := slices.IndexFunc(decision.Families, func(d routing.FamilyDecision) bool { return d.Family == family })
	if at >= 0 {
		region, outcome = decision.Families[at].Region, decision.Families[at].Outcome
		s.State = in.stateOf(decision, outcome)
	} else {
		region = in.Cluster.Region(decision.Request.Capacity, ready)
		if decision.Request.Upstream {
			s.State = "upstream"
		}
	}
	if intent := decision.Request.Intent; at < 0 || decision.Undelivered {
		if decision.Undelivered {
			// There are no hints, so all zones use all endpoints.
			s.State, intent = "undelivered", allocate.Intent{}
		}
		var err error
		if _, outcome, err = allocate.Allocate(region, intent, allocate.Previous{}); err != nil {
			return err
		}
	}
	endpoints, zones := len(ready), 0
	for _, zone := range region.Zones {
		if zone.Endpoints > 0 && zone.Name != "" {
			zones++
		}
	}
	s.Endpoints, s.Zones, s.Figures, s.Why = &endpoints, &zones, outcome.Figures, explain.Outcome(outcome)
	if endpoints > 0 && slices.ContainsFunc(region.Zones, func(z allocate.Zone) bool { return z.Capacity > 0 }) {
		s.Expected = figuresOf(outcome.Figures)
	}
	var first, last []string
	if outcome.Figures.Unreached > 0 && endpoints > 0 {
		first = append(first, explain.Unreached(outcome.Figures.Unreached))
	}
	if outcome.IsBalanced() && outcome.Rule != allocate.RuleAsked {
		last = append(last, s.Why)
	}
	if s.State == stateDelivered || s.State == statePlanned {
		last = append(last, "only vicinity-dns follows the plan; other DNS servers give every client all endpoints")
	}
	s.Notes = slices.Concat(first, s.Notes, last, explain.Warnings(region))
	return nil
}

// putFirst adds the most important note, which is true even if the nodes are unknown.
func (s *ServiceStatus) putFirst(sentence string) {
	s.Notes = append([]string{sentence}, s.Notes...)
	s.certain = append([]string{sentence}, s.certain...)
}

// forget removes everything that depends on unknown nodes.
func (s *ServiceStatus) forget() {
	s.Expected, s.Figures, s.Why, s.Notes = nil, allocate.Figures{}, "", s.certain
	if s.Delivery != allocate.DeliveryNone {
		s.State = "unknown"
	}
}

// alike reports whether two families have the same status.
func (s *ServiceStatus) alike(other *ServiceStatus) bool {
	return s.State == other.State && *s.Endpoints == *other.Endpoints && *s.Zones == *other.Zones &&
		s.Figures == other.Figures && (s.Expected == nil) == (other.Expected == nil) && s.Why == other.Why && slices.Equal(s.Notes, other.Notes)
}
