package compile

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// Restrict returns a function that removes, from an earlier port of the Service, the addresses and ports that another Service
// may have now. The function returns the same port if there are none, and nil if nothing is left.
func Restrict(service *corev1.Service, o Options) func(*ruleset.ServicePort) *ruleset.ServicePort {
	c := newCompiler(Input{Service: service}, &o)
	c.readPorts()
	h := &holdings{compiler: c, ports: make(map[string]*servicePort, len(c.ports)), claims: make(map[netip.Addr]holding)}
	for i := range c.ports {
		h.ports[c.ports[i].fullName] = &c.ports[i]
	}
	for _, family := range ruleset.Families {
		a := c.addressesOf(family)
		if !a.cluster.IsValid() {
			continue
		}
		h.clusterIPs, h.nodes = append(h.clusterIPs, a.cluster), append(h.nodes, a.nodes...)
		h.claim(a.external, fieldExternalIPs)
		h.claim(a.balancer, fieldLoadBalancer)
	}
	return h.restrict
}

// holdings has the addresses and ports that a Service may have, of both families.
type holdings struct {
	*compiler
	ports             map[string]*servicePort // by their full names
	clusterIPs, nodes []netip.Addr
	claims            map[netip.Addr]holding
}

// holding is an address that a Service claims.
type holding struct {
	// fields names the fields that claim it. shared means that other Services may have it at some ports.
	fields []string
	shared bool
}

func (h *holdings) claim(all []netip.Addr, field string) {
	for _, address := range all {
		h.claims[address] = holding{append(h.claims[address].fields, field), h.options.Addresses.shares(address)}
	}
}

func (h *holdings) restrict(before *ruleset.ServicePort) *ruleset.ServicePort {
	port := h.ports[before.Name]
	if port == nil {
		return nil
	}
	lost := func(f ruleset.FrontEnd) bool { return !h.has(port, &f) }
	if before.Rank == h.rank && !slices.ContainsFunc(before.Fronts, lost) {
		return before
	}
	after := *before
	// A Service of the same name may have been created again, with another rank.
	after.Rank, after.Fronts = h.rank, slices.DeleteFunc(slices.Clone(before.Fronts), lost)
	if len(after.Fronts) == 0 {
		return nil
	}
	return &after
}

// has reports whether a port of the Service may still have a front.
func (h *holdings) has(port *servicePort, f *ruleset.FrontEnd) bool {
	switch {
	case f.Protocol != port.protocol:
		return false
	case f.ClusterIP:
		return f.Port == port.number && slices.Contains(h.clusterIPs, f.Address)
	case f.NodePort:
		return f.Port == port.nodePort && slices.Contains(h.nodes, f.Address)
	}
	claimed, has := h.claims[f.Address]
	if f.Port != port.number || !has {
		return false
	}
	return !claimed.shared || slices.ContainsFunc(claimed.fields, func(field string) bool {
		reason, _ := h.options.Addresses.holder(h.key(), field, f.Front)
		return reason == ""
	})
}
