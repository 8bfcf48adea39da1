package cli

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/compile"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/routing"
)

// nodeDocument is what the rules of a node do for a Service. Shares are percentages from
// 0 to 100.
type nodeDocument struct {
	Namespace string          `json:"namespace"`
	Service   string          `json:"service"`
	Node      string          `json:"node"`
	Zone      string          `json:"zone,omitempty"`
	ServedBy  string          `json:"servedBy"`
	Why       string          `json:"why"`
	HandOver  string          `json:"handOver,omitempty"`
	Proxy     *nodeProxyLease `json:"proxy,omitempty"`
	// From is what vicinity-proxy knows the endpoints from.
	From            string          `json:"from,omitempty"`
	Groups          int             `json:"groups"`
	GroupsSeen      int             `json:"groupsSeen"`
	AffinitySeconds int             `json:"affinitySeconds,omitempty"`
	Families        []nodeFamily    `json:"families"`
	KubeProxy       []nodeStockPort `json:"kubeProxy,omitempty"`
	Warnings        []string        `json:"warnings,omitempty"`
	Kernel          nodeKernel      `json:"kernel"`
	NotKnown        []string        `json:"notKnown,omitempty"`
}

// nodeProxyLease is what the Lease of the node's proxy says.
type nodeProxyLease struct {
	Renewed    time.Time `json:"renewed"`
	Fresh      bool      `json:"fresh"`
	Programmed string    `json:"programmed,omitempty"`
	ago        time.Duration
}

// nodeFamily is the part about an address family.
type nodeFamily struct {
	Family string          `json:"family"`
	Ports  []nodePort      `json:"ports"`
	Health *nodeHealthPort `json:"health,omitempty"`
}

type nodeHealthPort struct {
	Port           uint16 `json:"port"`
	LocalEndpoints int    `json:"localEndpoints"`
}

// nodePort is what rules do for a port.
type nodePort struct {
	Name     string   `json:"name"`
	Protocol string   `json:"protocol"`
	Rule     nodeRule `json:"rule"`
	// Unreachable says that there are endpoints, of which the Service allows the node
	// none.
	Unreachable bool           `json:"unreachable,omitempty"`
	Fronts      []nodeFront    `json:"fronts"`
	Endpoints   []nodeEndpoint `json:"endpoints"`
	// Local are those for traffic that must stay on the node, nil if none must.
	Local []nodeEndpoint `json:"local,omitempty"`
	local bool
}

// nodeRule is how endpoints are chosen.
type nodeRule struct {
	Text  string   `json:"text"`
	Why   string   `json:"why,omitempty"`
	Tiers []string `json:"tiers,omitempty"`
	Tier  string   `json:"tier,omitempty"`
}

// nodeFront is an address that clients connect to.
type nodeFront struct {
	Address string `json:"address"`
	Kind    string `json:"kind"`
	To      string `json:"to"`
	Source  string `json:"source"`
	Empty   string `json:"otherwise"`
	// Sources are the ranges that may connect, nil if all may.
	Sources []string `json:"sources,omitempty"`
	// Lost is the Service that has the address instead.
	Lost string `json:"lost,omitempty"`
}

type nodeEndpoint struct {
	Address string  `json:"address"`
	Zone    string  `json:"zone"`
	Node    string  `json:"node,omitempty"`
	Share   float64 `json:"share"`
}

// nodeStockPort is what the kube-proxy of the node does for a port.
type nodeStockPort struct {
	Family    corev1.IPFamily   `json:"family"`
	Name      string            `json:"name"`
	Protocol  string            `json:"protocol"`
	Mode      routing.StockMode `json:"mode"`
	Rule      string            `json:"rule"`
	Why       string            `json:"why,omitempty"`
	Endpoints []nodeEndpoint    `json:"endpoints"`
}

// nodeKernel is how what the kernel holds compares.
type nodeKernel struct {
	Compared    bool     `json:"compared"`
	Why         string   `json:"why,omitempty"`
	Differences []string `json:"differences,omitempty"`
}

func (e *nodeExplanation) document() *nodeDocument {
	d := &nodeDocument{
		Namespace: e.service.Namespace, Service: e.service.Name, Node: e.node.Name, Zone: e.zone,
		HandOver: e.handOver(), Groups: len(e.groups), GroupsSeen: len(e.seen), Families: []nodeFamily{},
		Warnings: slices.Concat(e.result.Notes, e.refused(), e.odd),
	}
	d.ServedBy, d.Why = e.who()
	if e.lease != nil && e.lease.Spec.RenewTime != nil {
		renewed := e.lease.Spec.RenewTime.Time
		ago := e.r.now.Sub(renewed)
		d.Proxy = &nodeProxyLease{renewed.UTC(), ago < v1alpha1.LeaseFresh, e.lease.Annotations[v1alpha1.AnnotationProgrammed], ago}
	}
	if e.served() {
		d.From = "EndpointSlices"
		if e.fromGroups() {
			d.From = "EndpointGroups"
		}
	}
	for i := range e.result.Families {
		f := &e.result.Families[i]
		family := nodeFamily{Family: string(familyName(f.Family)), Ports: []nodePort{}}
		for j := range f.Ports {
			family.Ports = append(family.Ports, e.port(f, &f.Ports[j]))
			d.AffinitySeconds = int(f.Ports[j].Affinity / time.Second)
		}
		if f.Health != nil {
			family.Health = &nodeHealthPort{f.Health.Port, f.Health.LocalEndpoints}
		}
		d.Families = append(d.Families, family)
	}
	d.KubeProxy = e.kubeProxy()
	return d
}

