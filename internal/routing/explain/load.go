package explain

import (
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/plaintext"
)

// loads are the loads of a plan's endpoints by group and home zone. They are ranges, because nodes that prefer their own
// endpoints make them differ.
type loads map[loadKey]loadRange

type loadKey struct{ group, home int }

type loadRange struct {
	least, most float64
	found       bool
}

func (r loadRange) with(other loadRange) loadRange {
	switch {
	case !other.found:
		return r
	case !r.found:
		return other
	}
	return loadRange{min(r.least, other.least), max(r.most, other.most), true}
}

// text returns a form like "100.0" or "50.0 to 150.0".
func (r loadRange) text() string {
	low, high := plaintext.Fixed(100*r.least, 1), plaintext.Fixed(100*r.most, 1)
	switch {
	case !r.found:
		return "-"
	case low == high:
		return low
	}
	return low + " to " + high
}

func loadsOf(region allocate.Region, o Option) loads {
	found := loads{}
	note := func(key loadKey, load float64) {
		found[key] = found[key].with(loadRange{load, load, true})
	}
	if o.Nodes == nil {
		byGroup := new(allocate.Meter).Loads(o.Plan, region.Shares(o.Plan.Zones))
		for i, g := range o.Plan.Groups {
			for _, m := range g.Members {
				note(loadKey{i, m.Zone}, byGroup[i])
			}
		}
		return found
	}
	groups, homes := map[allocate.ConsumerSet]int{}, map[string]int{}
	for i := range o.Plan.Groups {
		groups[o.Plan.ConsumerSet(i)] = i
	}
	for z, name := range o.Plan.Zones {
		homes[name] = z
	}
	for j, load := range o.Nodes.Loads {
		note(loadKey{groups[o.Endpoints[j].Assigned], homes[o.Endpoints[j].Zone]}, load)
	}
	return found
}

// ofHome returns the load of the endpoints in the zone.
func (l loads) ofHome(zone int) loadRange {
	return l.of(func(key loadKey) bool { return key.home == zone })
}

func (l loads) ofGroup(group int) loadRange {
	return l.of(func(key loadKey) bool { return key.group == group })
}

func (l loads) of(has func(loadKey) bool) loadRange {
	var all loadRange
	for key, load := range l {
		if has(key) {
			all = all.with(load)
		}
	}
	return all
}

// MostLoad returns the load of the busiest endpoint of a group of the option's plan.
func MostLoad(region allocate.Region, o Option, group int) float64 {
	return loadsOf(region, o).ofGroup(group).most
}
