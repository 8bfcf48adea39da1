package inspect

import (
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/routing/handover"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// HandOverState is the state of a Service between kube-proxy and vicinity-proxy.
type HandOverState string

// The states.
const (
	HandOverNone      HandOverState = "none"      // kube-proxy's, and it stays so
	HandOverWriting   HandOverState = "writing"   // groups are to come
	HandOverWaiting   HandOverState = "waiting"   // for proxies to program the groups
	HandOverDone      HandOverState = "done"      // vicinity-proxy's alone
	HandOverReturning HandOverState = "returning" // to kube-proxy
	HandOverOther     HandOverState = "other"     // another proxy's, or no proxy's
)

// HandOver is the state of a Service's hand-over, with the nodes that it waits for.
type HandOver struct {
	State HandOverState `json:"state"`
	// Zones count ready nodes by zone. It is empty if they do not matter, or if Leases are unknown.
	Zones []HandOverZone `json:"zones,omitempty"`
	// Missing are the nodes that it waits for, or that cannot serve it now, in order.
	Missing []string `json:"missing,omitempty"`
	// Down are nodes that have not been ready for long, in order. No Service waits for them.
	Down []string `json:"down,omitempty"`
	// Failures are why packets of nodes do not come through the rules of vicinity-proxy.
	Failures map[string]string `json:"failures,omitempty"`
}

// HandOverZone counts the nodes of a zone that are ready for the Service.
type HandOverZone struct {
	Zone  string `json:"zone"`
	Nodes int    `json:"nodes"`
	Ready int    `json:"ready"`
}

// HandOverStateOf returns the state of a Service with this delivery and so many groups.
func HandOverStateOf(service *corev1.Service, delivery allocate.Delivery, groups int) HandOverState {
	name, named := service.Labels[v1alpha1.LabelServiceProxyName]
	wanted := delivery == allocate.DeliveryGroups
	switch {
	case intent.IsHeadless(service) || service.Spec.Type == corev1.ServiceTypeExternalName:
		return HandOverOther
	case named && name != v1alpha1.ServiceProxyName:
		return HandOverOther
	case named && wanted:
		return HandOverDone
	case named || !wanted && groups > 0:
		return HandOverReturning
	case !wanted:
		return HandOverNone
	case groups == 0:
		return HandOverWriting
	}
	return HandOverWaiting
}

// DependsOnProxies reports whether the Leases of proxies add anything to the state.
func (h *HandOver) DependsOnProxies() bool {
	return h.State == HandOverWaiting || h.State == HandOverDone
}

// HandOverOf returns the state of a Service with this delivery and of all nodes that run a proxy. Without Leases only the
// former is known.
func HandOverOf(in *Reading, delivery allocate.Delivery, proxies []NodeProxy) HandOver {
	h := HandOver{State: HandOverStateOf(in.Service, delivery, len(in.Groups))}
	if !h.DependsOnProxies() || len(proxies) == 0 || slices.Contains(in.Unread, KindGroups) {
		return h
	}
	waits := make([]handover.NodeProxy, len(proxies))
	for i := range proxies {
		waits[i] = proxies[i].NodeProxy
	}
	state := handover.State{
		Service: in.Service.Namespace + "/" + in.Service.Name, Wanted: true, Groups: in.Groups, Written: true, Proxies: waits,
	}
	if h.State == HandOverDone {
		state.ProxyName = v1alpha1.ServiceProxyName
	}
	step := state.Next(in.Now)
	h.Missing, h.Down = step.Missing, step.Down
	unready := map[string]bool{}
	for _, node := range slices.Concat(h.Missing, h.Down) {
		unready[node] = true
	}
	for _, p := range proxies {
		at := slices.IndexFunc(h.Zones, func(z HandOverZone) bool { return z.Zone == p.Zone })
		if at < 0 {
			at = len(h.Zones)
			h.Zones = append(h.Zones, HandOverZone{Zone: p.Zone})
		}
		h.Zones[at].Nodes++
		if !unready[p.Node] {
			h.Zones[at].Ready++
		} else if p.Failure != "" {
			if h.Failures == nil {
				h.Failures = map[string]string{}
			}
			h.Failures[p.Node] = p.Failure
		}
	}
	return h
}

// NodeProxy is a node with the content of its proxy's Lease.
type NodeProxy struct {
	handover.NodeProxy
	// Failure is why packets of the node do not come through the proxy's rules.
	Failure string
}

// Lives reports whether the proxy renews its Lease.
func (p *NodeProxy) Lives(now time.Time) bool {
	return !p.Seen.IsZero() && now.Sub(p.Seen) < v1alpha1.LeaseFresh
}

// NodeProxies joins nodes with the Leases of their proxies, in the order of the nodes.
func NodeProxies(nodes []*corev1.Node, leases []*coordinationv1.Lease) []NodeProxy {
	byNode := make(map[string]*coordinationv1.Lease, len(leases))
	for _, lease := range leases {
		if node := handover.LeaseNode(lease); node != "" {
			byNode[node] = lease
		}
	}
	proxies := make([]NodeProxy, 0, len(nodes))
	for _, node := range nodes {
		p := NodeProxy{NodeProxy: handover.OfNode(node)}
		if lease := byNode[node.Name]; lease != nil && lease.Spec.RenewTime != nil {
			p.Seen = lease.Spec.RenewTime.Time
			p.Programmed, p.Except = lease.Annotations[v1alpha1.AnnotationProgrammed], lease.Annotations[v1alpha1.AnnotationExcept]
			p.Failure = plaintext.Of(lease.Annotations[v1alpha1.AnnotationProbeFailure])
		}
		proxies = append(proxies, p)
	}
	return proxies
}
