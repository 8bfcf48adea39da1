package allocate

// transport sends endpoints from home zones to groups until all supply is sent or no demand is left. It maximises first
// the worth of the sent endpoints, and second the number of endpoints that stay where they are. Rows of its matrices
// are homes, columns are groups.
type transport struct {
	homes, groups  int
	supply, demand []int
	// worth is the gain of an endpoint in a cell. Any number of kept endpoints must be worth less than a difference of
	// it.
	worth []int
	keep  []int // endpoints that are already there
	sent  []int // the solution
	// gain is the gain of the best way to a node, from its predecessor on that way. Nodes are
	// homes, then groups.
	gain, from []int
}

// forbidden is the worth of a cell that stays empty as long as all supply can be sent without it.
const forbidden = -1 << 40

// clear starts a problem of this size.
func (t *transport) clear(homes, groups int) {
	t.homes, t.groups = homes, groups
	t.supply, t.demand = grow(t.supply, homes), grow(t.demand, groups)
	t.worth = grow(t.worth, homes*groups)
	t.keep = grow(t.keep, homes*groups)
	t.sent = grow(t.sent, homes*groups)
	t.gain, t.from = grow(t.gain, homes+groups), grow(t.from, homes+groups)
}

// stay leaves as many endpoints as it can where they are. That is a good start where all allowed cells are worth the
// same.
func (t *transport) stay() {
	for h := range t.homes {
		for g := range t.groups {
			c := h*t.groups + g
			if t.worth[c] == forbidden {
				continue
			}
			amount := min(t.keep[c], t.supply[h], t.demand[g])
			t.sent[c] += amount
			t.supply[h] -= amount
			t.demand[g] -= amount
		}
	}
}

// solve sends endpoints by the way that gains the most, until all are sent or no demand is left.
func (t *transport) solve() {
	for {
		target := t.search()
		if target < 0 {
			return
		}
		t.augment(target)
	}
}

// unreached is the gain of a node that no way reaches.
const unreached = -1 << 62

// search finds the best ways from homes that have endpoints left. It returns the group to send to,
// or -1 if all endpoints are sent.
func (t *transport) search() int {
	for v := range t.gain {
		t.gain[v], t.from[v] = unreached, -1
	}
	for h, n := range t.supply {
		if n > 0 {
			t.gain[h] = 0
		}
	}
	for changed := true; changed; {
		changed = false
		for h := range t.homes {
			if t.gain[h] == unreached {
				continue
			}
			for g := range t.groups {
				if gain := t.gain[h] + t.more(h*t.groups+g); gain > t.gain[t.homes+g] {
					t.gain[t.homes+g], t.from[t.homes+g], changed = gain, h, true
				}
			}
		}
		for g := range t.groups {
			for h := range t.homes {
				c := h*t.groups + g
				if t.sent[c] == 0 {
					continue
				}
				if gain := t.gain[t.homes+g] - t.less(c); gain > t.gain[h] {
					t.gain[h], t.from[h], changed = gain, t.homes+g, true
				}
			}
		}
	}
	target := -1
	for g, n := range t.demand {
		if v := t.homes + g; n > 0 && t.gain[v] > unreached && (target < 0 || t.gain[v] > t.gain[target]) {
			target = v
		}
	}
	return target
}

// more is the gain of one endpoint more in the cell, without the loss of one less.
func (t *transport) more(c int) int {
	if t.sent[c] < t.keep[c] {
		return t.worth[c] + 1
	}
	return t.worth[c]
}

func (t *transport) less(c int) int {
	if t.sent[c] <= t.keep[c] {
		return t.worth[c] + 1
	}
	return t.worth[c]
}

// augment sends as many endpoints to the target as have the same gain.
func (t *transport) augment(target int) {
	amount, v := t.demand[target-t.homes], target
	for ; t.from[v] >= 0; v = t.from[v] {
		u := t.from[v]
		if v >= t.homes {
			if c := u*t.groups + v - t.homes; t.sent[c] < t.keep[c] {
				amount = min(amount, t.keep[c]-t.sent[c])
			}
			continue
		}
		c := v*t.groups + u - t.homes
		if t.sent[c] > t.keep[c] {
			amount = min(amount, t.sent[c]-t.keep[c])
		} else {
			amount = min(amount, t.sent[c])
		}
	}
	amount = min(amount, t.supply[v])
	t.supply[v] -= amount
	t.demand[target-t.homes] -= amount
	for v = target; t.from[v] >= 0; v = t.from[v] {
		u := t.from[v]
		if v >= t.homes {
			t.sent[u*t.groups+v-t.homes] += amount
		} else {
			t.sent[v*t.groups+u-t.homes] -= amount
		}
	}
}

// kept is the number of endpoints that stay where they were.
func (t *transport) kept() int {
	sum := 0
	for c := range t.sent {
		sum += min(t.sent[c], t.keep[c])
	}
	return sum
}
