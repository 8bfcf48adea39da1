package intent

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"

	"vicinity.dev/vicinity/internal/endpoint"
)

// Endpoint is a ready endpoint of a Service.
type Endpoint struct {
	Address string
	// Zone is empty if it is unknown.
	Zone string
	Node string
	// Pod is the name of the pod, empty if the endpoint is none.
	Pod string
}

// Families are the ready endpoints of a Service by address family, sorted by address.
type Families map[corev1.IPFamily][]Endpoint

// SliceEndpoints reads the ready endpoints from the slices of one Service, one for each address. As in proxies, an
// endpoint is its first address, and several slices with different ports can have the same one. The result has every
// family with a slice. Host names are left out, since no proxy uses them.
func SliceEndpoints(eps []*discoveryv1.EndpointSlice, cluster *Cluster) Families {
	families := Families{}
	for _, family := range [...]corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		if list := endpoint.Slices(eps, family); len(list) > 0 {
			families[family] = readyIn(list, cluster)
		}
	}
	return families
}

// readyIn reads the ready endpoints from slices in the order of names.
func readyIn(list []*discoveryv1.EndpointSlice, cluster *Cluster) []Endpoint {
	var all []candidate
	for _, slice := range list {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if len(e.Addresses) == 0 {
				continue
			}
			read := candidate{Endpoint: Endpoint{Address: e.Addresses[0], Zone: cluster.ZoneOf(e)}, state: endpoint.StateOf(e), at: len(all)}
			if e.NodeName != nil {
				read.Node = *e.NodeName
			}
			if e.TargetRef != nil && e.TargetRef.Kind == "Pod" {
				read.Pod = e.TargetRef.Name
			}
			all = append(all, read)
		}
	}
	return bestOfEach(all)
}

// PodEndpoints finds the ready endpoints of a Service among pods, as Kubernetes does to write slices. If the Service
// has no families, the result has those of the pods.
func PodEndpoints(service *corev1.Service, pods []*corev1.Pod, cluster *Cluster) Families {
	families := Families{}
	for _, family := range service.Spec.IPFamilies {
		families[family] = nil
	}
	if len(service.Spec.Selector) == 0 {
		return families
	}
	selector := labels.SelectorFromSet(service.Spec.Selector)
	ready := map[corev1.IPFamily][]candidate{}
	for _, pod := range pods {
		if pod.Namespace != service.Namespace || !selector.Matches(labels.Set(pod.Labels)) || !isServing(service, pod) {
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
			ready[family] = append(ready[family], candidate{
				Endpoint: Endpoint{Address: address, Zone: zone, Node: pod.Spec.NodeName, Pod: pod.Name}, at: len(ready[family]),
			})
		}
	}
	for family, list := range ready {
		families[family] = bestOfEach(list)
	}
	return families
}

// isServing reports whether the pod gets new connections.
func isServing(service *corev1.Service, pod *corev1.Pod) bool {
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

// candidate is an endpoint that may share its address with others. Its state and then its place in the slices rank it.
type candidate struct {
	Endpoint
	state endpoint.State
	at    int
}

// bestOfEach returns the ready endpoints, sorted by address. Each address has its first candidate by rank.
func bestOfEach(list []candidate) []Endpoint {
	slices.SortFunc(list, func(a, b candidate) int {
		if order := strings.Compare(a.Address, b.Address); order != 0 {
			return order
		}
		return cmp.Or(cmp.Compare(a.state, b.state), cmp.Compare(a.at, b.at))
	})
	list = slices.CompactFunc(list, func(a, b candidate) bool { return a.Address == b.Address })
	var ready []Endpoint
	for i := range list {
		if list[i].state.IsReady() {
			ready = append(ready, list[i].Endpoint)
		}
	}
	return ready
}
