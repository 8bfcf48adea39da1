package ruleset

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

type partKind int

// Parts lead only to parts of earlier kinds: they are made in this order and deleted in reverse.
const (
	hookPart     partKind = iota // a base chain
	affinityPart                 // a map from clients to targets
	pickPart                     // a chain that translates to one of some slots
	drawPart                     // a chain that translates to a slot of a pool
	splitPart                    // a chain that decides between two pools
	rememberPart                 // a chain that remembers clients
	sourcesPart                  // a chain that drops other sources
	partKinds
)

// The prefixes of names, and the infixes for the local pool and for both pools.
const (
	affinityPrefix = "affinity-"
	pickPrefix     = "pick-"
	stickyPrefix   = "sticky-"
	splitPrefix    = "split-"
	rememberPrefix = "remember-"
	sourcesPrefix  = "sources-"

	localInfix = "local-"
	splitInfix = "split-"
)

// treatment selects the connections that a draw chain masquerades.
type treatment uint8

const (
	treatPlain      treatment = iota // none
	treatService                     // as Config says for Services
	treatMasquerade                  // all
)

var treatmentPrefixes = [...]string{treatPlain: "draw-", treatService: "service-", treatMasquerade: "masquerade-"}

// part is a chain or a map that a table has while elements or other parts lead to it.
type part struct {
	name     string
	kind     partKind
	refs     int  // elements and parts that lead here, with this Commit
	held     bool // the kernel holds it
	leads    bool // it is counted in the refs of the parts that it leads to
	outdated bool // the kernel has other rules for it
	foreign  bool // these rules are foreign and may lead anywhere
	touched  bool // this Commit revises it
	// left is until when packets may come here by a deleted element. due is when the part is deleted, zero while it is used.
	left, due time.Time

	shapes        [slotMaps]shape // of the pools that a draw or split chain leads to
	count, offset uint32          // a pick chain draws one of count slots, from offset on
	local, both   bool            // its pool; both is for remember chains
	treatment     treatment       // of a draw chain
	group         string          // the common part of all names of a sticky port
	memory        *part           // the map of clients of a sticky draw chain
	// found has the targets of the clients of an adopted map, nil once its port is known.
	found   []netip.AddrPort
	timeout time.Duration
	sources []netip.Prefix
	removed []removedTarget // targets of clients in the map
}

// parsePart makes a part from its name. It returns nil for a name that no part has.
func parsePart(name string) *part {
	p := &part{name: name}
	if _, hook := hooks[name]; hook {
		p.kind = hookPart
		return p
	}
	kind, rest := cutAny(name, affinityPrefix, pickPrefix, splitPrefix, rememberPrefix, sourcesPrefix)
	switch kind {
	case affinityPrefix:
		p.kind = affinityPart
		p.local, p.group = cutLocal(rest)
	case pickPrefix:
		p.kind = pickPart
		p.local, rest = cutLocal(rest)
		count, offset, _ := strings.Cut(rest, "-")
		if p.count, p.offset = parseCount(count), parseCount(offset); p.count == 0 || p.count > mostSlots || p.offset > mostSlots || pickName(p.pool(), p.count, p.offset) != name {
			return nil
		}
	case splitPrefix:
		return p.parseSplit(rest)
	case rememberPrefix:
		p.kind = rememberPart
		if p.group, p.both = strings.CutPrefix(rest, splitInfix); !p.both {
			p.local, p.group = cutLocal(rest)
		}
	case sourcesPrefix:
		p.kind = sourcesPart
	default:
		return p.parseDraw()
	}
	return p
}

func (p *part) parseSplit(rest string) *part {
	p.kind = splitPart
	texts := strings.SplitN(rest, "-", int(slotMaps)+1)
	if len(texts) < int(slotMaps) {
		return nil
	}
	for pool := range p.shapes {
		var ok bool
		if p.shapes[pool], ok = parseShape(texts[pool]); !ok {
			return nil
		}
	}
	if len(texts) > int(slotMaps) {
		p.group = texts[slotMaps]
	}
	return p
}

func (p *part) parseDraw() *part {
	p.kind = drawPart
	rest, sticky := strings.CutPrefix(p.name, stickyPrefix)
	prefix, rest := cutAny(rest, treatmentPrefixes[:]...)
	if prefix == "" {
		return nil
	}
	p.treatment = treatment(slices.Index(treatmentPrefixes[:], prefix))
	p.local, rest = cutLocal(rest)
	if sticky {
		var ok bool
		if rest, p.group, ok = strings.Cut(rest, "-"); !ok || p.group == "" {
			return nil
		}
	}
	read, ok := parseShape(rest)
	if p.shapes[p.pool()] = read; !ok || read == nil || p.group == "" && !p.needed() {
		return nil
	}
	return p
}

