// Package intent turns API objects into values of package allocate: what a Service asks
// for, the zones with their capacity, and the endpoints of a Service.
//
// It decides nothing about traffic, and never changes its input, which may be shared with
// a cache.
package intent

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/topology"
)

// Request is a Service's request for routing.
type Request struct {
	Intent allocate.Intent
	// Approach is the kind of intent, for metrics.
	Approach Approach
	// Capacity says how the traffic of a zone is estimated.
	Capacity Capacity
	// Source is the origin of the intent, as in "annotation endpointslice.kubernetes.io/same-zone: Prefer", empty if
	// nothing is asked for.
	Source string
	// Policy and ClusterPolicy name the policy that applies, if one does.
	Policy        string
	ClusterPolicy string
	// BoundBy is the policy that bounds a preference of the Service itself, as in "RoutingPolicy near by its selector".
	BoundBy string
	// Selected says that the policy selects the Service, rather than the Service naming it.
	Selected bool
	// SelectedWarnings counts the Warnings about policies that select the Service.
	SelectedWarnings int
	// Declined is why a policy that selects the Service has no effect, empty if there is none.
	Declined string
	// OwnZone gives every endpoint a hint for its own zone only, even if that leaves a zone without endpoints.
	OwnZone bool
	// Upstream says that Kubernetes' own controllers act on the request.
	Upstream bool
	// Groups says that vicinity-proxy serves the Service, and GroupsBy what asks for that.
	Groups   bool
	GroupsBy string
	// Headless says that clients find the endpoints by DNS, which reads groups. Proxies ignore the Service.
	Headless bool
	// Hides warns that members of a headless Service cannot find all others by its name, because the Service itself
	// asks for a plan. It is empty for most Services.
	Hides string
	// NoPlan is why the Service cannot have a plan, empty for most Services.
	NoPlan string
	// Warnings are sentences about settings without effect.
	Warnings []string

	// unnamed says that no algorithm is given, so the bound has the default of the delivery.
	unnamed bool
	// bounds is the Source of a preference that a policy bounds.
	bounds string
	// settled says that a policy was found, the only one that counts. delivery is its delivery.
	settled  bool
	delivery v1alpha1.Delivery
}

// Approach is a kind of intent.
type Approach string

// The approaches.
const (
	ApproachBalanced Approach = "Balanced"
	ApproachRequire  Approach = "Require" // tiers that end, as Require makes them
	ApproachPrefer   Approach = "Prefer"
	ApproachAuto     Approach = "Auto"
	ApproachKeys     Approach = "Keys" // tiers that the user lists
)

// Approaches lists all approaches.
func Approaches() []Approach {
	return []Approach{ApproachBalanced, ApproachRequire, ApproachPrefer, ApproachAuto, ApproachKeys}
}

// Options come from the administrator and the cluster.
type Options struct {
	// TakeOverAuto says that Vicinity plans for topology-mode: Auto, instead of Kubernetes.
	TakeOverAuto bool
	// Defaults are the ClusterRoutingPolicies of the Service's namespace: see ForNamespace.
	Defaults []*v1alpha1.ClusterRoutingPolicy
	// GivesNames says that pods are known to have names under that of the Service.
	GivesNames bool
	// GroupsByDefault says that groups deliver plans for which neither the Service nor a policy names a delivery.
	GroupsByDefault bool
}

// RequestOf reads what a Service asks for. The first of the rows that applies counts, and a later policy can bound and
// deliver what the Service itself asks for. Policies of other namespaces are ignored. The intent is always valid.
func RequestOf(service *corev1.Service, policies []*v1alpha1.RoutingPolicy, options Options) Request {
	from := written{service: service, options: options, policies: namespacePolicies(service.Namespace, policies)}
	var request Request
	for _, row := range rows() {
		if from.own = nil; request.isTunable() {
			from.own = new(request)
		}
		asked, warnings := row(from)
		request.Warnings = append(request.Warnings, warnings...)
		switch {
		case request.Source == "", from.own != nil && asked.settled:
			asked.Warnings = append(request.Warnings, asked.Warnings...)
			asked.SelectedWarnings += request.SelectedWarnings
			asked.Declined = cmp.Or(request.Declined, asked.Declined)
			request = asked
		case from.own != nil && asked.Declined != "":
			request.Declined = cmp.Or(request.Declined, asked.Declined)
		case asked.Source != "" && overrides(request, asked):
			request.Warnings = append(request.Warnings, fmt.Sprintf("%s has no effect: %s comes first", asked.Source, request.Source))
		}
	}
	request.bounds = ""
	if request.Approach == "" {
		request.Approach = approachOf(request.Intent)
	}
	if request.Capacity.Type == "" {
		request.Capacity.Type = CapacityNodes
	}
	request.NoPlan = unroutableReason(service)
	var warning string
	if request.GroupsBy, warning = request.asksForGroups(from); warning != "" {
		request.Warnings = append(request.Warnings, warning)
	}
	if IsHeadless(service) {
		request.makeHeadless(from)
	}
	return request.WithGroups(request.GroupsBy != "")
}

