package ruleset

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// entry is what a table holds for one front.
type entry struct {
	verdicts [verdictMaps]Verdict
	members  [memberships]bool
	slots    [slotMaps][]netip.AddrPort
	// clusterIP says that the front counts for the set of addresses of Services, and
	// counted that its verdicts count for the parts that they lead to.
	clusterIP, counted bool
}

// nothing is the entry of a front that a table does not know.
var nothing = &entry{}

// entry is what a port needs for one of its fronts.
func (p *port) entry(end *FrontEnd) *entry {
	e := &entry{clusterIP: end.ClusterIP, counted: true}
	complete := false
	switch cluster, local := p.pools[0], p.pools[1]; end.Pool {
	case PoolCluster:
		e.slots[0] = cluster
		if complete = len(cluster) > 0; complete {
			e.verdicts[setServices] = goTo(clusterPrefix + strconv.Itoa(len(cluster)))
		}
	case PoolLocal:
		e.slots[1] = local
		if complete = len(local) > 0; complete {
			e.verdicts[setServices] = goTo(localPrefix + strconv.Itoa(len(local)))
		}
	default:
		e.slots = p.pools
		complete = len(cluster) > 0 && len(local) > 0
		if len(cluster) > 0 || len(local) > 0 {
			e.verdicts[setServices] = goTo(splitName(len(cluster), len(local)))
		}
	}
	if !complete {
		e.verdicts[setRefused] = end.Empty.verdict()
	}
	if end.Sources != nil {
		e.verdicts[setFirewall] = goTo(p.sourcesName(end))
	}
	if !e.served() {
		return e
	}
	e.members[0] = end.Masquerade && end.Pool != PoolSplit
	e.members[1] = end.Pool == PoolSplit
	if p.affinity > 0 {
		group := p.group(end)
		// A client that nothing is known of comes back from there.
		e.verdicts[setAffinity] = Verdict{Kind: VerdictJump, Chain: stickyPrefix + group}
		e.verdicts[setRemember] = goTo(rememberPrefix + group)
	}
	return e
}

// verdict is what a refusal is to packets.
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

// goTo is the verdict that goes on in a chain.
func goTo(chain string) Verdict {
	return Verdict{Kind: VerdictGoto, Chain: chain}
}

// served reports whether an endpoint takes some of the front's packets.
func (e *entry) served() bool { return e.verdicts[setServices].Kind != 0 }

// complete reports whether endpoints take all of the front's packets.
func (e *entry) complete() bool {
	split := e.members[setMasqueradedNode-setMasqueraded]
	return e.served() && (!split || len(e.slots[0]) > 0 && len(e.slots[1]) > 0)
}

// gains reports whether there is a pool with endpoints that had none in another entry.
func (e *entry) gains(other *entry) bool {
	for pool, targets := range e.slots {
		if len(targets) > 0 && len(other.slots[pool]) == 0 {
			return true
		}
	}
	return false
}

// group names what the clients of a front share with those of the port's other fronts
// of the same pool and protocol: where they are remembered. Pools must not share it: a
// client that the whole pool served would be sent away from the node by a front that
// may only use the local one.
func (p *port) group(end *FrontEnd) string {
	suffix := ""
	switch end.Pool {
	case PoolCluster:
	case PoolLocal:
		suffix = "-local"
	default:
		suffix = "-split"
	}
	return uniqueName(p.name, suffix, end.Protocol.String()) + suffix
}

// sourcesName names the chain of those that may connect to a front.
func (p *port) sourcesName(end *FrontEnd) string {
	texts := make([]string, len(end.Sources))
	for i, s := range end.Sources {
		texts[i] = s.String()
	}
	return sourcesPrefix + uniqueName(p.name, texts...)
}

// nameLength bounds what names say of ServicePorts. The kernel's names end at 255 bytes.
const nameLength = 200

// uniqueName is a name for the kernel: a hash of all that tells it from others, and what
// people know it by, as far as nft's words can spell it.
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
	return hex.EncodeToString(hash[:4]) + "-" + readable[:min(len(readable), nameLength)]
}
