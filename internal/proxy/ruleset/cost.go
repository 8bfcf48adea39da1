package ruleset

import "math/bits"

// What a ServicePort takes of the kernel is counted in elements of sets. Chains, rules and
// maps count as elements too, of which each is larger than one and there are few. The counts are
// upper bounds, made without the ServicePort, which may be too large to make.
const (
	// chainCost is a chain with its rules, but for those that tell sources or classes of
	// weights, which are counted one by one.
	chainCost = 3
	// portChains is how many chains a port may need to pick its endpoints: one for each
	// pool, one for each treatment of its fronts, and one that decides between pools.
	portChains = 2 + len(treatmentPrefixes) + 1
	// weightedCost is what a port needs more if its endpoints have weights: a chain to pick
	// from each class, and a rule for it wherever a class is chosen.
	weightedCost = mostClasses * (chainCost + len(treatmentPrefixes))
	// hookCost is what all ports need together that are sticky, or that are for some sources.
	hookCost = 2 * chainCost
	// stickyChains are those by which a port finds clients and remembers them: for each
	// treatment and pool, for what decides between pools, and for what remembers.
	stickyChains = 2*len(treatmentPrefixes) + 1 + 3
	// memoryCost is a map of clients of the kernel's own size with some of these. How many
	// there are is not known.
	memoryCost = 64
	// bucketsPerElement is how many buckets of a map's hash table count as an element: they take
	// 16 bytes each, half of which is what the kernel rounds up, and all of it is the kernel's.
	bucketsPerElement = 32
)

// knownPerElement is how many endpoints that are only known take as much as an element: they
// are in the memory of the program alone.
const knownPerElement = 4

// MemoryCost is what a map counts for that remembers so many clients: a share of what one of
// the kernel's own size does, and the hash table, which the kernel makes at once, and with room
// for a third more, for a map that is given a size.
func MemoryCost(clients int) int {
	if clients >= MostAffinityClients {
		return memoryCost
	}
	buckets := 1 << bits.Len(uint(max(clients*4/3, 4)-1))
	return (clients*memoryCost+MostAffinityClients-1)/MostAffinityClients + (buckets+bucketsPerElement-1)/bucketsPerElement
}

// PortCost is what a port takes beside its fronts, of which those for some sources only
// have so many of them, and which knows so many endpoints beside those that it uses. Each of
// its maps remembers so many clients, none if it has no affinity.
func PortCost(clients int, weighted bool, sources, known int) int {
	cost := portChains*chainCost + known/knownPerElement
	if weighted {
		cost += weightedCost
	}
	if clients > 0 {
		cost += stickyChains*(chainCost+2) + hookCost + 2*MemoryCost(clients)
		if weighted {
			cost += weightedCost
		}
	}
	if sources > 0 {
		cost += chainCost + sources + hookCost
	}
	return cost
}

// FrontCost is what a front takes that leads to so many slots: one element for each slot
// and, in maps, one for who serves it, one for what becomes of connections without an
// endpoint, and one for whether it is a cluster IP or masqueraded.
func FrontCost(slots int, sticky, guarded bool) int {
	const usual = 3
	cost := usual + slots
	if sticky {
		cost += 2
	}
	if guarded {
		cost++
	}
	return cost
}

// Cost is what a ServicePort takes at most, with maps that remember so many clients if it has
// affinity.
func (sp *ServicePort) Cost(clients int) int {
	sticky := sp.Affinity > 0
	if !sticky {
		clients = 0
	}
	sources, cost := 0, 0
	for i := range sp.Fronts {
		end := &sp.Fronts[i]
		slots := 0
		if end.Pool != PoolLocal {
			slots += len(sp.Cluster)
		}
		if end.Pool != PoolCluster {
			slots += len(sp.Local)
		}
		if end.Sources != nil {
			sources = max(sources, len(end.Sources), 1)
		}
		cost += FrontCost(slots, sticky, end.Sources != nil)
	}
	known := len(sp.Known.Serving) + len(sp.Known.Silent) + len(sp.Known.Fleeting)
	return cost + PortCost(clients, sp.Weights != nil, sources, known)
}
