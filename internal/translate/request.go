// Package translate turns Kubernetes objects into the values of the core: what a
// Service asks for, which zones there are and what they can bear, and which
// endpoints a Service has where. It also reads those objects from manifests.
//
// It decides nothing about traffic, and it never changes the objects that it is
// given: they may be shared with a cache.
package translate

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/topology"
)

// Request is what a Service asks for.
type Request struct {
	Intent allocate.Intent
	// Capacity is what the traffic of a zone is estimated by.
	Capacity Capacity
	// Source is where the Service says it, as in "annotation
	// endpointslice.kubernetes.io/same-zone: Prefer". It is empty if the Service
	// says nothing.
	Source string
	// Upstream says that Kubernetes' own controllers do what is asked for.
	Upstream bool
	// NoPlan is why no plan can be made for the Service, whatever it asks for. It is
	// empty for most.
	NoPlan string
	// Warnings name what is written on the Service and has no effect.
	Warnings []string
}

// RequestOf reads what a Service asks for. Of several ways to ask, the one that
// comes first in the list of rows counts.
func RequestOf(service *corev1.Service) Request {
	var request Request
	for _, row := range rows() {
		asked, warnings := row(service)
		request.Warnings = append(request.Warnings, warnings...)
		switch {
		case asked.Source == "":
		case request.Source == "":
			asked.Warnings = request.Warnings
			request = asked
		default:
			request.Warnings = append(request.Warnings, fmt.Sprintf("%s has no effect: %s comes first", asked.Source, request.Source))
		}
	}
	if request.Capacity == "" {
		request.Capacity = CapacityNodes
	}
	request.NoPlan = unroutable(service)
	return request
}

// row reads one way to ask. The Source of the request is empty if the Service does
// not use it, or not in a way that makes sense.
type row func(*corev1.Service) (request Request, warnings []string)

// rows lists the ways to ask, in the order of precedence.
func rows() []row {
	return []row{balanced, nearness, topologyKeys, namedPolicy, ownZone, auto, trafficDistribution}
}

// unroutable is why no proxy chooses among the Service's endpoints for all clients
// alike.
func unroutable(service *corev1.Service) string {
	switch {
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return fmt.Sprintf("type ExternalName: the Service is a name for %q and has no endpoints", service.Spec.ExternalName)
	case service.Spec.ClusterIP == corev1.ClusterIPNone:
		return "headless (clusterIP: None): clients connect to the addresses that DNS gives them, so there is nothing to route"
	case service.Spec.InternalTrafficPolicy != nil && *service.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal:
		return "internalTrafficPolicy: Local: each node uses its own endpoints only, so there is nothing to divide"
	}
	return ""
}

// balanced reads same-zone: Balanced. A value that does not exist asks for the same,
// unless another way is used.
func balanced(service *corev1.Service) (request Request, warnings []string) {
	if service.Annotations[AnnotationSameZone] == Balanced {
		request.Source = annotation(AnnotationSameZone, Balanced)
	}
	return request, nil
}

// level is a kind of place that a Service can ask to stay in.
type level struct {
	annotation, key string
}

// levels are the kinds of places from the narrowest on: to require one is to
// require all after it.
func levels() []level {
	return []level{
		{AnnotationSameNode, topology.Hostname},
		{AnnotationSameZone, topology.Zone},
		{AnnotationSameRegion, topology.Region},
	}
}

// nearness reads same-node, same-zone and same-region together.
func nearness(service *corev1.Service) (request Request, warnings []string) {
	var sources []string
	required, bounded := false, false
	for _, level := range levels() {
		value, given := service.Annotations[level.annotation]
		switch {
		case !given || value == Balanced:
			continue
		case value != Prefer && value != Require:
			warnings = append(warnings, fmt.Sprintf("annotation %s: %q is unknown; allowed are %s, %s and %s",
				level.annotation, value, Balanced, Prefer, Require))
			continue
		}
		sources = append(sources, level.annotation+": "+value)
		if required {
			continue
		}
		request.Intent.Tiers = append(request.Intent.Tiers, level.key)
		required = value == Require
		bounded = bounded || level.key == topology.Zone && value == Prefer
	}
	if len(sources) == 0 || service.Annotations[AnnotationSameZone] == Balanced {
		return Request{}, warnings
	}
	if !required {
		request.Intent.Tiers = append(request.Intent.Tiers, topology.Anywhere)
	}
	if bounded {
		request.Intent.Bound = DefaultBound()
	}
	request.Source = "annotation " + sources[0]
	if len(sources) > 1 {
		request.Source = "annotations " + strings.Join(sources, ", ")
	}
	return request, warnings
}

