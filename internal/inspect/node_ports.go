package inspect

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/proxy/compile"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/routing/stock"
)

func (e *nodeView) port(f *compile.Family, port *ruleset.ServicePort) NodePort {
	_, name, _ := strings.Cut(port.Name, ":")
	p := NodePort{
		Name: name, Rule: e.rule(f.Family, port), Unreachable: slices.Contains(f.Unreachable, port.Name),
		Fronts: []Front{}, Endpoints: e.endpoints(f, port.Cluster, port.Shares()),
	}
	for i := range port.Fronts {
		front := &port.Fronts[i]
		p.Protocol = strings.ToUpper(front.Protocol.String())
		p.HasLocal = p.HasLocal || front.Pool != ruleset.PoolCluster
		p.Fronts = append(p.Fronts, e.front(f.Family, port, front))
	}
	if p.HasLocal {
		p.Local = e.endpoints(f, port.Local, (&ruleset.ServicePort{Cluster: port.Local}).Shares())
	}
	return p
}

// endpoints returns the endpoints of a pool with their shares, in the order of addresses.
func (e *nodeView) endpoints(f *compile.Family, pool []netip.AddrPort, shares []float64) []NodeEndpoint {
	share := map[netip.AddrPort]float64{}
	for i, target := range pool {
		share[target] += shares[i]
	}
	list := make([]NodeEndpoint, 0, len(share))
	for _, target := range slices.SortedFunc(maps.Keys(share), netip.AddrPort.Compare) {
		known, _ := f.Endpoints.Find(target.Addr())
		list = append(list, NodeEndpoint{
			Address: target.String(), Zone: known.Zone, Node: e.nodes[target.Addr()], Share: percent(share[target]),
		})
	}
	return list
}

func (e *nodeView) front(family ruleset.Family, port *ruleset.ServicePort, front *ruleset.FrontEnd) Front {
	n := Front{
		Address: netip.AddrPortFrom(front.Address, front.Port).String(), Kind: e.kind(front),
		Empty: map[ruleset.Refusal]string{
			ruleset.Reject: "rejected", ruleset.Drop: "dropped",
			ruleset.DropOutside: "dropped if from outside, else rejected", ruleset.Ignore: "left to kube-proxy",
		}[front.Empty],
	}
	config := e.Settings.Config(family, e.Node)
	switch {
	case front.ClusterIP && config.MasqueradeAll, front.Masquerade:
		n.Source = "the node's"
	case front.ClusterIP && config.TellsPods():
		n.Source = "kept for pods, else the node's"
	case front.Pool == ruleset.PoolSplit:
		n.Source = "kept, but not for the node's own"
	default:
		n.Source = "kept"
	}
	n.To = map[ruleset.Pool]string{
		ruleset.PoolCluster: "endpoints", ruleset.PoolLocal: "those on the node",
		ruleset.PoolSplit: "endpoints for pods and the node, else those on the node",
	}[front.Pool]
	for _, prefix := range front.Sources {
		n.Sources = append(n.Sources, prefix.String())
	}
	for _, dispute := range e.tables[family].Disputed() {
		if dispute.Front == front.Front && dispute.Loser == port.Name {
			n.Lost = dispute.Winner
		}
	}
	return n
}

func (e *nodeView) kind(front *ruleset.FrontEnd) string {
	is := func(texts []string) bool {
		return slices.ContainsFunc(texts, func(text string) bool {
			address, err := netip.ParseAddr(text)
			return err == nil && address.Unmap() == front.Address
		})
	}
	var balancers []string
	for _, ingress := range e.Service.Status.LoadBalancer.Ingress {
		balancers = append(balancers, ingress.IP)
	}
	switch {
	case front.ClusterIP:
		return "cluster IP"
	case is(balancers):
		return "load balancer"
	case is(e.Service.Spec.ExternalIPs):
		return "external IP"
	}
	return "node port"
}

// kubeProxy returns the endpoints that the node's kube-proxy uses, for ports that vicinity-proxy's rules leave to it.
func (e *nodeView) kubeProxy() []NodeStockPort {
	if _, named := e.Service.Labels[v1alpha1.LabelServiceProxyName]; named || e.Service.Spec.ClusterIP == corev1.ClusterIPNone {
		return nil
	}
	var ports []NodeStockPort
	for _, port := range stock.Ports(e.Slices) {
		if e.serves(&port) {
			continue
		}
		choice := port.Index().Choose(e.Node.Name, e.Zone)
		p := NodeStockPort{
			Family: port.Family, Name: port.Name, Protocol: string(port.Protocol), Mode: choice.Mode,
			Rule: stockRule(choice, e.Node.Name, e.Zone), Why: choice.Why, Endpoints: []NodeEndpoint{},
		}
		for _, endpoint := range choice.Endpoints {
			target, err := netip.ParseAddr(endpoint.Address)
			if err != nil {
				continue
			}
			at := netip.AddrPortFrom(target, uint16(endpoint.Port))
			p.Endpoints = append(p.Endpoints, NodeEndpoint{
				Address: at.String(), Zone: endpoint.Zone, Node: e.nodes[target.Unmap()],
				Share: plaintext.Rounded(100 / float64(len(choice.Endpoints))),
			})
		}
		slices.SortFunc(p.Endpoints, func(a, b NodeEndpoint) int { return cmp.Compare(a.Zone, b.Zone) })
		ports = append(ports, p)
	}
	return ports
}

// serves reports whether the rules of vicinity-proxy serve a port on the node.
func (e *nodeView) serves(port *stock.Port) bool {
	if !e.served() || !e.Settings.AllServices && e.proxyFault() != "" {
		return false
	}
	full := e.Service.Namespace + "/" + e.Service.Name
	if port.Name != "" {
		full += ":" + port.Name
	}
	for i := range e.result.Families {
		f := &e.result.Families[i]
		if FamilyName(f.Family) == port.Family && slices.ContainsFunc(f.Ports, func(p ruleset.ServicePort) bool { return p.Name == full }) {
			return true
		}
	}
	return false
}
