package proxy

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/internal/proxy/cluster"
	"vicinity.dev/vicinity/internal/proxy/compile"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/proxy/view"
)

// families are in the order of perFamily.
var families = []ruleset.Family{ruleset.IPv4, ruleset.IPv6}

// perFamily has a value for each of families.
type perFamily[T any] [2]T

func addressBook(known *cluster.Catalogue, settings view.Settings) *compile.AddressBook {
	book := compile.NewAddressBook()
	book.SetReserved(known.Reserved(settings))
	for name := range known.Names() {
		book.SetService(name, known.Service(name))
	}
	return book
}

// samePlace reports whether Services are compiled alike on both nodes.
func samePlace(a, b *compile.Node) bool {
	return a.Name == b.Name && a.Zone == b.Zone && maps.Equal(a.Labels, b.Labels) &&
		slices.Equal(a.Addresses, b.Addresses) && slices.Equal(a.NodePortAddresses, b.NodePortAddresses)
}

// locate reads the own node, and reports whether all Services have to be compiled again.
func (p *programmer) locate() bool {
	node, zone := p.catalogue.Position()
	if node == nil {
		return false
	}
	p.mu.Lock()
	local := p.local
	p.mu.Unlock()
	if p.node == nil || !slices.Equal(view.PodPrefixes(node), view.PodPrefixes(p.node)) {
		p.tellPods(node)
	}
	options := p.settings.Options(node, zone, local)
	options.Addresses = p.book
	same := p.node != nil && samePlace(&options.Node, &p.options.Node)
	p.node, p.options = node, options
	return !same
}

// reserve reads which addresses belong to the cluster, and returns the Services to compile again.
func (p *programmer) reserve() []types.NamespacedName {
	reserved := p.catalogue.Reserved(p.settings)
	if !reserved.ServiceRanges.Equal(p.settings.ServiceRanges) {
		p.settings.ServiceRanges = reserved.ServiceRanges
		node, _ := p.catalogue.Position()
		for _, f := range p.families {
			f.table.Configure(p.settings.Config(f.number, node))
		}
	}
	return p.book.SetReserved(reserved)
}

// tellPods configures how tables tell traffic of pods, and logs if they cannot.
func (p *programmer) tellPods(node *corev1.Node) {
	told := p.settings.MasqueradeAll
	for _, f := range p.families {
		c := p.settings.Config(f.number, node)
		f.table.Configure(c)
		told = told || c.TellsPods()
	}
	if !told {
		p.log.Info("Cannot tell traffic of pods from other traffic: the node has no spec.podCIDRs, and no flag says how; endpoints may get packets from addresses that they cannot answer", "node", node.Name)
	}
}