// needed reports whether a draw chain does more than a pick chain.
func (p *part) needed() bool {
	return p.treatment != treatPlain || p.group != "" || len(p.shapes[p.pool()]) > 1
}

func cutAny(text string, prefixes ...string) (prefix, rest string) {
	for _, prefix := range prefixes {
		if rest, ok := strings.CutPrefix(text, prefix); ok {
			return prefix, rest
		}
	}
	return "", text
}

func cutLocal(text string) (local bool, rest string) {
	rest, local = strings.CutPrefix(text, localInfix)
	return local, rest
}

// parseCount reads a number in a name, zero if it is none.
func parseCount(s string) uint32 {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || strconv.FormatUint(n, 10) != s {
		return 0
	}
	return uint32(n)
}

func localInfixOf(pool int) string {
	if pool > 0 {
		return localInfix
	}
	return ""
}

func pickName(pool int, count, offset uint32) string {
	name := pickPrefix + localInfixOf(pool) + strconv.FormatUint(uint64(count), 10)
	if offset > 0 {
		name += "-" + strconv.FormatUint(uint64(offset), 10)
	}
	return name
}

func drawName(t treatment, pool int, of shape, group string) string {
	if group == "" && t == treatPlain && len(of) == 1 {
		return pickName(pool, of[0].count, 0)
	}
	name := treatmentPrefixes[t] + localInfixOf(pool) + of.String()
	if group != "" {
		return stickyPrefix + name + "-" + group
	}
	return name
}

func splitName(cluster, local shape, group string) string {
	name := splitPrefix + cluster.String() + "-" + local.String()
	if group != "" {
		name += "-" + group
	}
	return name
}

func memoryName(pool int, group string) string { return affinityPrefix + localInfixOf(pool) + group }

// pool returns the pool of a draw chain, a map or a remember chain.
func (p *part) pool() int {
	if p.local {
		return 1
	}
	return 0
}

// slots returns how many slots of a pool the chain needs.
func (p *part) slots(pool int) uint32 {
	if p.kind == pickPart && pool == p.pool() {
		return p.offset + p.count
	}
	return p.shapes[pool].slots()
}

// drawNames returns the chains that a split chain leads to, empty for a pool without endpoints.
func (p *part) drawNames() (inside, outside string) {
	var names [slotMaps]string
	for pool, of := range p.shapes {
		if of != nil {
			names[pool] = drawName(treatPlain, pool, of, p.group)
		}
	}
	return names[0], names[1]
}

func (p *part) memories() []string {
	if p.both {
		return []string{memoryName(0, p.group), memoryName(1, p.group)}
	}
	return []string{memoryName(p.pool(), p.group)}
}

func (p *part) protocol() Protocol {
	name, _, _ := strings.Cut(p.group, "-")
	i := slices.IndexFunc(protocols, func(known Protocol) bool { return known.String() == name })
	return protocols[max(i, 0)]
}

// leadsTo returns the names of the parts that p leads to, and of the hooks that lead to p.
func (p *part) leadsTo() []string {
	switch p.kind {
	case drawPart:
		names := p.shapes[p.pool()].draws(p.pool())
		if p.group != "" {
			names = append(names, memoryName(p.pool(), p.group))
		}
		return names
	case splitPart:
		inside, outside := p.drawNames()
		return slices.DeleteFunc([]string{inside, outside}, func(name string) bool { return name == "" })
	case rememberPart:
		return append(p.memories(), rememberHooks...)
	case sourcesPart:
		return firewallHooks
	}
	return nil
}

// chain returns the chain of a part, nil for a map.
func (p *part) chain(c Config) *Chain {
	switch p.kind {
	case hookPart:
		h := hooks[p.name]
		return c.chain(p.name, &h.base, h.rule)
	case pickPart:
		return c.pick(p)
	case drawPart:
		return c.draw(p)
	case splitPart:
		return c.split(p)
	case rememberPart:
		return c.remember(p)
	case sourcesPart:
		return c.guard(p)
	}
	return nil
}

// compareParts orders parts by their creation.
func compareParts(a, b *part) int {
	return cmp.Or(
		cmp.Compare(a.kind, b.kind), cmp.Compare(a.offset, b.offset), cmp.Compare(a.count, b.count), cmp.Compare(a.shapes[0].slots(), b.shapes[0].slots()),
		cmp.Compare(a.shapes[1].slots(), b.shapes[1].slots()), cmp.Compare(a.name, b.name),
	)
}
