package translate

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/internal/allocate"
)

// IsHeadless reports whether clients get the addresses of the Service's endpoints from DNS,
// past all proxies.
func IsHeadless(service *corev1.Service) bool {
	return service.Spec.ClusterIP == corev1.ClusterIPNone && service.Spec.Type != corev1.ServiceTypeExternalName
}

// GivesNames reports whether any endpoint has a name under that of the Service. Kubernetes
// writes it for a pod whose subdomain is the Service: the pods of a StatefulSet have their
// governing Service as such.
func GivesNames(eps []*discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(eps, func(slice *discoveryv1.EndpointSlice) bool {
		return slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool { return e.Hostname != nil && *e.Hostname != "" })
	})
}

// ProxySlices are the slices of a Service as proxies read them. Its slices may be written by
// others than Kubernetes: one with the label of headless Services has no endpoints for proxies.
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

// peers says why the members of a headless Service may find each other by its name, so that
// each of them needs all. It is empty for most.
func (w written) peers() string {
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

// byNames makes the request that of a headless Service.
func (r *Request) byNames(from written) {
	r.Headless = true
	// The label asks for hints, and its tiers for records.
	r.OwnZone = false
	switch {
	case r.Source == "":
		r.NoPlan = "headless (clusterIP: None): nothing is asked for, so DNS gives all endpoints to every client"
	case r.Upstream:
		r.NoPlan = fmt.Sprintf("headless (clusterIP: None): Kubernetes does nothing about %s there, and Vicinity leaves it alone, so DNS gives all endpoints to every client", r.Source)
	case r.AsksNothing():
		r.NoPlan = fmt.Sprintf("headless (clusterIP: None): DNS gives all endpoints to every client, as %s asks", r.Source)
	default:
		r.Hides = r.hides(from.peers())
	}
}

// hides says what clients miss of a Service whose members may find each other by it.
func (r *Request) hides(peers string) string {
	if peers == "" {
		return ""
	}
	hidden := "those that are not near it"
	if r.Intent.Tiers.Hard() {
		hidden += ", and all where none is near"
	}
	return fmt.Sprintf("%s: %s hides from each client %s; names of single pods stay", peers, r.Source, hidden)
}

// withoutWeights is the bound for a headless Service: DNS gives a client an endpoint or does
// not. The warning says which weights are left out.
func withoutWeights(bound allocate.Bound) (plain allocate.Bound, warning string) {
	if !bound.Algorithm.Weighted() {
		return bound, ""
	}
	plain = allocate.ThresholdsOf(bound).Bound(DefaultAlgorithm(false))
	return plain, fmt.Sprintf("the algorithm %s weighs endpoints, which the DNS records of a headless Service cannot; %s holds", bound.Algorithm, plain.Algorithm)
}
