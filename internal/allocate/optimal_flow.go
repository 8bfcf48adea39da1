package allocate

import "math/bits"

// flow sends endpoints from home zones to groups of given sizes and consumers, such
// that as much traffic as possible stays in its zone and, second, as many endpoints
// as possible stay where the prior plan has them. Rows of its matrices are homes,
// columns are groups.
type flow struct {
	homes, groups  int
	supply, demand []int
	cells          []cell
	// worth is what an endpoint in the cell earns in traffic.
	worth []int
	keep  []int // endpoints of the prior plan
	sent  []int // the solution
	// gain is that of the best way to a node, from the node before. Nodes are
	// homes, then groups.
	gain, from []int
}

// clear begins a problem of so many homes and groups.
func (f *flow) clear(homes, groups int) {
	f.homes, f.groups = homes, groups
	f.supply, f.demand = grow(f.supply, homes), grow(f.demand, groups)
	f.worth = grow(f.worth, homes*groups)
	f.keep = grow(f.keep, homes*groups)
	f.sent = grow(f.sent, homes*groups)
	f.gain, f.from = grow(f.gain, homes+groups), grow(f.from, homes+groups)
}

// load states the problem. An endpoint at home earns its zone's load, but only the
// order of the loads matters, because of the structure that inZoneOverlapping tells
// of; so the ranks of the loads do, and sums of them are exact.
func (f *flow) load(p *Planner, cells []cell, traffic []int) {
	f.clear(len(p.zones), len(cells))
	f.cells = cells
	var load [coverZones]float64
	for i, z := range traffic {
		width := 0
		for g := range cells {
			if cells[g].mask>>i&1 != 0 {
				width += cells[g].count
			}
		}
		load[i] = p.expected[z] / float64(width)
	}
	for z := range p.zones {
		f.supply[z] = p.zones[z].Endpoints
	}
	for i, z := range traffic {
		rank := 1
		for j := range traffic {
			if load[j] < load[i]-tolerance {
				rank++
			}
		}
		for g := range cells {
			if cells[g].mask>>i&1 != 0 {
				// Any number of kept endpoints is worth less than a rank.
				f.worth[z*f.groups+g] = rank * (p.endpoints + 1)
			}
		}
	}
	for g := range cells {
		f.demand[g] = cells[g].count
	}
	for i := range p.prior.Groups {
		prior := &p.prior.Groups[i]
		mask := consumerMask(p, prior, traffic)
		for g := range cells {
			if cells[g].mask != mask {
				continue
			}
			for _, m := range prior.Members {
				f.keep[m.Zone*f.groups+g] += m.Endpoints
			}
		}
	}
}

// solve sends endpoints on the way that gains the most until all are sent, or there is no
// demand left.
func (f *flow) solve() {
	for {
		target := f.search()
		if target < 0 {
			return
		}
		f.augment(target)
	}
}

// unreached is the gain of a node that no way leads to.
const unreached = -1 << 62

// search finds the best ways from homes that have endpoints left. It returns the
// group to send to, or -1 if all endpoints are sent.
func (f *flow) search() int {
	for v := range f.gain {
		f.gain[v], f.from[v] = unreached, -1
	}
	for h, n := range f.supply {
		if n > 0 {
			f.gain[h] = 0
		}
	}
	for changed := true; changed; {
		changed = false
		for h := range f.homes {
			if f.gain[h] == unreached {
				continue
			}
			for g := range f.groups {
				if gain := f.gain[h] + f.more(h*f.groups+g); gain > f.gain[f.homes+g] {
					f.gain[f.homes+g], f.from[f.homes+g], changed = gain, h, true
				}
			}
		}
		for g := range f.groups {
			for h := range f.homes {
				c := h*f.groups + g
				if f.sent[c] == 0 {
					continue
				}
				if gain := f.gain[f.homes+g] - f.less(c); gain > f.gain[h] {
					f.gain[h], f.from[h], changed = gain, f.homes+g, true
				}
			}
		}
	}
	target := -1
	for g, n := range f.demand {
		if v := f.homes + g; n > 0 && f.gain[v] > unreached && (target < 0 || f.gain[v] > f.gain[target]) {
			target = v
		}
	}
	return target
}

// more is what one more endpoint in the cell gains, less what one less loses.
func (f *flow) more(c int) int {
	if f.sent[c] < f.keep[c] {
		return f.worth[c] + 1
	}
	return f.worth[c]
}

func (f *flow) less(c int) int {
	if f.sent[c] <= f.keep[c] {
		return f.worth[c] + 1
	}
	return f.worth[c]
}

// augment sends as many endpoints to the target as gain the same.
func (f *flow) augment(target int) {
	amount, v := f.demand[target-f.homes], target
	for ; f.from[v] >= 0; v = f.from[v] {
		u := f.from[v]
		if v >= f.homes {
			if c := u*f.groups + v - f.homes; f.sent[c] < f.keep[c] {
				amount = min(amount, f.keep[c]-f.sent[c])
			}
			continue
		}
		c := v*f.groups + u - f.homes
		if f.sent[c] > f.keep[c] {
			amount = min(amount, f.sent[c]-f.keep[c])
		} else {
			amount = min(amount, f.sent[c])
		}
	}
	amount = min(amount, f.supply[v])
	f.supply[v] -= amount
	f.demand[target-f.homes] -= amount
	for v = target; f.from[v] >= 0; v = f.from[v] {
		u := f.from[v]
		if v >= f.homes {
			f.sent[u*f.groups+v-f.homes] += amount
		} else {
			f.sent[v*f.groups+u-f.homes] -= amount
		}
	}
}

// kept is the number of endpoints that stay where they were.
func (f *flow) kept() int {
	sum := 0
	for c := range f.sent {
		sum += min(f.sent[c], f.keep[c])
	}
	return sum
}

// build makes the groups of the planner's plan.
func (f *flow) build(p *Planner, traffic []int) {
	for g := range f.cells {
		for h := range f.homes {
			p.plan.member(h, f.sent[h*f.groups+g])
		}
		if mask := f.cells[g].mask; bits.OnesCount32(mask) == len(traffic) {
			for z := range p.zones {
				p.plan.consumer(z, 1)
			}
		} else {
			for ; mask != 0; mask &= mask - 1 {
				p.plan.consumer(traffic[bits.TrailingZeros32(mask)], 1)
			}
		}
		p.plan.close()
	}
}