// isTunable reports whether a policy can still bound or deliver what the Service itself asks for. Kubernetes' heuristic
// has rules of its own.
func (r *Request) isTunable() bool {
	return r.Source != "" && !r.settled && !r.Upstream && !r.AsksNothing() && r.Approach != ApproachAuto
}

// AsksNothing reports whether all clients use all endpoints.
func (r *Request) AsksNothing() bool {
	return len(r.Intent.Tiers) == 0 && r.Intent.Bound == nil
}

// WithGroups returns the request for delivery by groups or hints. For a headless Service it changes nothing: DNS has no
// weights.
func (r Request) WithGroups(groups bool) Request {
	groups = groups && !r.Headless
	r.Groups = groups
	if r.unnamed {
		bound := *r.Intent.Bound
		bound.Algorithm = DefaultAlgorithm(groups)
		r.Intent.Bound = &bound
	}
	return r
}

// DefaultAlgorithm is the algorithm of a bound that names none. Groups can carry weights.
func DefaultAlgorithm(groups bool) allocate.Algorithm {
	if groups {
		return allocate.Flow
	}
	return allocate.Optimal
}

// ProxyAnnotation is the GroupsBy of a Service that asks for groups itself.
const ProxyAnnotation = "annotation " + v1alpha1.AnnotationProxy

// asksForGroups returns what gives the Service to vicinity-proxy, empty if nothing does. The Service's annotation comes
// before the policy, and the policy before the default, which is for plans by hints.
func (r *Request) asksForGroups(from written) (by, warning string) {
	value, given := from.service.Annotations[v1alpha1.AnnotationProxy]
	proxy := from.service.Labels[v1alpha1.LabelServiceProxyName]
	headless, taken := IsHeadless(from.service), proxy != "" && proxy != v1alpha1.ServiceProxyName
	switch {
	case value == "true" && headless:
		return "", fmt.Sprintf("%s: true has no effect: the Service is headless (clusterIP: None), so no proxy serves it", ProxyAnnotation)
	case value == "true" && taken:
		return "", fmt.Sprintf("%s: true has no effect: label %s gives the Service to %q", ProxyAnnotation, v1alpha1.LabelServiceProxyName, proxy)
	case value == "true":
		return ProxyAnnotation, ""
	case given && value != "false":
		warning = fmt.Sprintf("%s: %q is unknown; allowed are true and false", ProxyAnnotation, value)
	}
	switch {
	case value == "false" || headless || taken || r.NoPlan != "":
	case r.delivery == v1alpha1.DeliveryGroups:
		by = "spec.delivery of " + r.FromPolicy()
	case r.delivery == "" && from.options.GroupsByDefault && r.Source != "" && !r.Upstream && !r.AsksNothing() && r.Approach != ApproachAuto:
		by = "--groups-by-default"
	}
	return by, warning
}

// overrides reports whether to warn that first overrides second. It does not if second is a policy, which is for many
// Services, nor for the two usual ways to ask for the same zone.
func overrides(first, second Request) bool {
	switch {
	case second.Policy != "", second.ClusterPolicy != "", first.bounds == second.Source:
		return false
	}
	return !first.OwnZone || !slices.Equal(first.Intent.Tiers, second.Intent.Tiers)
}

func approachOf(intent allocate.Intent) Approach {
	switch {
	case intent.Tiers.Hard():
		return ApproachRequire
	case len(intent.Tiers) > 0 || intent.Bound != nil:
		return ApproachPrefer
	}
	return ApproachBalanced
}

type written struct {
	service  *corev1.Service
	policies []anyPolicy // of the namespace, in the order of precedence
	options  Options
	// own is the request of the Service's own annotations, for rows of policies. It is nil if these come first or do not count.
	own *Request
}

