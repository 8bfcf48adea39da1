package ruleset

import (
	"cmp"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// partKind is a kind of part.
type partKind int

// The kinds of parts. Parts lead only to parts of kinds before theirs, so this is the
// order in which they are made, and deleted from the end.
const (
	affinityPart  partKind = iota // a map from clients to targets
	pickPart                      // a chain that picks a slot of the whole pool
	pickLocalPart                 // a chain that picks a slot of the local pool
	splitPart                     // a chain that decides between two pools
	stickyPart                    // a chain for clients that were there before
	rememberPart                  // a chain that remembers clients
	sourcesPart                   // a chain that knows who may connect
	partKinds
)

// What the names of parts begin with. No prefix but that of a pick chain begins another.
const (
	affinityPrefix = "affinity-"
	clusterPrefix  = "pick-"
	localPrefix    = "pick-local-"
	splitPrefix    = "split-"
	stickyPrefix   = "sticky-"
	rememberPrefix = "remember-"
	sourcesPrefix  = "sources-"
)

// part is a chain or a map that a table has for as long as something leads to it.
type part struct {
	name string
	kind partKind
	// refs counts what leads here: elements, and parts that the kernel holds or will.
	refs int
	// held says that the kernel holds it.
	held bool
	// leads says that the parts it leads to count it.
	leads bool
	// outdated says that the kernel's has other rules, which does not matter while nothing
	// leads to it.
	outdated bool
	// touched says that the Commit at work has looked at it.
	touched bool
	// left is until when packets may be on their way here that an element led here which
	// does so no more. due is when the part is deleted, zero while something leads to it.
	left, due time.Time

	cluster, local uint32 // the slots that a pick or split chain counts on
	protocol       Protocol
	timeout        time.Duration
	sources        []netip.Prefix
}

// parsePart makes a part of what its name tells. It is nil for a name that no part has.
func parsePart(name string) *part {
	p := &part{name: name}
	switch {
	case strings.HasPrefix(name, affinityPrefix):
		p.kind = affinityPart
	case strings.HasPrefix(name, localPrefix):
		p.kind = pickLocalPart
		p.local = parseCount(name[len(localPrefix):])
		if p.local == 0 {
			return nil
		}
	case strings.HasPrefix(name, clusterPrefix):
		p.kind = pickPart
		p.cluster = parseCount(name[len(clusterPrefix):])
		if p.cluster == 0 {
			return nil
		}
	case strings.HasPrefix(name, splitPrefix):
		p.kind = splitPart
		cluster, local, _ := strings.Cut(name[len(splitPrefix):], "-")
		p.cluster, p.local = parseCount(cluster), parseCount(local)
		if p.name != splitName(int(p.cluster), int(p.local)) {
			return nil
		}
	case strings.HasPrefix(name, stickyPrefix):
		p.kind = stickyPart
	case strings.HasPrefix(name, rememberPrefix):
		p.kind = rememberPart
	case strings.HasPrefix(name, sourcesPrefix):
		p.kind = sourcesPart
	default:
		return nil
	}
	return p
}

// parseCount reads a number as names have it, zero if it is none.
func parseCount(s string) uint32 {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || strconv.FormatUint(n, 10) != s {
		return 0
	}
	return uint32(n)
}

// splitName is the name of a chain that decides between two pools.
func splitName(cluster, local int) string {
	return splitPrefix + strconv.Itoa(cluster) + "-" + strconv.Itoa(local)
}

// affinityName is the name of the map that a sticky or remember chain uses.
func (p *part) affinityName() string {
	_, group, _ := strings.Cut(p.name, "-")
	return affinityPrefix + group
}

// leadsTo are the names of the parts that p leads to.
func (p *part) leadsTo() []string {
	switch p.kind {
	case splitPart:
		var names []string
		if p.cluster > 0 {
			names = append(names, clusterPrefix+strconv.FormatUint(uint64(p.cluster), 10))
		}
		if p.local > 0 {
			names = append(names, localPrefix+strconv.FormatUint(uint64(p.local), 10))
		}
		return names
	case stickyPart, rememberPart:
		return []string{p.affinityName()}
	default:
		return nil
	}
}

// chain is the chain that a part is, nil if it is a map.
func (p *part) chain(c Config) *Chain {
	switch p.kind {
	case affinityPart:
		return nil
	case pickPart:
		return c.pick(p.name, setSlots, p.cluster)
	case pickLocalPart:
		return c.pick(p.name, setLocalSlots, p.local)
	case splitPart:
		return c.split(p.name, p.cluster, p.local)
	case stickyPart:
		return c.chain(p.name, nil, []Statement{
			HasProtocol{p.protocol}, Translate{Key: []Value{SourceAddress}, Map: p.affinityName()},
		})
	case rememberPart:
		return c.chain(p.name, nil, []Statement{Remember{Map: p.affinityName(), Timeout: p.timeout}})
	default:
		var rules [][]Statement
		for _, prefix := range p.sources {
			rules = append(rules, []Statement{InPrefix{Value: SourceAddress, Prefix: prefix}, Decide{Verdict{Kind: VerdictReturn}}})
		}
		return c.chain(p.name, nil, append(rules, []Statement{Decide{Verdict{Kind: VerdictDrop}}})...)
	}
}

// compareParts orders parts as they are made.
func compareParts(a, b *part) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.local, b.local), cmp.Compare(a.name, b.name))
}
