package proxy

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/internal/netset"
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
	externalIPs       compile.ExternalIPs
	// apiServer are the addresses by which the API server is reached.
	apiServer   netset.Set
	withoutIPv6 bool
	// maxAffinityClients is how many clients each map of a port with affinity remembers.
	maxAffinityClients int
}

// families are those that the node has.
func (r *rules) families() []ruleset.Family {
	if r.withoutIPv6 {
		return families[:1]
	}
	return families
}

// config is what a table goes by, with the ranges of cluster IPs. Beside kube-proxy it is
// that which knows what to do with addresses there that no Service has.
func (r *rules) config(number ruleset.Family, node *corev1.Node, ranges netset.Set) ruleset.Config {
	c := ruleset.Config{Family: number, MasqueradeMark: r.masqueradeMark, MasqueradeAll: r.masqueradeAll, MaxAffinityClients: r.maxAffinityClients}
	if r.allServices {
		c.ServiceRanges = ranges.Prefixes()
	}
	r.pods.Configure(&c, node)
	return c
}

// reserved are the addresses of the cluster besides those of Services.
func (r *rules) reserved(known *catalogue) compile.Reserved {
	reserved := known.reserved()
	reserved.APIServer = r.apiServer
	return reserved
}

// addressBook is one of all that is known.
func (r *rules) addressBook(known *catalogue) *compile.AddressBook {
	book := compile.NewAddressBook()
	book.SetReserved(r.reserved(known))
	for name := range known.names() {
		book.SetService(name, known.service(name))
	}
	return book
}

// place is what Services are compiled for: a node with a zone, which is that of the
// groups that are known, and the addresses of its interfaces.
func (r *rules) place(node *corev1.Node, zone string, local []netip.Addr) compile.Options {
	named := view.Addresses(node)
	return compile.Options{
		AllServices: r.allServices, ExternalIPs: r.externalIPs, MaxAffinityClients: r.maxAffinityClients, Families: r.families(),
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
	options.Addresses = p.book
	same := p.node != nil && samePlace(&options.Node, &p.options.Node)
	p.node, p.options = node, options
	return !same
}

// reserve looks at which addresses belong to the cluster, and returns the Services that
// have to be compiled for that again.
func (p *programmer) reserve() []types.NamespacedName {
	reserved := p.rules.reserved(p.catalogue)
	if !reserved.ServiceRanges.Equal(p.ranges) {
		p.ranges = reserved.ServiceRanges
		node, _ := p.catalogue.position()
		for _, f := range p.families {
			f.table.Configure(p.rules.config(f.number, node, p.ranges))
		}
	}
	return p.book.SetReserved(reserved)
}

// tellPods has the tables tell traffic of pods on the node. Somebody should know if none
// can.
func (p *programmer) tellPods(node *corev1.Node) {
	told := p.rules.masqueradeAll
	for _, f := range p.families {
		c := p.rules.config(f.number, node, p.ranges)
		f.table.Configure(c)
		told = told || c.TellsPods()
	}
	if !told {
		p.log.Info("Traffic of pods is not told from other traffic, which may reach endpoints with addresses that they cannot answer to: the node has no spec.podCIDRs, and no flag says how", "node", node.Name)
	}
}