// row reads one way to ask. The Source of the request is empty if the Service does not use it validly. Warnings are
// about invalid values.
type row func(written) (request Request, warnings []string)

// rows lists the ways to ask, in the order of precedence.
func rows() []row {
	return []row{balanced, nearness, topologyKeys, namedPolicy, ownZone, selectingPolicy, auto, trafficDistribution, clusterPolicy}
}

// FromPolicy returns the policy that applies, as in "RoutingPolicy near", empty if none does.
func (r *Request) FromPolicy() string {
	switch {
	case r.Policy != "":
		return kindPolicy + " " + r.Policy
	case r.ClusterPolicy != "":
		return kindClusterPolicy + " " + r.ClusterPolicy
	}
	return ""
}

// unroutableReason returns why neither proxies nor DNS choose among the Service's endpoints, empty if they do. Local
// traffic policies are for proxies, so they mean nothing for a headless Service.
func unroutableReason(service *corev1.Service) string {
	switch {
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return fmt.Sprintf("type ExternalName: the Service is a name for %q and has no endpoints", service.Spec.ExternalName)
	case IsHeadless(service):
		return ""
	case service.Spec.InternalTrafficPolicy != nil && *service.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal:
		return "internalTrafficPolicy: Local: each node uses its own endpoints only, so there is nothing to divide"
	}
	return ""
}

func balanced(from written) (request Request, warnings []string) {
	if from.service.Annotations[v1alpha1.AnnotationSameZone] == v1alpha1.Balanced {
		request.Source = annotation(v1alpha1.AnnotationSameZone, v1alpha1.Balanced)
	}
	return request, nil
}

type level struct {
	annotation, key string
}

// levels are the kinds of domains, narrowest first. Requiring one requires all wider ones.
func levels() []level {
	return []level{
		{v1alpha1.AnnotationSameNode, topology.Hostname},
		{v1alpha1.AnnotationSameZone, topology.Zone},
		{v1alpha1.AnnotationSameRegion, topology.Region},
	}
}

func nearness(from written) (request Request, warnings []string) {
	var sources []string
	required, bounded := false, false
	for _, level := range levels() {
		value, given := from.service.Annotations[level.annotation]
		switch {
		case !given || value == v1alpha1.Balanced:
			continue
		case value != v1alpha1.Prefer && value != v1alpha1.Require:
			warnings = append(warnings, fmt.Sprintf("annotation %s: %q is unknown; allowed are %s, %s and %s",
				level.annotation, value, v1alpha1.Balanced, v1alpha1.Prefer, v1alpha1.Require))
			continue
		}
		sources = append(sources, level.annotation+": "+value)
		if required {
			continue
		}
		request.Intent.Tiers = append(request.Intent.Tiers, level.key)
		required = value == v1alpha1.Require
		bounded = bounded || level.key == topology.Zone && value == v1alpha1.Prefer
	}
	if len(sources) == 0 {
		return Request{}, warnings
	}
	if !required {
		request.Intent.Tiers = append(request.Intent.Tiers, topology.Anywhere)
	}
	if bounded {
		request.Intent.Bound, request.unnamed = new(allocate.DefaultBound(DefaultAlgorithm(false))), true
	}
	request.Source = "annotation " + sources[0]
	if len(sources) > 1 {
		request.Source = "annotations " + strings.Join(sources, ", ")
	}
	return request, warnings
}

func topologyKeys(from written) (request Request, warnings []string) {
	list, given := from.service.Annotations[v1alpha1.AnnotationTopologyKeys]
	if !given {
		return Request{}, nil
	}
	tiers, err := ParseTopologyKeys(list)
	if err != nil {
		return Request{}, []string{fmt.Sprintf("annotation %s: %v", v1alpha1.AnnotationTopologyKeys, err)}
	}
	if fault := localKeys(from.service, tiers, writtenKeys(list)); fault != "" {
		return Request{}, []string{fault}
	}
	return Request{
		Intent:   allocate.Intent{Tiers: tiers},
		Approach: ApproachKeys,
		Source:   writtenKeys(list),
	}, nil
}

func ownZone(from written) (request Request, warnings []string) {
	if from.service.Labels[v1alpha1.LabelOwnZone] != "true" {
		return Request{}, nil
	}
	return Request{
		Intent:  allocate.Intent{Tiers: topology.Tiers{topology.Zone, topology.Anywhere}},
		Source:  fmt.Sprintf("label %s: %q", v1alpha1.LabelOwnZone, "true"),
		OwnZone: true,
	}, nil
}

