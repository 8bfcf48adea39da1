package spread

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// Change is a deletion cost to write.
type Change struct {
	Pod  string
	Cost int32
}

// Plan has the costs to write.
type Plan struct {
	// Changes are in the order in which the pods are deleted.
	Changes []Change
	// Crowded has ReplicaSets whose costs stay unchanged, because the costs of other owners leave no room between negative and other costs.
	Crowded []string
}

const (
	// withheld is above the costs of pods whose domain has no allowance.
	withheld = 1_000_000
	// step is the granularity by which costs move away from those of other owners, so that they do not move for each new pod.
	step = 1000
)

// NewPlan plans the costs of the pods of a Deployment. It changes a cost only to correct the order, and never a cost of another owner.
func NewPlan(pods []Pod) Plan {
	var plan Plan
	sets := map[string][]*Pod{}
	for i := range pods {
		sets[pods[i].Set] = append(sets[pods[i].Set], &pods[i])
	}
	for _, set := range slices.Sorted(maps.Keys(sets)) {
		below := newOccupancy()
		for i := range pods {
			if pods[i].Set != set {
				below.add(&pods[i])
			}
		}
		changes, ok := planSet(sets[set], below, roomFor(len(pods)))
		if !ok {
			plan.Crowded = append(plan.Crowded, set)
		}
		plan.Changes = append(plan.Changes, changes...)
	}
	return plan
}

// planSet plans the costs of the pods of a ReplicaSet. The pods of other ReplicaSets lie below. It returns false without room.
func planSet(own []*Pod, below occupancy, room int64) ([]Change, bool) {
	tops, ok := topsOf(own, room)
	if !ok {
		return nil, false
	}
	classes := map[class][]*Pod{}
	for _, p := range own {
		classes[classOf(p)] = append(classes[classOf(p)], p)
	}
	var changes []Change
	// The pods that are deleted last have the lowest levels.
	for _, c := range slices.SortedFunc(maps.Keys(classes), func(a, b class) int { return b.compare(a) }) {
		if !c.assigned {
			continue // they have no node
		}
		parts := divide(classes[c])
		alone := len(parts.free) == len(classes[c])
		for _, part := range []struct {
			pods  []*Pod
			top   int32
			fixed bool
		}{{pods: parts.withheld, top: tops.withheld}, {pods: parts.kept, fixed: true}, {pods: parts.free, top: tops.free}, {pods: parts.first, fixed: true}} {
			if !part.fixed && (!alone || !isRight(part.pods, below)) {
				changes = append(changes, layout(part.pods, below, part.top)...)
			}
			for _, p := range part.pods {
				below.add(p)
			}
		}
	}
	slices.Reverse(changes)
	return changes, true
}

// parts are the pods of a class, in the order of deletion.
type parts struct {
	first    []*Pod // with negative costs of other owners
	free     []*Pod // planned
	kept     []*Pod // with other costs of other owners
	withheld []*Pod // of domains without allowance
}

func divide(pods []*Pod) parts {
	var d parts
	for _, p := range pods {
		switch {
		case p.Foreign && p.Cost < 0:
			d.first = append(d.first, p)
		case p.Foreign:
			d.kept = append(d.kept, p)
		case p.Blocked:
			d.withheld = append(d.withheld, p)
		default:
			d.free = append(d.free, p)
		}
	}
	if len(d.free)+len(d.kept) == 0 {
		d.free, d.withheld = d.withheld, nil // no other pods go before them
	}
	return d
}

// tops has the numbers from which levels are subtracted.
type tops struct{ free, withheld int32 }

// roomFor returns the range of costs that the levels of a number of pods need.
func roomFor(pods int) int64 { return (int64(pods)/step + 1) * step }

// topsOf finds room between the costs of other owners.
func topsOf(own []*Pod, room int64) (tops, bool) {
	first, kept, last := int64(math.MinInt32), int64(math.MaxInt32), int64(math.MinInt32)
	for _, p := range own {
		if !p.Foreign {
			continue
		}
		cost := int64(p.Cost)
		if cost < 0 {
			first = max(first, cost)
		} else {
			kept, last = min(kept, cost), max(last, cost)
		}
	}
	free := int64(0)
	if first >= -room {
		free = first + 1 + room
	}
	above := max(withheld, free+room, last+1+room)
	if free > kept || above > math.MaxInt32 {
		return tops{}, false
	}
	return tops{int32(free), int32(above)}, true
}

