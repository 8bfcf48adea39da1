package translate

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Endpoint is a ready endpoint of a Service.
type Endpoint struct {
	Address string
	// Zone is "" if it is not known.
	Zone string
	Node string
	// Pod is the name of the pod, "" if the endpoint is not a pod.
	Pod string
}

// Families are the ready endpoints of a Service by address family, each in the order
// of addresses.
type Families map[corev1.IPFamily][]Endpoint

// SliceEndpoints reads the ready endpoints from the slices of one Service. An endpoint
// without the condition is ready. As in the proxies, an endpoint is its first address, and
// is the same in several slices, which have different ports. Every family that has a slice
// is in the result.
func SliceEndpoints(eps []*discoveryv1.EndpointSlice, cluster *Cluster) Families {
	ordered := slices.Clone(eps)
	slices.SortFunc(ordered, func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	// Names are not load balanced.
	ordered = slices.DeleteFunc(ordered, func(slice *discoveryv1.EndpointSlice) bool {
		return slice.AddressType != discoveryv1.AddressTypeIPv4 && slice.AddressType != discoveryv1.AddressTypeIPv6
	})
	sizes := map[discoveryv1.AddressType]int{}
	for _, slice := range ordered {
		sizes[slice.AddressType] += len(slice.Endpoints)
	}
	families := Families{}
	for _, slice := range ordered {
		family := corev1.IPFamily(slice.AddressType)
		if families[family] == nil {
			families[family] = make([]Endpoint, 0, sizes[slice.AddressType])
		}
		families[family] = appendReady(families[family], slice, cluster)
	}
	families.tidy()
	return families
}

func appendReady(endpoints []Endpoint, slice *discoveryv1.EndpointSlice, cluster *Cluster) []Endpoint {
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		if len(e.Addresses) == 0 || e.Conditions.Ready != nil && !*e.Conditions.Ready {
			continue
		}
		endpoint := Endpoint{Address: e.Addresses[0], Zone: cluster.ZoneOf(e)}
		if e.NodeName != nil {
			endpoint.Node = *e.NodeName
		}
		if e.TargetRef != nil && e.TargetRef.Kind == "Pod" {
			endpoint.Pod = e.TargetRef.Name
		}
		endpoints = append(endpoints, endpoint)
	}
	return endpoints
}

// PodEndpoints finds the ready endpoints of a Service among pods, as Kubernetes does when it
// writes slices. Without families in the Service those of the endpoints are in the result.
func PodEndpoints(service *corev1.Service, pods []*corev1.Pod, cluster *Cluster) Families {
	families := Families{}
	for _, family := range service.Spec.IPFamilies {
		families[family] = nil
	}
	if len(service.Spec.Selector) == 0 {
		return families
	}
	selector := labels.SelectorFromSet(service.Spec.Selector)
	for _, pod := range pods {
		if pod.Namespace != service.Namespace || !selector.Matches(labels.Set(pod.Labels)) || !serves(service, pod) {
			continue
		}
		zone := cluster.nodes[pod.Spec.NodeName].zone
		if zone == "" {
			zone = pod.Labels[corev1.LabelTopologyZone]
		}
		for _, address := range addresses(pod) {
			family := familyOf(address)
			if _, wanted := families[family]; family == "" || !wanted && len(service.Spec.IPFamilies) > 0 {
				continue
			}
			families[family] = append(families[family], Endpoint{Address: address, Zone: zone, Node: pod.Spec.NodeName, Pod: pod.Name})
		}
	}
	families.tidy()
	return families
}

// serves reports whether new connections may go to the pod.
func serves(service *corev1.Service, pod *corev1.Pod) bool {
	switch {
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		return false
	case service.Spec.PublishNotReadyAddresses:
		return true // even while it is being deleted
	case pod.DeletionTimestamp != nil:
		return false
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func addresses(pod *corev1.Pod) []string {
	if len(pod.Status.PodIPs) == 0 {
		return []string{pod.Status.PodIP}
	}
	var list []string
	for _, ip := range pod.Status.PodIPs {
		list = append(list, ip.IP)
	}
	return list
}

// familyOf is the family of an address, "" if it cannot be read.
func familyOf(address string) corev1.IPFamily {
	ip, err := netip.ParseAddr(address)
	switch {
	case err != nil:
		return ""
	case ip.Is4():
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

// tidy orders the endpoints and drops all but the first with the same address.
func (f Families) tidy() {
	for family, endpoints := range f {
		f[family] = inOrder(endpoints)
	}
}

// inOrder are the endpoints in the order of addresses, the first of each. It sorts indexes,
// because there may be thousands of endpoints.
func inOrder(endpoints []Endpoint) []Endpoint {
	type key struct {
		address string
		at      int
	}
	keys := make([]key, len(endpoints))
	for i := range endpoints {
		keys[i] = key{endpoints[i].Address, i}
	}
	slices.SortFunc(keys, func(a, b key) int {
		if order := strings.Compare(a.address, b.address); order != 0 {
			return order
		}
		return cmp.Compare(a.at, b.at)
	})
	keys = slices.CompactFunc(keys, func(a, b key) bool { return a.address == b.address })
	list := slices.Grow([]Endpoint(nil), len(keys))
	for _, k := range keys {
		list = append(list, endpoints[k.at])
	}
	return list
}
