package allocate

import "math"

// transport is the problem of sending endpoints from home zones to groups such
// that all supply and demand is met and as many as possible go where they were.
// Its matrices have a row for each home and a column for each group.
type transport struct {
	homes, groups  int
	supply, demand []int
	allowed        []bool
	keep           []int // endpoints that are there already
	flow           []int // the solution
}

func newTransport(homes, groups int) *transport {
	cells := homes * groups
	return &transport{
		homes: homes, groups: groups,
		supply: make([]int, homes), demand: make([]int, groups),
		allowed: make([]bool, cells), keep: make([]int, cells), flow: make([]int, cells),
	}
}

// solve finds the flow of least cost, where each endpoint that stays earns one. The
// problem must be feasible. What can stay at once does: no flow of that size costs
// less. The rest goes by the cheapest augmenting path after the other.
func (t *transport) solve() {
	t.stay()
	// Nodes are homes, then groups.
	cost := make([]int, t.homes+t.groups)
	from := make([]int, t.homes+t.groups)
	for {
		const unreached = math.MaxInt
		for v := range cost {
			cost[v], from[v] = unreached, -1
		}
		for h := range t.homes {
			if t.supply[h] > 0 {
				cost[h] = 0
			}
		}
		for changed := true; changed; {
			changed = false
			for h := range t.homes {
				for g := range t.groups {
					cell, to := h*t.groups+g, t.homes+g
					if !t.allowed[cell] {
						continue
					}
					if c := t.addCost(cell); cost[h] != unreached && cost[h]+c < cost[to] {
						cost[to], from[to], changed = cost[h]+c, h, true
					}
					if c := t.removeCost(cell); t.flow[cell] > 0 && cost[to] != unreached && cost[to]+c < cost[h] {
						cost[h], from[h], changed = cost[to]+c, to, true
					}
				}
			}
		}
		target := -1
		for g := range t.groups {
			if t.demand[g] > 0 && cost[t.homes+g] != unreached && (target < 0 || cost[t.homes+g] < cost[target]) {
				target = t.homes + g
			}
		}
		if target < 0 {
			return
		}
		t.augment(target, from)
	}
}

// stay sends as much as it can straight to where it was.
func (t *transport) stay() {
	for h := range t.homes {
		for g := range t.groups {
			cell := h*t.groups + g
			if !t.allowed[cell] {
				continue
			}
			amount := min(t.keep[cell], t.supply[h], t.demand[g])
			t.flow[cell] += amount
			t.supply[h] -= amount
			t.demand[g] -= amount
		}
	}
}

// augment sends as much as the path to target bears at its cost.
func (t *transport) augment(target int, from []int) {
	amount, v := t.demand[target-t.homes], target
	for from[v] >= 0 {
		u := from[v]
		if v >= t.homes {
			if cell := u*t.groups + v - t.homes; t.flow[cell] < t.keep[cell] {
				amount = min(amount, t.keep[cell]-t.flow[cell])
			}
		} else {
			cell := v*t.groups + u - t.homes
			if t.flow[cell] > t.keep[cell] {
				amount = min(amount, t.flow[cell]-t.keep[cell])
			} else {
				amount = min(amount, t.flow[cell])
			}
		}
		v = u
	}
	amount = min(amount, t.supply[v])
	t.supply[v] -= amount
	t.demand[target-t.homes] -= amount
	for v = target; from[v] >= 0; v = from[v] {
		if u := from[v]; v >= t.homes {
			t.flow[u*t.groups+v-t.homes] += amount
		} else {
			t.flow[v*t.groups+u-t.homes] -= amount
		}
	}
}

// addCost is what one more endpoint in the cell costs.
func (t *transport) addCost(cell int) int {
	if t.flow[cell] < t.keep[cell] {
		return -1
	}
	return 0
}

// removeCost is what one less endpoint in the cell costs.
func (t *transport) removeCost(cell int) int {
	if t.flow[cell] <= t.keep[cell] {
		return 1
	}
	return 0
}
