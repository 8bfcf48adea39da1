package allocate

import (
	"math"
	"slices"
)

// localShared is local with two groups that several zones share. The merged group serves the zones
// without endpoints. The shared group serves urgent zones: zones that stay at or above the
// threshold because each lacks less than a whole endpoint.
func (p *Planner) localShared(threshold float64) verdict {
	if p.endpoints < p.active {
		return verdict{rule: RuleFewEndpoints}
	}
	x := &p.exchange
	x.start(p, threshold, 2)
	merged, shared := len(p.zones), len(p.zones)+1
	x.mergeEmptyZones(merged)
	if group := x.fillNeeds(merged); group >= 0 {
		return verdict{rule: RuleNothingToSpare, zone: x.firstConsumer(group)}
	}
	x.queueReceivers()
	x.receivers = slices.DeleteFunc(x.receivers, func(r queued) bool { return x.consumes[r.zone] == merged })
	if !x.relieveUrgent(shared) {
		return verdict{
			rule: RuleOverload, zone: x.firstConsumer(shared),
			overload: overload(x.expected[shared], x.size[shared]),
		}
	}
	x.giveRemaining()
	x.write(&p.plan)
	return verdict{rule: RulePlanned}
}

// mergeEmptyZones makes the zones without endpoints consumers of the merged group.
func (x *exchange) mergeEmptyZones(merged int) {
	for z := range x.zones {
		if x.zones[z].Endpoints == 0 {
			x.join(z, merged)
		}
	}
}

// join makes the zone a consumer of a group, and moves its members there.
func (x *exchange) join(z, group int) {
	n := len(x.zones)
	for home := range n {
		x.members[group*n+home] += x.members[z*n+home]
		x.members[z*n+home] = 0
	}
	x.consumes[z] = group
	x.expected[group] += x.expected[z]
	x.size[group] += x.size[z]
	x.expected[z], x.size[z] = 0, 0
}

// fillNeeds gives the merged group, and then the zones, the endpoints that they need. It returns
// the first group that finds no giver, or -1.
func (x *exchange) fillNeeds(merged int) (group int) {
	for range roundedNeed(x.expected[merged]) {
		if !x.giveOne(merged) {
			return merged
		}
	}
	// A zone's need does not depend on the endpoints that it gives before its turn.
	x.needs = grow(x.needs, len(x.zones))
	for z := range x.zones {
		x.needs[z] = max(0, whole(x.expected[z]-float64(x.zones[z].Endpoints)))
	}
	for z, need := range x.needs {
		if need > 0 && !x.receive(z, need) {
			return z
		}
	}
	return -1
}

// roundedNeed returns the number of endpoints that the merged group needs: the expected number,
// rounded half up, and at least one if there is traffic.
func roundedNeed(expected float64) int {
	if expected == 0 {
		return 0
	}
	return max(1, int(math.Floor(expected+0.5+nearHalf)))
}

// nearHalf is the shortfall below a half that still rounds up: 1.4999998 does.
const nearHalf = 1e-6

// receive gives endpoints to the zone one by one from the first giver. A zone does not give to
// itself. It reports whether givers were found for all.
func (x *exchange) receive(z, endpoints int) bool {
	place := slices.IndexFunc(x.givers, func(giver queued) bool { return giver.zone == z })
	if place >= 0 {
		x.givers = slices.Delete(x.givers, place, place+1)
	}
	for range endpoints {
		if !x.giveOne(z) {
			return false
		}
	}
	if place >= 0 {
		x.queueGiver(z)
	}
	return true
}

// relieveUrgent brings the urgent zones, which are the first in the queue of receivers, below the
// threshold. It reports whether it could.
func (x *exchange) relieveUrgent(shared int) bool {
	urgent := 0
	for urgent < len(x.receivers) && x.isOverloaded(x.receivers[urgent].zone) {
		urgent++
	}
	zones := x.receivers[:urgent]
	if x.collect(shared, urgent) {
		x.handOut(shared, zones)
	} else if !x.share(shared, zones) {
		return false
	}
	x.receivers = slices.Delete(x.receivers, 0, urgent)
	return true
}

// collect moves spare endpoints to the shared group, from givers that have at least one more than
// expected. It reports whether it found enough.
func (x *exchange) collect(shared, endpoints int) bool {
	for range endpoints {
		place := slices.IndexFunc(x.givers, func(giver queued) bool { return whole(x.spare(giver.zone)) >= 1 })
		if place < 0 {
			return false
		}
		x.giveFrom(place, shared)
	}
	return true
}

// handOut gives each zone one of the collected endpoints, first those of the giver with the first
// name.
func (x *exchange) handOut(shared int, zones []queued) {
	n := len(x.zones)
	home := 0
	for _, z := range zones {
		for x.members[shared*n+home] == 0 {
			home++
		}
		x.members[shared*n+home]--
		x.members[z.zone*n+home]++
		x.size[shared]--
		x.size[z.zone]++
	}
}

// share makes one group of the zones' endpoints and the collected ones. Givers give until it is
// below the threshold, even if they have none to spare. It reports whether they could.
func (x *exchange) share(shared int, zones []queued) bool {
	for _, z := range zones {
		x.join(z.zone, shared)
	}
	for x.isOverloaded(shared) {
		if !x.giveOne(shared) {
			return false
		}
	}
	return true
}

// giveRemaining gives one endpoint to each receiver in turn, while the first giver has a whole one
// to spare.
func (x *exchange) giveRemaining() {
	for _, receiver := range x.receivers {
		if len(x.givers) == 0 || whole(x.spare(x.givers[0].zone)) < 1 {
			return
		}
		if x.givers[0].zone != receiver.zone {
			x.receive(receiver.zone, 1)
		}
	}
}
