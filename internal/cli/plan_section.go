package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/cli/manifest"
	"vicinity.dev/vicinity/internal/explain"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/simulate"
	"vicinity.dev/vicinity/internal/translate"
)

// planSection is what there is to say about one address family of a Service.
type planSection struct {
	namespace, name string
	family          corev1.IPFamily // empty unless the Service has several
	request         translate.Request
	warnings        []string
	// noPlan is why there is no plan. If there is a reason, what follows is zero.
	noPlan     string
	capacity   translate.Capacity
	question   explain.Question
	comparison explain.Comparison
	advice     []explain.Advice
}

func (s *planSection) title() string {
	title := s.namespace + "/" + s.name
	if s.family != "" {
		title += " (" + string(s.family) + ")"
	}
	return title
}

// asked is what the Service asks for.
func (s *planSection) asked() *explain.Option { return &s.comparison.Options[s.comparison.Asked] }

// shown is what the Service asks for or, if that is nothing, what it could.
func (s *planSection) shown() *explain.Option { return &s.comparison.Options[s.comparison.Shown] }

// planner makes sections.
type planner struct {
	manifests *manifest.Set
	cluster   *translate.Cluster
	question  explain.Question
	// groups is the question for Services that ask for groups, which is the same if one
	// delivery is for all.
	groups   explain.Question
	capacity translate.CapacityType // empty: as the Service asks
}

// request is what a Service asks for, by the policies among the manifests, too.
func (p *planner) request(service *corev1.Service) translate.Request {
	return translate.RequestOf(service, p.manifests.Policies, translate.Options{Defaults: p.manifests.Defaults(service.Namespace)})
}

// sections are those of one Service: one, or one for each of its families.
func (p *planner) sections(service *corev1.Service) ([]planSection, error) {
	section := planSection{namespace: service.Namespace, name: service.Name, request: p.request(service)}
	section.noPlan = section.request.NoPlan
	if section.noPlan != "" {
		return []planSection{section}, nil
	}
	families := p.manifests.Endpoints(service, p.cluster)
	var sections []planSection
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		endpoints, found := families[family]
		if !found {
			continue
		}
		s := section
		if len(families) > 1 {
			s.family = family
		}
		if err := p.fill(&s, endpoints); err != nil {
			return nil, fmt.Errorf("planning Service %s: %w", s.title(), err)
		}
		sections = append(sections, s)
	}
	if len(sections) == 0 {
		section.noPlan = "no endpoint is ready"
		if len(service.Spec.Selector) == 0 {
			section.noPlan = "the Service has no selector and the manifests have no EndpointSlice of it, so its endpoints are unknown"
		}
		sections = append(sections, section)
	}
	return sections, nil
}

// fill compares the plans for the endpoints of one family.
func (p *planner) fill(s *planSection, endpoints []translate.Endpoint) error {
	if len(endpoints) == 0 {
		s.noPlan = "no endpoint is ready"
		return nil
	}
	q := p.question
	if s.request.Groups {
		q = p.groups
	}
	s.request = s.request.WithGroups(q.Delivery == simulate.Groups)
	s.capacity = s.request.Capacity
	if p.capacity != "" {
		s.capacity = translate.Capacity{Type: p.capacity, WithoutControlPlane: s.request.Capacity.WithoutControlPlane}
	}
	q.Region = p.cluster.Region(s.capacity, endpoints)
	q.CPU = p.cluster.Region(translate.AutoCapacity(), endpoints)
	q.Asked = s.request.Intent
	if bound := q.Asked.Bound; bound != nil {
		asked := q.Thresholds.Apply(*bound)
		q.Asked.Bound = &asked
	}
	q.Pods = examples(endpoints)
	request, fault := s.request, ""
	request.Intent, request.Capacity = q.Asked, s.capacity
	q.Nodes, fault = routing.NodeTiers(p.cluster, request, q.Delivery, endpoints)
	s.question = q
	var err error
	if s.comparison, err = explain.Compare(q); err != nil {
		return err
	}
	s.warnings = slices.Concat(explain.Warnings(q.Region), hintWarnings(s))
	if s.request.Declined != "" {
		s.warnings = append(s.warnings, s.request.Declined)
	}
	if fault != "" {
		s.warnings = append(s.warnings, fault)
	}
	return nil
}

// hintWarnings say what hints cannot express of what is asked for.
func hintWarnings(s *planSection) []string {
	if s.question.Delivery != simulate.Hints {
		return nil
	}
	var warnings []string
	if s.question.Asked.Tiers.Hard() {
		warnings = append(warnings, fmt.Sprintf("%s cannot require: where no endpoint is near, proxies use all; see --delivery %s", simulate.Hints, simulate.Groups))
	}
	groups, most := s.shown().Plan.Groups, 0
	for i := range groups {
		most = max(most, len(groups[i].Consumers))
	}
	// One group for all needs no hints.
	if len(groups) > 1 && most > v1alpha1.MaxHints {
		warnings = append(warnings, fmt.Sprintf("%s cannot express this plan: an endpoint serves %d zones, at most %d are allowed; see --delivery %s",
			simulate.Hints, most, v1alpha1.MaxHints, simulate.Groups))
	}
	return warnings
}

// examples are names of pods by zone, the first of each.
func examples(endpoints []translate.Endpoint) map[string]string {
	pods := map[string]string{}
	for _, e := range endpoints {
		if first, found := pods[e.Zone]; e.Pod != "" && (!found || strings.Compare(e.Pod, first) < 0) {
			pods[e.Zone] = e.Pod
		}
	}
	return pods
}

// advise adds advice to the sections.
func (p *planner) advise(ctx context.Context, sections []planSection) error {
	for i := range sections {
		if err := ctx.Err(); err != nil {
			return err
		}
		s := &sections[i]
		if s.noPlan != "" {
			continue
		}
		var err error
		if s.advice, err = explain.Advise(s.question, *s.shown()); err != nil {
			return fmt.Errorf("planning Service %s: %w", s.title(), err)
		}
	}
	return nil
}
