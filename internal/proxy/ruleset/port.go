package ruleset

import (
	"fmt"
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

// newPort makes a port, which may share the lists of the ServicePort. The error names omitted parts.
func newPort(config Config, sp ServicePort) (*port, error) {
	family := config.Family
	left := &omissions{name: sp.Name}
	p := &port{name: sp.Name, rank: sp.Rank, affinity: sp.Affinity, clients: config.MaxAffinityClients}
	if p.affinity < 0 {
		left.add("affinity %s: allowed is a time from zero", p.affinity)
		p.affinity = 0
	}
	p.fronts = family.fronts(sp.Fronts, left)
	p.pools[0], p.shapes[0] = family.targets("cluster", sp.Cluster, sp.Weights, left)
	p.pools[1], p.shapes[1] = family.targets("local", sp.Local, nil, left)
	p.known = Known{
		Serving: distinct(sp.Known.Serving), Silent: distinct(sp.Known.Silent),
		View: sp.Known.View, Fleeting: distinct(sp.Known.Fleeting),
	}
	if used := distinct(p.pools[0], p.pools[1]); len(sp.Known.Drained) > 0 && len(used) > 0 {
		p.known.Drained = subtract(distinct(sp.Known.Drained), used)
		p.known.Serving = subtract(p.known.Serving, p.known.Drained)
	}
	return p, left.err()
}

func (f Family) fronts(all []FrontEnd, left *omissions) []FrontEnd {
	fronts := make([]FrontEnd, 0, len(all))
	var seen map[Front]bool
	if len(all) > 1 {
		seen = make(map[Front]bool, len(all))
	}
	for _, end := range all {
		switch {
		case !f.holds(end.Address) || end.Port == 0:
			left.add("front %s port %d: allowed is an IPv%d address with a port", end.Address, end.Port, f)
			continue
		case end.Protocol != TCP && end.Protocol != UDP && end.Protocol != SCTP:
			left.add("front %s protocol %s: allowed are TCP, UDP and SCTP", end.Address, end.Protocol)
			continue
		case end.Pool > PoolSplit:
			left.add("front %s pool %d: allowed are those up to %d", end.Address, end.Pool, PoolSplit)
			continue
		case seen[end.Front]:
			left.add("front %s port %d: it is listed twice", end.Address, end.Port)
			continue
		case seen != nil:
			seen[end.Front] = true
		}
		end.Sources = f.sources(end, left)
		fronts = append(fronts, end)
	}
	return fronts
}

// sources returns the prefixes that may connect, without overlaps, nil for all.
func (f Family) sources(end FrontEnd, left *omissions) []netip.Prefix {
	if end.Sources == nil {
		return nil
	}
	for _, s := range end.Sources {
		switch {
		case !s.IsValid() || !f.holds(s.Addr()):
			left.add("front %s source %s: allowed are prefixes of IPv%d", end.Address, s, f)
		case s.Bits() == 0:
			return nil
		}
	}
	// The result must not be nil: without any readable prefix, no client may connect.
	apart := []netip.Prefix{}
	for _, p := range prefixes(f, end.Sources) {
		if last := len(apart) - 1; last < 0 || !apart[last].Contains(p.Addr()) {
			apart = append(apart, p)
		}
	}
	return apart
}

func (f Family) targets(pool string, all []netip.AddrPort, weights []uint32, left *omissions) ([]netip.AddrPort, shape) {
	if len(weights) == 0 && f.inOrder(all) {
		// Usually the targets come in order, and most stay in order: sharing the list saves memory.
		return all, evenShape(uint32(len(all)))
	}
	targets := make([]weighted, 0, len(all))
	for i, target := range all {
		one := weighted{target, 1}
		if i < len(weights) {
			one.weight = weights[i]
		}
		switch {
		case !f.holds(target.Addr()) || target.Port() == 0:
			left.add("endpoint %s of the %s pool: allowed is an IPv%d address with a port", target, pool, f)
			continue
		case one.weight == 0 || one.weight > MostWeight:
			left.add("endpoint %s of the %s pool: weight %d: allowed are 1 to %d", target, pool, one.weight, MostWeight)
			continue
		}
		targets = append(targets, one)
	}
	return arrangeByWeight(targets)
}

// inOrder reports whether there are endpoints, all valid and sorted.
func (f Family) inOrder(all []netip.AddrPort) bool {
	return len(all) > 0 && slices.IsSortedFunc(all, netip.AddrPort.Compare) &&
		!slices.ContainsFunc(all, func(target netip.AddrPort) bool { return !f.holds(target.Addr()) || target.Port() == 0 })
}

// omissions counts the parts that are left out of a port.
type omissions struct {
	name  string
	first string
	count int
}

func (o *omissions) add(format string, args ...any) {
	if o.count == 0 {
		o.first = fmt.Sprintf(format, args...)
	}
	o.count++
}

func (o *omissions) err() error {
	switch o.count {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("leaving out of %s: %s", o.name, o.first)
	default:
		return fmt.Errorf("leaving out of %s: %s; and %d more", o.name, o.first, o.count-1)
	}
}
