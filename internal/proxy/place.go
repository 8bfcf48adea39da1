package proxy

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/internal/proxy/cluster"
	"vicinity.dev/vicinity/internal/proxy/compile"
	"vicinity.dev/vicinity/internal/proxy/nodenet"
	"vicinity.dev/vicinity/internal/proxy/view"
)

// perFamily has a value for each of ruleset.Families, in the same order.
type perFamily[T any] [2]T

func addressBook(known *cluster.Catalogue, settings view.Settings) *compile.AddressBook {
	book := compile.NewAddressBook()
	book.SetReserved(known.Reserved(settings))
	for name := range known.Names() {
		book.SetService(name, known.Service(name))
	}
	return book
}

// compilesAlike reports whether all Services compile to the same on both nodes.
func compilesAlike(a, b *compile.Node) bool {
	return a.Name == b.Name && a.Zone == b.Zone && maps.Equal(a.Labels, b.Labels) &&
		slices.Equal(a.Addresses, b.Addresses) && slices.Equal(a.NodePortAddresses, b.NodePortAddresses)
}

// updateNode reads the own node, and reports whether all Services have to be compiled again.
func (p *programmer) updateNode() (recompile bool) {
	node, zone := p.catalogue.Position()
	if node == nil {
		return false
	}
	p.mu.Lock()
	local := p.local
	p.mu.Unlock()
	if p.node == nil || !slices.Equal(nodenet.PodPrefixes(node), nodenet.PodPrefixes(p.node)) {
		p.configureTables(node)
	}
	options := p.settings.Options(node, zone, local)
	options.Addresses = p.book
	recompile = p.node == nil || !compilesAlike(&options.Node, &p.options.Node)
	p.node, p.options = node, options
	return recompile
}

// updateReserved reads the addresses of the cluster, and returns the Services to compile again.
func (p *programmer) updateReserved() []types.NamespacedName {
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

// configureTables configures the tables for a node. It logs if they cannot tell traffic of pods.
func (p *programmer) configureTables(node *corev1.Node) {
	tellsPods := p.settings.MasqueradeAll
	for _, f := range p.families {
		c := p.settings.Config(f.number, node)
		f.table.Configure(c)
		tellsPods = tellsPods || c.TellsPods()
	}
	if !tellsPods {
		p.log.Info("Cannot tell traffic of pods from other traffic: the node has no spec.podCIDRs, and no flag says how; endpoints may get packets from addresses that they cannot answer", "node", node.Name)
	}
}
