package ruleset

import (
	"net/netip"
	"slices"
	"time"
)

// port is a ServicePort in a table. It does not change there.
type port struct {
	name, rank string
	fronts     []FrontEnd
	// pools has the targets by pool, class by class. They are sorted until the port is in the table, and then in the order
	// of slots.
	pools    [slotMaps][]netip.AddrPort
	shapes   [slotMaps]shape
	affinity time.Duration
	// clients is the size of its maps of clients.
	clients int
	known   Known // each list sorted
	// late are endpoints that ended while no other endpoint served.
	late []netip.AddrPort
	// keeps means that its fronts keep their kernel rules. kept has these, nil if the fronts are made as usual.
	keeps bool
	kept  map[Front]*entry
}

// newPort makes a port, which may share the lists of the ServicePort.
func newPort(config Config, sp ServicePort) *port {
	p := &port{name: sp.Name, rank: sp.Rank, affinity: sp.Affinity, clients: config.MaxAffinityClients, fronts: slices.Clone(sp.Fronts)}
	for i := range p.fronts {
		p.fronts[i].Sources = withoutOverlaps(p.fronts[i].Sources)
	}
	p.pools[0], p.shapes[0] = arrangedTargets(sp.Cluster, sp.Weights)
	p.pools[1], p.shapes[1] = arrangedTargets(sp.Local, nil)
	p.known = Known{
		Serving: distinct(sp.Known.Serving), Silent: distinct(sp.Known.Silent),
		View: sp.Known.View, Fleeting: distinct(sp.Known.Fleeting),
	}
	if used := distinct(p.pools[0], p.pools[1]); len(sp.Known.Drained) > 0 && len(used) > 0 {
		p.known.Drained = subtract(distinct(sp.Known.Drained), used)
		p.known.Serving = subtract(p.known.Serving, p.known.Drained)
	}
	return p
}

// withoutOverlaps returns the sorted prefixes that no other contains, nil for nil: without any prefix, no client may connect.
func withoutOverlaps(all []netip.Prefix) []netip.Prefix {
	if all == nil {
		return nil
	}
	apart := []netip.Prefix{}
	for _, p := range slices.SortedFunc(slices.Values(all), netip.Prefix.Compare) {
		if last := len(apart) - 1; last < 0 || !apart[last].Contains(p.Addr()) {
			apart = append(apart, p)
		}
	}
	return apart
}

func arrangedTargets(all []netip.AddrPort, weights []uint32) ([]netip.AddrPort, shape) {
	if weights == nil && slices.IsSortedFunc(all, netip.AddrPort.Compare) {
		// Usually the targets come in order, and most stay in order: sharing the list saves memory.
		return all, evenShape(uint32(len(all)))
	}
	return arrangeByWeight(weigh(all, weights))
}
