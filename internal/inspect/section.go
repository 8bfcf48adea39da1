package inspect

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/explain"
	"vicinity.dev/vicinity/internal/routing/intent"
	"vicinity.dev/vicinity/internal/topology"
)

// Section is the part of a plan for one address family of a Service. Percentages are from 0 to 100.
type Section struct {
	Namespace  string         `json:"namespace"`
	Service    string         `json:"service"`
	Family     string         `json:"family,omitempty"` // empty unless the Service has several
	AsksFor    string         `json:"asksFor"`
	Source     string         `json:"source,omitempty"`
	Tiers      topology.Tiers `json:"tiers,omitempty"`
	Upstream   bool           `json:"upstream,omitempty"`
	Warnings   []string       `json:"warnings,omitempty"`
	NoPlan     string         `json:"noPlan,omitempty"` // if there is a reason, the fields below are zero
	Capacity   string         `json:"capacity,omitempty"`
	Delivery   string         `json:"delivery,omitempty"`
	Zones      []Zone         `json:"zones,omitempty"`
	Algorithms []Algorithm    `json:"algorithms,omitempty"`
	Plan       *Groups        `json:"plan,omitempty"`
	Advice     []Advice       `json:"advice,omitempty"`

	Plans `json:"-"`
}

// Advice is a change of pods' zones that improves a plan.
type Advice struct {
	Advice      string         `json:"advice"`
	Moves       []explain.Move `json:"moves"`
	InZone      float64        `json:"inZone"`
	MaxOverload float64        `json:"maxOverload"`
	Total       float64        `json:"total"`
}

// Title names the Service, with the family where there are two.
func (s *Section) Title() string {
	title := s.Namespace + "/" + s.Service
	if s.Family != "" {
		title += " (" + s.Family + ")"
	}
	return title
}

// Manifests are the input of a plan besides a Service and the cluster.
type Manifests interface {
	// Defaults returns the ClusterRoutingPolicies for all Services of a namespace.
	Defaults(namespace string) []*v1alpha1.ClusterRoutingPolicy
	// Endpoints returns the endpoints of a Service, by family.
	Endpoints(service *corev1.Service, cluster *intent.Cluster) intent.Families
	// GivesNames reports whether pods have names under that of a Service.
	GivesNames(service *corev1.Service) bool
}

// Planner plans for the Services of manifests.
type Planner struct {
	Manifests Manifests
	Policies  []*v1alpha1.RoutingPolicy
	Cluster   *intent.Cluster
	// Question is for Services without vicinity-proxy, and Groups for the others. They are equal if all have one
	// delivery.
	Question, Groups explain.Question
	Capacity         intent.CapacityType // empty: as the Service asks
	// Settings are those of a cluster's controller, if there is one.
	Settings routing.Settings
}

// Sections returns the sections of one Service: one, or one for each of its families.
func (p *Planner) Sections(service *corev1.Service) ([]Section, error) {
	options := p.Settings.Options()
	options.Defaults, options.GivesNames = p.Manifests.Defaults(service.Namespace), p.Manifests.GivesNames(service)
	request := intent.RequestOf(service, p.Policies, options)
	section := Section{Namespace: service.Namespace, Service: service.Name, NoPlan: request.NoPlan}
	section.ask(request)
	if section.NoPlan != "" {
		return []Section{section}, nil
	}
	families := p.Manifests.Endpoints(service, p.Cluster)
	var sections []Section
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		endpoints, found := families[family]
		if !found {
			continue
		}
		s := section
		if len(families) > 1 {
			s.Family = string(family)
		}
		if err := p.compare(&s, endpoints); err != nil {
			return nil, fmt.Errorf("planning Service %s: %w", s.Title(), err)
		}
		sections = append(sections, s)
	}
	if len(sections) == 0 {
		section.NoPlan = noEndpoint
		if len(service.Spec.Selector) == 0 {
			section.NoPlan = "the Service has no selector and the manifests have no EndpointSlice of it, so its endpoints are unknown"
		}
		sections = append(sections, section)
	}
	return sections, nil
}

const noEndpoint = "no endpoint is ready"

