package ruleset

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
)

// entry has the elements of one front.
type entry struct {
	verdicts [verdictMaps]Verdict
	slots    [slotMaps][]netip.AddrPort
	// clusterIP means that the front counts for the set of cluster IPs. counted means that its verdicts count as references
	// to their parts.
	clusterIP, counted bool
}

// nothing is the entry of an unknown front.
var nothing = &entry{}

// entry returns the wanted entry for one of the port's fronts.
func (p *port) entry(end *FrontEnd) *entry {
	if p.kept != nil {
		if kept := p.kept[end.Front]; kept != nil {
			return kept
		}
		return nothing
	}
	e := &entry{clusterIP: end.ClusterIP, counted: true}
	group := p.group(end)
	remember := splitInfix
	if end.Pool == PoolSplit {
		e.slots = p.pools
		if p.shapes[0] != nil || p.shapes[1] != nil {
			e.verdicts[setServices] = goTo(splitName(p.shapes[0], p.shapes[1], group))
		}
	} else {
		pool := end.Pool.slotMap()
		e.slots[pool] = p.pools[pool]
		if of := p.shapes[pool]; of != nil {
			e.verdicts[setServices] = goTo(drawName(end.treatment(), pool, of, group))
		}
		remember = localInfixOf(pool)
	}
	if !e.complete() {
		e.verdicts[setRefused] = end.Empty.verdict()
	}
	if end.Sources != nil {
		e.verdicts[setFirewall] = goTo(p.sourcesName(end))
	}
	if e.served() && group != "" {
		e.verdicts[setRemember] = goTo(rememberPrefix + remember + group)
	}
	return e
}

func (p Pool) slotMap() int {
	if p == PoolLocal {
		return 1
	}
	return 0
}

// treatment returns how the traffic of a front is masqueraded. It is not for PoolSplit.
func (e *FrontEnd) treatment() treatment {
	switch {
	case e.Masquerade:
		return treatMasquerade
	case e.ClusterIP:
		return treatService
	}
	return treatPlain
}

func (r Refusal) verdict() Verdict {
	switch r {
	case Drop:
		return Verdict{Kind: VerdictDrop}
	case DropOutside:
		return goTo(dropOutsideChain)
	case Ignore:
		return Verdict{}
	default:
		return goTo(refuseChain)
	}
}

func goTo(chain string) Verdict {
	return Verdict{Kind: VerdictGoto, Chain: chain}
}

// served reports whether an endpoint takes some of the front's packets.
func (e *entry) served() bool { return e.verdicts[setServices].Kind != 0 }

// complete reports whether endpoints take all of the front's packets.
func (e *entry) complete() bool {
	split := strings.HasPrefix(e.verdicts[setServices].Chain, splitPrefix)
	return e.served() && (!split || len(e.slots[0]) > 0 && len(e.slots[1]) > 0)
}

// gains reports whether a pool has endpoints that had none in the other entry.
func (e *entry) gains(other *entry) bool {
	for pool, targets := range e.slots {
		if len(targets) > 0 && len(other.slots[pool]) == 0 {
			return true
		}
	}
	return false
}

// group returns the common part of the names of a sticky port's chains and maps, for its fronts of one protocol. Each pool
// has its own map: a client of the cluster pool must not lead a front of the local pool off the node. The size of a map
// cannot change, so its name contains it.
func (p *port) group(end *FrontEnd) string {
	if p.affinity == 0 {
		return ""
	}
	protocol := end.Protocol.String()
	details := []string{protocol}
	if p.clients != MostAffinityClients {
		details = append(details, fmt.Sprintf("%d clients", p.clients))
	}
	return protocol + "-" + uniqueName(p.name, details...)
}

func (p *port) sourcesName(end *FrontEnd) string {
	texts := make([]string, len(end.Sources))
	for i, s := range end.Sources {
		texts[i] = s.String()
	}
	return sourcesPrefix + uniqueName(p.name, texts...)
}

// nameLength bounds the readable part of names. The kernel allows 255 bytes, and names also contain shapes.
const nameLength = 100

// uniqueName returns a hash of the name and the details, and the name in characters that nft allows.
func uniqueName(name string, details ...string) string {
	hash := sha256.Sum256(fmt.Appendf(nil, "%q %q", name, details))
	readable := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '.', r == '_', r == '/':
			return r
		case r == ':':
			return '/'
		default:
			return '-'
		}
	}, name)
	return hex.EncodeToString(hash[:8]) + "-" + readable[:min(len(readable), nameLength)]
}