// auto reads Kubernetes' own heuristic from the older annotation or, if there is
// none, from the newer one.
func auto(from written) (request Request, warnings []string) {
	name, value := Heuristic(from.service)
	switch {
	case isAuto(value):
	case name == v1alpha1.AnnotationTopologyAwareHints && strings.HasPrefix(value, v1alpha1.PolicyPrefix):
		return Request{}, []string{fmt.Sprintf("annotation %s: %q has no effect; a RoutingPolicy is named in %s",
			name, value, v1alpha1.AnnotationTopologyMode)}
	case value == "", isDisabled(value), strings.Contains(value, "/"):
		return Request{}, nil // a value with a slash is a policy's or another controller's
	default:
		return Request{}, []string{fmt.Sprintf("annotation %s: %q is unknown; allowed are Auto, Disabled and, in %s, %sNAME for a RoutingPolicy",
			name, value, v1alpha1.AnnotationTopologyMode, v1alpha1.PolicyPrefix)}
	}
	return Request{
		Intent:   allocate.Intent{Tiers: topology.Tiers{topology.Zone, topology.Anywhere}, Bound: new(allocate.DefaultBound(allocate.Auto))},
		Approach: ApproachAuto,
		Capacity: AutoCapacity(),
		Source:   annotation(name, value),
		// Kubernetes ignores it for a headless Service. Vicinity must not hide members from each other by taking it
		// over.
		Upstream: !from.options.TakeOverAuto || from.peersReason() != "",
	}, nil
}

// Heuristic returns what the Service says about the writer of its hints: the older annotation or, without it, the newer
// one.
func Heuristic(service *corev1.Service) (name, value string) {
	if value, given := service.Annotations[v1alpha1.AnnotationTopologyAwareHints]; given {
		return v1alpha1.AnnotationTopologyAwareHints, value
	}
	return v1alpha1.AnnotationTopologyMode, service.Annotations[v1alpha1.AnnotationTopologyMode]
}

func isAuto(value string) bool { return value == "Auto" || value == "auto" }

func isDisabled(value string) bool { return value == "Disabled" || value == "disabled" }

// HintedUpstream reports whether Kubernetes itself writes hints for the Service.
func HintedUpstream(service *corev1.Service) bool {
	_, value := Heuristic(service)
	return isAuto(value) || service.Spec.TrafficDistribution != nil
}

// declineReason returns why policies cannot select the Service, empty for most Services: it wants no hints, another
// controller writes them, or clients need all members.
func declineReason(from written) string {
	switch name, value := Heuristic(from.service); {
	case isDisabled(value):
		return annotation(name, value) + " opts out of it"
	case strings.Contains(value, "/") && !strings.HasPrefix(value, v1alpha1.PolicyPrefix):
		return annotation(name, value) + " leaves the hints to another controller"
	}
	if peers := from.peersReason(); peers != "" && from.own == nil {
		return peers + "; DNS gives all of them, unless the Service itself asks for a plan"
	}
	return ""
}

func trafficDistribution(from written) (request Request, warnings []string) {
	if from.service.Spec.TrafficDistribution == nil {
		return Request{}, nil
	}
	value := *from.service.Spec.TrafficDistribution
	tiers := distributionTiers(value)
	if tiers == nil {
		return Request{}, []string{fmt.Sprintf("spec.trafficDistribution: %q is unknown; allowed are %s, %s and %s", value,
			corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode, corev1.ServiceTrafficDistributionPreferClose)}
	}
	return Request{Intent: allocate.Intent{Tiers: tiers}, Source: distributionSource(value), Upstream: true}, nil
}

// distributionTiers returns the tiers of a spec.trafficDistribution, nil if it is unknown.
func distributionTiers(value string) topology.Tiers {
	switch value {
	case corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone:
		return topology.Tiers{topology.Zone, topology.Anywhere}
	case corev1.ServiceTrafficDistributionPreferSameNode:
		return topology.Tiers{topology.Hostname, topology.Zone, topology.Anywhere}
	}
	return nil
}

func distributionSource(value string) string {
	return "spec.trafficDistribution: " + value
}

func annotation(name, value string) string {
	return "annotation " + name + ": " + plaintext.Of(value)
}

// AutoCapacity returns the capacity of Kubernetes' own heuristic.
func AutoCapacity() Capacity {
	return Capacity{Type: CapacityCPU, WithoutControlPlane: true}
}