// port says what the rules do for a port.
func (e *nodeExplanation) port(f *compile.Family, port *ruleset.ServicePort) nodePort {
	_, name, _ := strings.Cut(port.Name, ":")
	p := nodePort{
		Name: name, Rule: e.rule(f.Family, port), Unreachable: slices.Contains(f.Unreachable, port.Name),
		Fronts: []nodeFront{}, Endpoints: e.endpoints(f, port.Cluster, port.Shares()),
	}
	for i := range port.Fronts {
		front := &port.Fronts[i]
		p.Protocol = strings.ToUpper(front.Protocol.String())
		p.local = p.local || front.Pool != ruleset.PoolCluster
		p.Fronts = append(p.Fronts, e.front(f.Family, port, front))
	}
	if p.local {
		p.Local = e.endpoints(f, port.Local, (&ruleset.ServicePort{Cluster: port.Local}).Shares())
	}
	return p
}

// endpoints are those of a pool in the order of addresses, each with its share.
func (e *nodeExplanation) endpoints(f *compile.Family, pool []netip.AddrPort, shares []float64) []nodeEndpoint {
	share := map[netip.AddrPort]float64{}
	for i, target := range pool {
		share[target] += shares[i]
	}
	list := make([]nodeEndpoint, 0, len(share))
	for _, target := range slices.SortedFunc(maps.Keys(share), netip.AddrPort.Compare) {
		known, _ := f.Endpoints.Find(target.Addr())
		list = append(list, nodeEndpoint{
			Address: target.String(), Zone: known.Zone, Node: e.nodes[target.Addr()], Share: rounded(100 * share[target]),
		})
	}
	return list
}

// front says what becomes of connections to an address.
func (e *nodeExplanation) front(family ruleset.Family, port *ruleset.ServicePort, front *ruleset.FrontEnd) nodeFront {
	n := nodeFront{
		Address: netip.AddrPortFrom(front.Address, front.Port).String(), Kind: e.kind(front),
		Empty: map[ruleset.Refusal]string{
			ruleset.Reject: "rejected", ruleset.Drop: "dropped",
			ruleset.DropOutside: "dropped if from outside, else rejected", ruleset.Ignore: "left to kube-proxy",
		}[front.Empty],
	}
	config := e.settings.Config(family, e.node)
	switch {
	case front.ClusterIP && config.MasqueradeAll, front.Masquerade:
		n.Source = "the node's"
	case front.ClusterIP && config.TellsPods():
		n.Source = "kept for pods, else the node's"
	case front.Pool == ruleset.PoolSplit:
		n.Source = "kept, but of what the node sends"
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

// kind is what an address is to the Service.
func (e *nodeExplanation) kind(front *ruleset.FrontEnd) string {
	is := func(texts []string) bool {
		return slices.ContainsFunc(texts, func(text string) bool {
			address, err := netip.ParseAddr(text)
			return err == nil && address.Unmap() == front.Address
		})
	}
	var balancers []string
	for _, ingress := range e.service.Status.LoadBalancer.Ingress {
		balancers = append(balancers, ingress.IP)
	}
	switch {
	case front.ClusterIP:
		return "cluster IP"
	case is(balancers):
		return "load balancer"
	case is(e.service.Spec.ExternalIPs):
		return "external IP"
	}
	return "node port"
}

// kubeProxy is what the kube-proxy of the node uses for the ports that vicinity-proxy's
// rules leave to it.
func (e *nodeExplanation) kubeProxy() []nodeStockPort {
	if _, named := e.service.Labels[v1alpha1.LabelServiceProxyName]; named || e.service.Spec.ClusterIP == corev1.ClusterIPNone {
		return nil
	}
	var ports []nodeStockPort
	for _, port := range routing.StockPorts(e.slices) {
		if e.taken(&port) {
			continue
		}
		choice := port.Index().Choose(e.node.Name, e.zone)
		p := nodeStockPort{
			Family: port.Family, Name: port.Name, Protocol: string(port.Protocol), Mode: choice.Mode,
			Rule: stockRule(choice, e.node.Name, e.zone), Why: choice.Why, Endpoints: []nodeEndpoint{},
		}
		for _, endpoint := range choice.Endpoints {
			target, err := netip.ParseAddr(endpoint.Address)
			if err != nil {
				continue
			}
			at := netip.AddrPortFrom(target, uint16(endpoint.Port))
			p.Endpoints = append(p.Endpoints, nodeEndpoint{
				Address: at.String(), Zone: endpoint.Zone, Node: e.nodes[target.Unmap()],
				Share: rounded(100 / float64(len(choice.Endpoints))),
			})
		}
		slices.SortFunc(p.Endpoints, func(a, b nodeEndpoint) int { return cmp.Compare(a.Zone, b.Zone) })
		ports = append(ports, p)
	}
	return ports
}

// taken reports whether the rules of vicinity-proxy serve a port on the node.
func (e *nodeExplanation) taken(port *routing.StockPort) bool {
	if !e.served() || !e.settings.AllServices && e.dead() != "" {
		return false
	}
	full := e.service.Namespace + "/" + e.service.Name
	if port.Name != "" {
		full += ":" + port.Name
	}
	for i := range e.result.Families {
		f := &e.result.Families[i]
		if familyName(f.Family) == port.Family && slices.ContainsFunc(f.Ports, func(p ruleset.ServicePort) bool { return p.Name == full }) {
			return true
		}
	}
	return false
}
