package ruleset

import (
	"maps"
	"net/netip"
	"slices"
)

func (r *revision) reviseFront(front Front, old, wanted *entry) {
	key := frontKey(front)
	for id := range verdictMaps {
		r.reviseVerdict(front, id, old, wanted)
		if have, want := old.verdicts[id], wanted.verdicts[id]; have != want {
			if have.Kind != 0 {
				r.removals[id] = append(r.removals[id], Element{Key: key})
			}
			if want.Kind != 0 {
				r.adds[id] = append(r.adds[id], Element{Key: key, Verdict: want})
			}
		}
	}
	for pool := range old.slots {
		r.reviseSlots(slotsOf{front, pool}, old.slots[pool], wanted.slots[pool])
	}
	if old.counted && old.clusterIP {
		r.count(front.Address, -1)
	}
	if wanted.clusterIP {
		r.count(front.Address, 1)
	}
}

func (r *revision) change(id setID, e Element, add bool) {
	if add {
		r.adds[id] = append(r.adds[id], e)
	} else {
		r.removals[id] = append(r.removals[id], e)
	}
}

func (r *revision) reviseVerdict(front Front, id setID, old, wanted *entry) {
	have, want := old.verdicts[id], wanted.verdicts[id]
	same := old.counted && have == want
	if old.counted && !same && have.leadsToPart() {
		p := r.parts[have.Chain]
		p.refs--
		p.left = r.due
		r.touch(p)
	}
	if !want.leadsToPart() || same && id != setRemember {
		return
	}
	p := r.parts[want.Chain]
	if !same {
		p = r.usePart(want.Chain)
	}
	winner := r.claims.winners[front]
	switch id {
	case setRemember:
		if winner.port.kept != nil {
			return // the timeout of the clients is unknown
		}
		if p.timeout != winner.port.affinity {
			p.timeout = winner.port.affinity
			p.outdated = true
			r.touch(p)
		}
	case setFirewall:
		if winner.port.kept == nil || want.Chain == winner.port.sourcesName(winner.end()) {
			p.sources = winner.end().Sources
		}
	}
}

func (v Verdict) leadsToPart() bool {
	return v.Chain != "" && v.Chain != refuseChain && v.Chain != dropOutsideChain
}

// reviseSlots changes the slots of a front. Elements cannot be changed in place.
func (r *revision) reviseSlots(of slotsOf, old, wanted []netip.AddrPort) {
	if len(old) == len(wanted) && (len(old) == 0 || &old[0] == &wanted[0]) {
		return
	}
	id := setSlots + setID(of.pool)
	for slot, target := range wanted {
		n := uint32(slot)
		if slot < len(old) && old[slot] == target {
			continue
		}
		key := slotKey(of.front, n)
		if slot < len(old) || r.lingering.takeSlot(of, n) {
			r.removals[id] = append(r.removals[id], Element{Key: key})
		}
		r.adds[id] = append(r.adds[id], Element{Key: key, Data: TargetData(target)})
	}
	if len(old) <= len(wanted) {
		return
	}
	unused := make([]uint32, 0, len(old)-len(wanted))
	for slot := len(wanted); slot < len(old); slot++ {
		unused = append(unused, uint32(slot))
	}
	r.lingering.deferSlots(of, unused, r.due)
}

// count counts the fronts that have an address as their cluster IP.
func (r *revision) count(address netip.Addr, by int32) {
	if _, ok := r.addresses[address]; !ok {
		r.addresses[address] = r.clusterIPs[address] > 0
	}
	if r.clusterIPs[address] += by; r.clusterIPs[address] == 0 {
		delete(r.clusterIPs, address)
	}
}

func (r *revision) reviseAddresses() {
	for _, address := range slices.SortedFunc(maps.Keys(r.addresses), netip.Addr.Compare) {
		if want := r.clusterIPs[address] > 0; want != r.addresses[address] {
			r.change(setClusterIPs, Element{Key: addressKey(address)}, want)
		}
	}
}

func (r *revision) reviseHairpin() {
	if r.held == nil && r.stagedHairpin == nil {
		return
	}
	old := r.hairpin
	if r.held != nil {
		old = r.held.hairpin
	}
	if r.stagedHairpin != nil {
		r.hairpin = *r.stagedHairpin
	}
	for _, address := range old {
		if _, stays := slices.BinarySearchFunc(r.hairpin, address, netip.Addr.Compare); !stays {
			r.change(setHairpin, Element{Key: addressKey(address, address)}, false)
		}
	}
	for _, address := range r.hairpin {
		if _, there := slices.BinarySearchFunc(old, address, netip.Addr.Compare); !there {
			r.change(setHairpin, Element{Key: addressKey(address, address)}, true)
		}
	}
}
