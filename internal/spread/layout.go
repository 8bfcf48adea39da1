package spread

import (
	"cmp"
	"maps"
	"slices"
)

// layout gives the pods of a part their levels. Within a domain, pods that are the second of
// their node lie above those that are the first, and so on: these are its tiers. Which of the pods of a node
// is in which tier, and which level of the tier it has, is free, and as much as possible stays as it is.
type layout struct {
	pods []*Pod
	top  int32
	// tiers have the levels of each tier, nodes the tiers of the pods of each node.
	tiers  map[tier]span
	nodes  map[string]span
	levels map[*Pod]int
}

type tier struct {
	domain string
	number int
}

// span is from first on, so many.
type span struct{ first, count int }

func (s span) has(n int) bool { return n >= s.first && n < s.first+s.count }

func newLayout(pods []*Pod, below occupancy, top int32) *layout {
	l := &layout{
		pods: slices.SortedFunc(slices.Values(pods), func(a, b *Pod) int {
			return cmp.Or(cmp.Compare(a.Cost, b.Cost), cmp.Compare(a.Name, b.Name))
		}),
		top: top, tiers: map[tier]span{}, nodes: map[string]span{}, levels: map[*Pod]int{},
	}
	for _, p := range pods {
		tiers, found := l.nodes[p.Node]
		if !found {
			tiers.first = below.nodes[p.Node] + 1
		}
		key := tier{p.Domain, tiers.first + tiers.count}
		tiers.count++
		l.nodes[p.Node] = tiers
		levels := l.tiers[key]
		levels.count++
		l.tiers[key] = levels
	}
	next := map[string]int{}
	for _, key := range slices.SortedFunc(maps.Keys(l.tiers), func(a, b tier) int {
		return cmp.Or(cmp.Compare(a.domain, b.domain), cmp.Compare(a.number, b.number))
	}) {
		levels := l.tiers[key]
		levels.first = below.domains[key.domain] + next[key.domain] + 1
		next[key.domain] += levels.count
		l.tiers[key] = levels
	}
	l.assign()
	return l
}

// assign has pods keep their costs where they can, and gives the rest what is left.
func (l *layout) assign() {
	type place struct {
		node   string
		number int
	}
	type slot struct {
		domain string
		level  int
	}
	placed, used := map[place]bool{}, map[slot]bool{}
	tierOf := map[*Pod]int{}
	take := func(p *Pod, number, level int) {
		placed[place{p.Node, number}], used[slot{p.Domain, level}] = true, true
		l.levels[p] = level
	}
	for _, p := range l.pods {
		level := int(l.top) - int(p.Cost)
		number, found := l.numberOf(p, level)
		if found && !used[slot{p.Domain, level}] && !placed[place{p.Node, number}] {
			take(p, number, level)
		}
	}
	// The lower the cost that a pod has, the sooner it was to go.
	for _, p := range l.pods {
		if _, kept := l.levels[p]; kept {
			continue
		}
		tiers := l.nodes[p.Node]
		for number := tiers.first + tiers.count - 1; number >= tiers.first; number-- {
			if !placed[place{p.Node, number}] {
				placed[place{p.Node, number}], tierOf[p] = true, number
				break
			}
		}
	}
	for _, p := range l.pods {
		number, left := tierOf[p]
		if !left {
			continue
		}
		levels := l.tiers[tier{p.Domain, number}]
		for level := levels.first + levels.count - 1; level >= levels.first; level-- {
			if !used[slot{p.Domain, level}] {
				take(p, number, level)
				break
			}
		}
	}
}

// numberOf is the tier of a level, if the pod's node has a pod in it.
func (l *layout) numberOf(p *Pod, level int) (int, bool) {
	tiers := l.nodes[p.Node]
	for number := tiers.first; tiers.has(number); number++ {
		if l.tiers[tier{p.Domain, number}].has(level) {
			return number, true
		}
	}
	return 0, false
}

// changes are the costs that are not what they should be, of the pods that go last first.
func (l *layout) changes() []Change {
	var changes []Change
	for _, p := range slices.SortedFunc(slices.Values(l.pods), func(a, b *Pod) int {
		return cmp.Or(cmp.Compare(l.levels[a], l.levels[b]), cmp.Compare(a.Name, b.Name))
	}) {
		if cost := l.top - int32(l.levels[p]); cost != p.Cost {
			changes = append(changes, Change{p.Name, cost})
		}
	}
	return changes
}
