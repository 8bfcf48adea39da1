package allocate

import (
	"cmp"
	"math"
	"slices"
)

// exchange is the state of local and local-shared: each zone's group starts with its own
// endpoints, and gives some to other groups.
type exchange struct {
	zones    []Zone
	shares   []float64
	limit    float64   // a load at or above it is at or above the threshold
	consumes []int     // the group that each zone consumes; group z is zone z's own
	expected []float64 // endpoints, by group
	size     []int     // members, by group
	members  []int     // by group and home zone

	givers    []queued // zones that may give, by their load after giving one away
	receivers []queued // zones that may receive, by their load
	needs     []int    // whole endpoints, by zone
}

// start gives each zone a group of its own and leaves room for more groups.
func (x *exchange) start(p *Planner, threshold float64, more int) {
	n := len(p.zones)
	x.zones, x.shares = p.zones, p.shares
	x.limit = 1 + threshold
	x.consumes = grow(x.consumes, n)
	x.expected = grow(x.expected, n+more)
	x.size = grow(x.size, n+more)
	x.members = grow(x.members, (n+more)*n)
	for z := range x.zones {
		x.consumes[z] = z
		x.expected[z] = p.expected[z]
		x.size[z] = x.zones[z].Endpoints
		x.members[z*n+z] = x.zones[z].Endpoints
	}
	x.queueGivers()
}

// spare returns how many endpoints the group has beyond the expected number.
func (x *exchange) spare(group int) float64 {
	return float64(x.size[group]) - x.expected[group]
}

// lack returns how many endpoints the group misses of the expected number.
func (x *exchange) lack(group int) float64 {
	return -x.spare(group)
}

// whole returns the whole part of a lack or a surplus.
func whole(endpoints float64) int {
	return int(math.Floor(endpoints + tolerance))
}

// isOverloaded reports whether the group's load is at or above the threshold.
func (x *exchange) isOverloaded(group int) bool {
	return overloaded(x.expected[group], x.size[group], x.limit)
}

// mayGive reports whether the zone keeps an endpoint and stays below the threshold when it gives
// away one of its own. A zone without traffic need not keep any.
func (x *exchange) mayGive(z int) bool {
	left := x.size[z] - 1
	return x.members[z*len(x.zones)+z] > 0 && (left > 0 || x.shares[z] == 0) &&
		!overloaded(x.expected[z], left, x.limit)
}

// move gives endpoints of the giver's own to another group.
func (x *exchange) move(giver, group, endpoints int) {
	n := len(x.zones)
	x.size[giver] -= endpoints
	x.size[group] += endpoints
	x.members[giver*n+giver] -= endpoints
	x.members[group*n+giver] += endpoints
}

// giveOne moves one endpoint from the first giver to the group. It reports whether there is a
// giver.
func (x *exchange) giveOne(group int) bool {
	if len(x.givers) == 0 {
		return false
	}
	x.giveFrom(0, group)
	return true
}

// giveFrom moves one endpoint to the group, from the giver at this place in the queue. The giver
// goes back into the queue if it may give another.
func (x *exchange) giveFrom(place, group int) {
	giver := x.givers[place].zone
	x.move(giver, group, 1)
	x.givers = slices.Delete(x.givers, place, place+1)
	x.queueGiver(giver)
}

// queueGivers makes the queue of all zones that may give, the one that will have the
// lowest load first.
func (x *exchange) queueGivers() {
	x.givers = x.givers[:0]
	for z := range x.zones {
		x.queueGiver(z)
	}
}

// queueGiver puts the zone into the queue if it may give.
func (x *exchange) queueGiver(z int) {
	if !x.mayGive(z) {
		return
	}
	giver := queued{z, load(x.zones[z].Capacity, x.size[z]-1)}
	place, _ := slices.BinarySearchFunc(x.givers, giver, queued.compare)
	x.givers = slices.Insert(x.givers, place, giver)
}

// queueReceivers makes the queue of all zones, the one with the highest load first.
func (x *exchange) queueReceivers() {
	x.receivers = x.receivers[:0]
	for z := range x.zones {
		x.receivers = append(x.receivers, queued{z, -load(x.zones[z].Capacity, x.size[z])})
	}
	slices.SortFunc(x.receivers, queued.compare)
}

// load returns the load of a group in the unit of the capacity. It uses one division, so that equal
// loads compare as equal.
func load(capacity float64, members int) float64 {
	if capacity == 0 {
		return 0
	}
	return capacity / float64(members)
}

// write adds the groups to the plan.
func (x *exchange) write(plan *builder) {
	n := len(x.zones)
	for group := range x.size {
		for home, count := range x.members[group*n : (group+1)*n] {
			plan.member(home, count)
		}
		for z, consumed := range x.consumes {
			if consumed == group {
				plan.consumer(z, 1)
			}
		}
		plan.close()
	}
}

// firstConsumer returns the name of the first zone with traffic that consumes the group.
func (x *exchange) firstConsumer(group int) string {
	for z, consumed := range x.consumes {
		if consumed == group && x.shares[z] > 0 {
			return x.zones[z].Name
		}
	}
	return ""
}

// overloaded reports whether the load of a group is at or above the limit. A group without traffic
// is never overloaded.
func overloaded(expected float64, members int, limit float64) bool {
	return expected > 0 && expected >= limit*float64(members)-tolerance
}

// overload returns the load of the endpoints above the even share.
func overload(expected float64, members int) float64 {
	if members == 0 {
		return math.Inf(1)
	}
	return expected/float64(members) - 1
}

// queued is a zone in a queue. The lowest rank comes first; ties go by name.
type queued struct {
	zone int
	rank float64
}

func (q queued) compare(other queued) int {
	return cmp.Or(cmp.Compare(q.rank, other.rank), cmp.Compare(q.zone, other.zone))
}
