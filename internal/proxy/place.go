package proxy

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/internal/proxy/compile"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/proxy/view"
)

// families are those that rules are made for, each in a table of its own.
var families = []ruleset.Family{ruleset.IPv4, ruleset.IPv6}

// perFamily has a value for each of the families, in their order.
type perFamily[T any] [2]T

// rules is what holds for all Services, besides what the own node is.
type rules struct {
	allServices       bool
	masqueradeAll     bool
	masqueradeMark    uint32
	pods              view.Pods
	nodePortAddresses view.NodePorts
	withoutIPv6       bool
}

// families are those that the node has.
func (r *rules) families() []ruleset.Family {
	if r.withoutIPv6 {
		return families[:1]
	}
	return families
}

func (r *rules) config(number ruleset.Family, node *corev1.Node) ruleset.Config {
	c := ruleset.Config{Family: number, MasqueradeMark: r.masqueradeMark, MasqueradeAll: r.masqueradeAll}
	r.pods.Configure(&c, node)
	return c
}

// place is what Services are compiled for: a node with a zone, which is that of the
// groups that are known, and the addresses of its interfaces.
func (r *rules) place(node *corev1.Node, zone string, local []netip.Addr) compile.Options {
	named := view.Addresses(node)
	return compile.Options{
		AllServices: r.allServices,
		Node: compile.Node{
			Name: node.Name, Zone: zone, Labels: node.Labels, Addresses: named,
			NodePortAddresses: r.nodePortAddresses.Of(local, named),
		},
	}
}

// samePlace reports whether Services are compiled alike for both.
func samePlace(a, b *compile.Node) bool {
	return a.Name == b.Name && a.Zone == b.Zone && maps.Equal(a.Labels, b.Labels) &&
		slices.Equal(a.Addresses, b.Addresses) && slices.Equal(a.NodePortAddresses, b.NodePortAddresses)
}

// locate looks at what the own node is, and reports whether all Services have to be
// compiled for that again.
func (p *programmer) locate() bool {
	node, zone := p.catalogue.position()
	if node == nil {
		return false
	}
	p.mu.Lock()
	local := p.local
	p.mu.Unlock()
	if p.node == nil || !slices.Equal(view.PodPrefixes(node), view.PodPrefixes(p.node)) {
		p.tellPods(node)
	}
	options := p.rules.place(node, zone, local)
	same := p.node != nil && samePlace(&options.Node, &p.options.Node)
	p.node, p.options = node, options
	return !same
}

// tellPods has the tables tell traffic of pods on the node. Somebody should know if none
// can.
func (p *programmer) tellPods(node *corev1.Node) {
	told := p.rules.masqueradeAll
	for _, f := range p.families {
		c := p.rules.config(f.number, node)
		f.table.Configure(c)
		told = told || c.TellsPods()
	}
	if !told {
		p.log.Info("Traffic of pods is not told from other traffic, which may reach endpoints with addresses that they cannot answer to: the node has no spec.podCIDRs, and no flag says how", "node", node.Name)
	}
}
