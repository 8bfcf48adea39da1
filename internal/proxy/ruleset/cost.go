package ruleset

import "math/bits"

// Costs are counted in elements of sets. Chains, rules and maps count as elements too: they are few. Costs are upper
// bounds, and are computed before the ServicePort is made, which may be too large.
const (
	// chainCost is a chain with its rules, except those for sources and classes of weights.
	chainCost = 3
	// portChains pick endpoints: one for each pool, each treatment, and the choice of a pool.
	portChains = 2 + len(treatmentPrefixes) + 1
	// weightedCost is a chain for each class of weights, and the rules that choose it.
	weightedCost = mostClasses * (chainCost + len(treatmentPrefixes))
	// hookCost is the hooks that all sticky ports share, or all ports with sources.
	hookCost = 2 * chainCost
	// stickyChains find and remember clients: for each treatment and pool, and both pools.
	stickyChains = 2*len(treatmentPrefixes) + 1 + 3
	// memoryCost is a map of the kernel's default size with some clients.
	memoryCost = 64
	// bucketsPerElement buckets of a hash table, of 16 bytes each, count as one element.
	bucketsPerElement = 32
)

// knownPerElement known endpoints count as one element. They take memory of the program only.
const knownPerElement = 4

// MemoryCost returns the cost of a map of clients. For a map with a size, the kernel allocates the hash table at once, with
// room for a third more.
func MemoryCost(clients int) int {
	if clients >= MostAffinityClients {
		return memoryCost
	}
	buckets := 1 << bits.Len(uint(max(clients*4/3, 4)-1))
	return (clients*memoryCost+MostAffinityClients-1)/MostAffinityClients + (buckets+bucketsPerElement-1)/bucketsPerElement
}

// PortCost returns the cost of a port without its fronts. clients is the size of its maps, zero without affinity. known
// counts the endpoints that new connections do not use.
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

// FrontCost returns the cost of a front: an element for each slot, and one in each map for its endpoints, its refusal, and
// its cluster IP or masquerading.
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
