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
	// Zone is "" if it is not known.
	Zone string
	Node string
	// Pod is the name of the pod, "" if the endpoint is not a pod.
	Pod string
}

// Families are the ready endpoints of a Service by address family, each in the order
// of addresses.
type Families map[corev1.IPFamily][]Endpoint

// SliceEndpoints reads the ready endpoints from the slices of one Service, of each address the
// endpoint that counts. As in the proxies, an endpoint is its first address, and is the same in
// several slices, which have different ports. Every family that has a slice is in the result.
// Endpoints that are names are not: nobody balances load over them.
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
	var all []found
	for _, slice := range list {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if len(e.Addresses) == 0 {
				continue
			}
			read := found{Endpoint: Endpoint{Address: e.Addresses[0], Zone: cluster.ZoneOf(e)}, state: endpoint.StateOf(e), at: len(all)}
			if e.NodeName != nil {
				read.Node = *e.NodeName
			}
			if e.TargetRef != nil && e.TargetRef.Kind == "Pod" {
				read.Pod = e.TargetRef.Name
			}
			all = append(all, read)
		}
	}
	return inOrder(all)
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
	ready := map[corev1.IPFamily][]found{}
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
			ready[family] = append(ready[family], found{
				Endpoint: Endpoint{Address: address, Zone: zone, Node: pod.Spec.NodeName, Pod: pod.Name}, at: len(ready[family]),
			})
		}
	}
	for family, list := range ready {
		families[family] = inOrder(list)
	}
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

// found is an endpoint with what decides whether it counts among those with its address.
type found struct {
	Endpoint
	state endpoint.State
	at    int
}

// inOrder are the ready endpoints in the order of addresses, of each address the one that counts.
func inOrder(list []found) []Endpoint {
	slices.SortFunc(list, func(a, b found) int {
		if order := strings.Compare(a.Address, b.Address); order != 0 {
			return order
		}
		return cmp.Or(cmp.Compare(a.state, b.state), cmp.Compare(a.at, b.at))
	})
	list = slices.CompactFunc(list, func(a, b found) bool { return a.Address == b.Address })
	var ready []Endpoint
	for i := range list {
		if list[i].state.IsReady() {
			ready = append(ready, list[i].Endpoint)
		}
	}
	return ready
}
