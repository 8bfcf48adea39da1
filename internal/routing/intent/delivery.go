package intent

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
)

// IsHeadless reports whether clients get the addresses of endpoints from DNS, without a proxy.
func IsHeadless(service *corev1.Service) bool {
	return service.Spec.ClusterIP == corev1.ClusterIPNone && service.Spec.Type != corev1.ServiceTypeExternalName
}

// IsHandedOver reports whether the Service's label names vicinity-proxy.
func IsHandedOver(service *corev1.Service) bool {
	return service.Labels[v1alpha1.LabelServiceProxyName] == v1alpha1.ServiceProxyName
}

// GivesNames reports whether any endpoint has a name under that of the Service. Kubernetes writes it for pods whose
// subdomain is the Service, such as those of a StatefulSet that it governs.
func GivesNames(eps []*discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(eps, func(slice *discoveryv1.EndpointSlice) bool {
		return slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool { return e.Hostname != nil && *e.Hostname != "" })
	})
}

// ProxySlices returns the slices of a Service that proxies read. Users can write slices, too. A slice with the label of
// headless Services has no endpoints for proxies.
func ProxySlices(service *corev1.Service, eps []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	if IsHeadless(service) || !slices.ContainsFunc(eps, isForNames) {
		return eps
	}
	read := slices.Clone(eps)
	for i, slice := range read {
		if isForNames(slice) {
			empty := *slice
			empty.Endpoints = nil
			read[i] = &empty
		}
	}
	return read
}

func isForNames(slice *discoveryv1.EndpointSlice) bool {
	_, labelled := slice.Labels[corev1.IsHeadlessService]
	return labelled
}

// PeersReason says why members of a headless Service may find each other by its name, empty for most Services.
func PeersReason(service *corev1.Service, givesNames bool) string {
	return written{service: service, options: Options{GivesNames: givesNames}}.peersReason()
}

// peersReason says why members of a headless Service may find each other by its name, and so need all of them. It is
// empty for most Services.
func (w written) peersReason() string {
	switch {
	case !IsHeadless(w.service):
		return ""
	case w.service.Spec.PublishNotReadyAddresses:
		return "its members may find each other by its name, since publishNotReadyAddresses is true"
	case w.options.GivesNames && len(w.service.Spec.Selector) == 0:
		return "its members may find each other by its name, since endpoints have names under it"
	case w.options.GivesNames:
		return "its members may find each other by its name, since pods have names under it, as those of a StatefulSet"
	}
	return ""
}

// makeHeadless changes the request for a headless Service.
func (r *Request) makeHeadless(from written) {
	r.Headless = true
	// DNS has no hints: the tiers of the label apply to records.
	r.OwnZone = false
	switch {
	case r.Source == "":
		r.NoPlan = "headless (clusterIP: None): nothing is asked for, so DNS gives all endpoints to every client"
	case r.Upstream:
		r.NoPlan = fmt.Sprintf("headless (clusterIP: None): neither Kubernetes nor Vicinity acts on %s there, so DNS gives all endpoints to every client", r.Source)
	case r.AsksNothing():
		r.NoPlan = fmt.Sprintf("headless (clusterIP: None): DNS gives all endpoints to every client, as %s asks", r.Source)
	default:
		r.Hides = r.hidesWarning(from.peersReason())
	}
}

// hidesWarning warns about a Service whose members may find each other by it.
func (r *Request) hidesWarning(peers string) string {
	if peers == "" {
		return ""
	}
	hidden := "members that are not near it"
	if r.Intent.Tiers.Hard() {
		hidden += ", and all members where none is near"
	}
	return fmt.Sprintf("%s: %s hides from each client %s; names of single pods stay", peers, r.Source, hidden)
}

// withoutWeights returns the bound for a headless Service, because DNS has no weights. The warning names an algorithm
// that it replaces.
func withoutWeights(bound allocate.Bound) (plain allocate.Bound, warning string) {
	if !bound.Algorithm.Weighted() {
		return bound, ""
	}
	plain = allocate.ThresholdsOf(bound).Bound(DefaultAlgorithm(false))
	return plain, fmt.Sprintf("DNS records of a headless Service have no weights, which algorithm %s needs; %s is used", bound.Algorithm, plain.Algorithm)
}

// NeedOfGroups returns the predicate of a sentence about the part of an intent that hints cannot express, empty if they
// can express all of it.
func NeedOfGroups(intent allocate.Intent) string {
	switch {
	case intent.Tiers.Hard():
		return "requires a near endpoint, which hints cannot express: where none is near, a stock proxy uses all"
	case intent.Bound != nil && intent.Bound.Algorithm.Weighted():
		return "uses the algorithm " + string(intent.Bound.Algorithm) + ", whose weights hints cannot carry"
	}
	return ""
}

// Reasons why a delivery has no effect.
const (
	GroupsAreOff = "delivery by groups is switched off in this cluster"
	HintsAreOff  = "delivery by hints is switched off in this cluster"
)

// Exclusion says which Services Vicinity ignores. The zero value excludes only that of the API server.
type Exclusion struct {
	// Own is Vicinity's own namespace, empty if it is unknown.
	Own string
	// Namespaces are excluded by the administrator.
	Namespaces []string
}

// DefaultExcluded returns the namespaces that are excluded by default.
func DefaultExcluded() []string { return []string{metav1.NamespaceSystem} }

// apiService is the Service of the API server, which rewrites its slices itself.
const apiService = "kubernetes"

// Reason says why Vicinity ignores a Service, empty if it does not.
func (e Exclusion) Reason(namespace, service string) string {
	switch {
	case namespace == metav1.NamespaceDefault && service == apiService:
		return "the API server writes its slices"
	case namespace == e.Own && e.Own != "":
		return fmt.Sprintf("namespace %s is Vicinity's own", namespace)
	case slices.Contains(e.Namespaces, namespace):
		return fmt.Sprintf("namespace %s is excluded by --exclude-namespaces", namespace)
	}
	return ""
}