// topologyKeys reads the annotation that stands for spec.topologyKeys.
func topologyKeys(service *corev1.Service) (request Request, warnings []string) {
	list, given := service.Annotations[AnnotationTopologyKeys]
	if !given {
		return Request{}, nil
	}
	tiers, err := ParseTopologyKeys(list)
	if err != nil {
		return Request{}, []string{fmt.Sprintf("annotation %s: %v", AnnotationTopologyKeys, err)}
	}
	return Request{
		Intent: allocate.Intent{Tiers: tiers},
		Source: fmt.Sprintf("annotation %s: %q", AnnotationTopologyKeys, list),
	}, nil
}

// namedPolicy reads a topology mode that names a RoutingPolicy.
func namedPolicy(service *corev1.Service) (request Request, warnings []string) {
	mode := service.Annotations[AnnotationTopologyMode]
	if !strings.HasPrefix(mode, PolicyPrefix) {
		return Request{}, nil
	}
	return Request{}, []string{fmt.Sprintf("annotation %s: the RoutingPolicy %q is not known here",
		AnnotationTopologyMode, strings.TrimPrefix(mode, PolicyPrefix))}
}

// ownZone reads the label that asks for hints to the endpoint's own zone, always.
func ownZone(service *corev1.Service) (request Request, warnings []string) {
	if service.Labels[LabelOwnZone] != "true" {
		return Request{}, nil
	}
	return Request{
		Intent: allocate.Intent{Tiers: topology.Tiers{topology.Zone, topology.Anywhere}},
		Source: fmt.Sprintf("label %s: %q", LabelOwnZone, "true"),
	}, nil
}

// auto reads Kubernetes' own heuristic from the older annotation or, if there is
// none, from the newer one.
func auto(service *corev1.Service) (request Request, warnings []string) {
	name := AnnotationTopologyAwareHints
	value, given := service.Annotations[name]
	if !given {
		name = AnnotationTopologyMode
		value = service.Annotations[name]
	}
	if value != "Auto" && value != "auto" {
		return Request{}, nil
	}
	return Request{
		Intent:   allocate.Intent{Tiers: topology.Tiers{topology.Zone, topology.Anywhere}, Bound: AutoBound()},
		Capacity: CapacityCPU,
		Source:   annotation(name, value),
		Upstream: true,
	}, nil
}

// trafficDistribution reads the field of the Service API.
func trafficDistribution(service *corev1.Service) (request Request, warnings []string) {
	if service.Spec.TrafficDistribution == nil {
		return Request{}, nil
	}
	value := *service.Spec.TrafficDistribution
	request = Request{Source: "spec.trafficDistribution: " + value, Upstream: true}
	switch value {
	case corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone:
		request.Intent.Tiers = topology.Tiers{topology.Zone, topology.Anywhere}
	case corev1.ServiceTrafficDistributionPreferSameNode:
		request.Intent.Tiers = topology.Tiers{topology.Hostname, topology.Zone, topology.Anywhere}
	default:
		return Request{}, []string{fmt.Sprintf("spec.trafficDistribution: %q is unknown; allowed are %s, %s and %s", value,
			corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode, corev1.ServiceTrafficDistributionPreferClose)}
	}
	return request, nil
}

func annotation(name, value string) string {
	return "annotation " + name + ": " + value
}

// DefaultBound is the bound of a Service that prefers its zone and says no more.
func DefaultBound() *allocate.Bound {
	return &allocate.Bound{
		Algorithm:         allocate.Optimal,
		OverloadThreshold: allocate.DefaultOverloadThreshold,
		Start:             allocate.Start{PerZone: allocate.DefaultStartPerZone},
		Padding:           allocate.DefaultPadding,
	}
}

// AutoBound is the bound of Kubernetes' own heuristic, which starts at once.
func AutoBound() *allocate.Bound {
	return &allocate.Bound{
		Algorithm:         allocate.Auto,
		OverloadThreshold: allocate.DefaultAutoOverloadThreshold,
	}
}