// ask sets the request.
func (s *Section) ask(request intent.Request) {
	s.Request = request
	s.AsksFor, s.Source, s.Tiers = explain.Intent(request.Intent), request.Source, request.Intent.Tiers
	s.Upstream, s.Warnings = request.Upstream, slices.Clone(request.Warnings)
	for _, sentence := range []string{request.Declined, request.Hides} {
		if sentence != "" {
			s.Warnings = append(s.Warnings, sentence)
		}
	}
}

func (p *Planner) compare(s *Section, endpoints []intent.Endpoint) error {
	if len(endpoints) == 0 {
		s.NoPlan = noEndpoint
		return nil
	}
	q := p.Question
	switch {
	case s.Request.Headless:
		q = p.Groups
		q.Delivery, q.Algorithms = allocate.DeliveryGroups, withoutWeights(q.Algorithms)
	case s.Request.Groups && !p.Settings.WithoutGroups:
		q = p.Groups
	}
	s.ask(s.Request.WithGroups(q.Delivery == allocate.DeliveryGroups))
	capacity := s.Request.Capacity
	if p.Capacity != "" {
		capacity = intent.Capacity{Type: p.Capacity, WithoutControlPlane: s.Request.Capacity.WithoutControlPlane}
	}
	q.Region = p.Cluster.Region(capacity, endpoints)
	q.CPU = p.Cluster.Region(intent.AutoCapacity(), endpoints)
	q.Asked = s.Request.Intent
	if bound := q.Asked.Bound; bound != nil {
		asked := q.Thresholds.Apply(*bound)
		q.Asked.Bound = &asked
	}
	q.Pods = examples(endpoints)
	request, fault := s.Request, ""
	request.Intent, request.Capacity = q.Asked, capacity
	q.Nodes, fault = routing.NodeTiers(p.Cluster, request, q.Delivery, endpoints)
	s.Question, s.Unit = q, capacity.Type
	var err error
	if s.Comparison, err = explain.Compare(q); err != nil {
		return err
	}
	s.Warnings = slices.Concat(s.Warnings, explain.Warnings(q.Region), hintWarnings(&s.Plans))
	if fault != "" {
		s.Warnings = append(s.Warnings, fault)
	}
	s.AsksFor, s.Capacity, s.Delivery = explain.Intent(q.Asked), string(capacity.Type), string(q.Delivery)
	s.Zones, s.Algorithms, s.Plan = s.zones(), s.algorithms(), s.groups()
	return nil
}

// hintWarnings returns sentences about parts of the plan that hints cannot express.
func hintWarnings(p *Plans) []string {
	if p.Question.Delivery != allocate.DeliveryHints {
		return nil
	}
	var warnings []string
	if p.Question.Asked.Tiers.Hard() {
		warnings = append(warnings, fmt.Sprintf("%s cannot express a requirement: where no endpoint is near, proxies use all; see --delivery %s", allocate.DeliveryHints, allocate.DeliveryGroups))
	}
	groups, most := p.Shown().Plan.Groups, 0
	for i := range groups {
		most = max(most, len(groups[i].Consumers))
	}
	// One group for all zones needs no hints.
	if len(groups) > 1 && most > v1alpha1.MaxHints {
		warnings = append(warnings, fmt.Sprintf("%s cannot express this plan: an endpoint serves %d zones, at most %d are allowed; see --delivery %s",
			allocate.DeliveryHints, most, v1alpha1.MaxHints, allocate.DeliveryGroups))
	}
	return warnings
}

// Advise adds advice, which takes many plans to find.
func (s *Section) Advise() error {
	if s.NoPlan != "" {
		return nil
	}
	found, err := explain.Advise(s.Question, *s.Shown())
	if err != nil {
		return fmt.Errorf("planning Service %s: %w", s.Title(), err)
	}
	for i := range found {
		a := &found[i]
		s.Advice = append(s.Advice, Advice{
			Advice: a.String(), Moves: a.Moves, InZone: percent(a.After.Figures.InZone),
			MaxOverload: percent(a.After.Figures.Overload), Total: plaintext.Rounded(a.After.Total),
		})
	}
	return nil
}
