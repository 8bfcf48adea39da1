package compile

import (
	"hash/fnv"
	"math"
	"net/netip"
	"slices"
)

// The kernel picks evenly among the slots of a pool, so an endpoint that counts more
// than another has more slots. A port has the slots of its pool once for each of its
// addresses, so there must not be too many.
const (
	// fewSlots is how many slots any pool may have, and manySlots how many none has
	// unless it has a quarter as many endpoints.
	fewSlots, manySlots = 1024, 65536
	// usualSlots and leastSlots are for each endpoint what a pool between may have, and
	// what any may have.
	usualSlots, leastSlots = 16, 4
	// inexact is how far the share of an endpoint may be off, as a part of the greatest
	// share, and that of all endpoints with the same weight, as a part of all traffic.
	inexact = 0.01
)

// mostSlots is how many slots a pool with so many endpoints may have.
func mostSlots(endpoints int) int {
	return max(fewSlots, leastSlots*endpoints, min(usualSlots*endpoints, manySlots))
}

// class is the endpoints that have the same weight.
type class struct {
	weight, count int
	// slots are those of each endpoint, and extra endpoints have one more.
	slots, extra int
	// met counts the endpoints while they are given their slots.
	met int
}

// repeat repeats targets so often that their shares are those of their weights: with as
// few slots as that takes, but at least one each. Where the bound does not allow it, the
// shares are as near as it allows. Where that would change the share of all endpoints of
// some weight together, some of them have a slot more than others; which of them it is
// differs from node to node.
func repeat(targets []netip.AddrPort, weights []int, node string) []netip.AddrPort {
	classes := classesOf(weights)
	if len(classes) < 2 {
		return targets
	}
	total := apportion(classes, mostSlots(len(targets)))
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(node))
	turn := hash.Sum32()
	var place [fullWeight + 1]int
	for i, c := range classes {
		place[c.weight] = i
	}
	repeated := make([]netip.AddrPort, 0, total)
	for i, target := range targets {
		c := &classes[place[weights[i]]]
		n := c.slots
		if (c.met+int(turn%uint32(c.count)))%c.count < c.extra {
			n++
		}
		c.met++
		for range n {
			repeated = append(repeated, target)
		}
	}
	return repeated
}

// classesOf counts the endpoints of each weight, the greatest first.
func classesOf(weights []int) []class {
	var counts [fullWeight + 1]int
	for _, weight := range weights {
		counts[weight]++
	}
	var classes []class
	for weight, count := range slices.Backward(counts[:]) {
		if count > 0 {
			classes = append(classes, class{weight: weight, count: count})
		}
	}
	return classes
}

// apportion gives the classes their slots, and says how many these are, at most so many.
// It tries one slot for each of the heaviest endpoints, then two, until the shares are
// exact enough, which they are at the latest where the heaviest have as many slots as
// they weigh.
func apportion(classes []class, most int) int {
	heaviest := classes[0].weight
	best, least := 0, math.Inf(1)
	for each := 1; each <= heaviest; each++ {
		total := give(classes, each)
		if total > most {
			break
		}
		endpoint, together := offBy(classes, total)
		if together > inexact {
			continue
		}
		if endpoint <= inexact {
			return total
		}
		if endpoint < least {
			best, least = each, endpoint
		}
	}
	if best > 0 {
		return give(classes, best)
	}
	divide(classes, most)
	return most
}

// give gives each of the heaviest endpoints so many slots, and others what is nearest to
// their weight. It says how many these are.
func give(classes []class, each int) int {
	total, heaviest := 0, classes[0].weight
	for i := range classes {
		c := &classes[i]
		c.slots = max(1, (2*each*c.weight+heaviest)/(2*heaviest))
		total += c.slots * c.count
	}
	return total
}

// offBy is by how much shares are off: the most of an endpoint, as a part of the
// greatest share, and the most of all endpoints of one weight, as a part of all traffic.
func offBy(classes []class, total int) (endpoint, together float64) {
	sum := weightOf(classes)
	greatest := float64(classes[0].weight) / float64(sum)
	for _, c := range classes {
		off := math.Abs(float64(c.slots)/float64(total) - float64(c.weight)/float64(sum))
		endpoint = max(endpoint, off/greatest)
		together = max(together, off*float64(c.count))
	}
	return endpoint, together
}

// divide gives the classes exactly so many slots, in proportion to what they weigh but
// one for each endpoint at least. The lightest come first, because what they take
// beyond their share, to have one each, is not there for the heavier ones.
func divide(classes []class, slots int) {
	sum := weightOf(classes)
	for i := range slices.Backward(classes) {
		c := &classes[i]
		share := float64(slots) * float64(c.weight*c.count) / float64(sum)
		given := max(c.count, int(share))
		c.slots, c.extra = given/c.count, given%c.count
		slots -= given
		sum -= c.weight * c.count
	}
}

// weightOf is what all endpoints of some classes weigh.
func weightOf(classes []class) int {
	sum := 0
	for _, c := range classes {
		sum += c.weight * c.count
	}
	return sum
}