// isRight reports whether the present costs alone put the pods in the right order.
func isRight(pods []*Pod, below occupancy) bool {
	now, domains := newOccupancy(), map[string]bool{}
	for _, p := range pods {
		domains[p.Domain] = true
		now.domains[p.Domain], now.nodes[p.Node] = below.domains[p.Domain], below.nodes[p.Node]
	}
	// From the last pod to the first.
	sorted := slices.SortedFunc(slices.Values(pods), func(a, b *Pod) int { return cmp.Compare(b.Cost, a.Cost) })
	tiers := map[string]int{}
	level, last, bound := math.MinInt, int64(math.MaxInt64), int64(math.MaxInt64)
	for _, p := range sorted {
		now.add(p)
		pod := now.nodes[p.Node]
		if len(domains) > 1 {
			if pod < tiers[p.Domain] {
				return false
			}
			tiers[p.Domain], pod = pod, now.domains[p.Domain]
		}
		if pod < level {
			return false
		}
		if pod > level {
			level, bound = pod, last // all pods of a higher level have lower costs
		}
		if last = int64(p.Cost); last >= bound {
			return false
		}
	}
	return true
}

// tier is a set of pods of a domain with equally many pods below them on their nodes.
type tier struct {
	domain string
	number int
}

// layout returns the costs to write so that the pods of a part have their levels, the pods that are deleted last first. Within a domain,
// the second pods of nodes lie above the first ones, and so on. Any pod of a node can be in any of its tiers, and any pod of a tier
// can have any of its levels, so pods keep their costs if possible.
func layout(pods []*Pod, below occupancy, top int32) []Change {
	// The remaining tiers of each node and levels of each tier, in ascending order.
	tiers, levels, sizes := map[string][]int{}, map[tier][]int{}, map[tier]int{}
	for _, p := range pods {
		number := below.nodes[p.Node] + len(tiers[p.Node]) + 1
		tiers[p.Node] = append(tiers[p.Node], number)
		sizes[tier{p.Domain, number}]++
	}
	last := maps.Clone(below.domains)
	for _, key := range slices.SortedFunc(maps.Keys(sizes), func(a, b tier) int {
		return cmp.Or(cmp.Compare(a.domain, b.domain), cmp.Compare(a.number, b.number))
	}) {
		for range sizes[key] {
			last[key.domain]++
			levels[key] = append(levels[key], last[key.domain])
		}
	}
	given := map[*Pod]int{}
	// A pod with a lower cost would have gone sooner.
	sorted := slices.SortedFunc(slices.Values(pods), func(a, b *Pod) int { return cmp.Or(cmp.Compare(a.Cost, b.Cost), cmp.Compare(a.Name, b.Name)) })
	for _, p := range sorted {
		level := int(top) - int(p.Cost)
		for i, number := range tiers[p.Node] {
			key := tier{p.Domain, number}
			if at, found := slices.BinarySearch(levels[key], level); found {
				given[p], levels[key], tiers[p.Node] = level, slices.Delete(levels[key], at, at+1), slices.Delete(tiers[p.Node], i, i+1)
				break
			}
		}
	}
	for _, p := range sorted {
		if _, kept := given[p]; kept {
			continue
		}
		number := tiers[p.Node][len(tiers[p.Node])-1]
		key := tier{p.Domain, number}
		level := levels[key][len(levels[key])-1]
		given[p], levels[key], tiers[p.Node] = level, levels[key][:len(levels[key])-1], tiers[p.Node][:len(tiers[p.Node])-1]
	}
	var changes []Change
	for _, p := range slices.SortedFunc(slices.Values(pods), func(a, b *Pod) int {
		return cmp.Or(cmp.Compare(given[a], given[b]), cmp.Compare(a.Name, b.Name))
	}) {
		if cost := top - int32(given[p]); cost != p.Cost {
			changes = append(changes, Change{p.Name, cost})
		}
	}
	return changes
}
