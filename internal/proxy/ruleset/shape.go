package ruleset

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// shape describes how the slots of a pool share traffic, in classes of endpoints with equal shares, the heaviest first. It is
// empty for a pool without endpoints.
type shape []class

// class counts endpoints of one weight. weight is the weight of each endpoint, and after share the share of the class.
type class struct {
	weight, count uint32
}

// mostClasses bounds the classes of a pool: each is a rule. The nearest weights are merged.
const mostClasses = 8

// parts is the resolution of shares. Rounding lets pools of similar weights share a chain, which matters because the kernel
// checks each chain whenever a verdict changes.
const parts = 1000

func evenShape(count uint32) shape {
	if count == 0 {
		return nil
	}
	return shape{{weight: parts, count: count}}
}

type weighted struct {
	target netip.AddrPort
	weight uint32
}

// weigh gives the targets their weights, nil for equal ones.
func weigh(targets []netip.AddrPort, weights []uint32) []weighted {
	all := make([]weighted, len(targets))
	for i, target := range targets {
		all[i] = weighted{target, 1}
		if weights != nil {
			all[i].weight = weights[i]
		}
	}
	return all
}

// arrangeByWeight sorts endpoints by class and address, and returns the shape.
func arrangeByWeight(all []weighted) ([]netip.AddrPort, shape) {
	slices.SortFunc(all, func(a, b weighted) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), a.target.Compare(b.target))
	})
	targets := make([]netip.AddrPort, len(all))
	var made shape
	for i, one := range all {
		targets[i] = one.target
		if last := len(made) - 1; last >= 0 && made[last].weight == one.weight {
			made[last].count++
		} else {
			made = append(made, class{weight: one.weight, count: 1})
		}
	}
	made = made.merge(mostClasses).share()
	// A merged class has the endpoints of several weights.
	for offset, rest := 0, made; len(rest) > 0; rest = rest[1:] {
		end := offset + int(rest[0].count)
		slices.SortFunc(targets[offset:end], netip.AddrPort.Compare)
		offset = end
	}
	return targets, made
}

// Shares returns the share of traffic that the rules give to each endpoint of Cluster.
func (sp *ServicePort) Shares() []float64 {
	targets, made := arrangeByWeight(weigh(sp.Cluster, sp.Weights))
	slot := 0
	share := make(map[netip.AddrPort]float64, len(targets))
	for _, c := range made {
		for range c.count {
			share[targets[slot]] = float64(c.weight) / parts / float64(c.count)
			slot++
		}
	}
	shares := make([]float64, len(sp.Cluster))
	for i, target := range sp.Cluster {
		shares[i] = share[target]
	}
	return shares
}

// merge joins neighbouring classes until there are few enough. Each time it joins the two that move the least traffic.
func (s shape) merge(most int) shape {
	for len(s) > most {
		best := 0
		for i := range s[:len(s)-1] {
			if s.moved(i) < s.moved(best) {
				best = i
			}
		}
		a, b := s[best], s[best+1]
		count := a.count + b.count
		mean := (a.weight*a.count + b.weight*b.count + count/2) / count
		s = slices.Replace(s, best, best+2, class{weight: max(1, mean), count: count})
	}
	return s
}

func (s shape) moved(i int) uint64 {
	a, b := s[i], s[i+1]
	return uint64(a.weight-b.weight) * uint64(a.count) * uint64(b.count) / uint64(a.count+b.count)
}

// share replaces weights by shares of all traffic, rounded, and at least one.
func (s shape) share() shape {
	var total uint64
	for _, c := range s {
		total += uint64(c.weight) * uint64(c.count)
	}
	left := uint64(parts)
	// The smallest classes come first: if they are rounded up to one, the others share the remainder.
	order := make([]int, len(s))
	weighs := make([]uint64, len(s))
	for i, c := range s {
		order[i], weighs[i] = i, uint64(c.weight)*uint64(c.count)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(weighs[a], weighs[b]) })
	for _, i := range order {
		given := max(1, (2*left*weighs[i]+total)/(2*total))
		s[i].weight = uint32(given)
		left -= given
		total -= weighs[i]
	}
	return s
}

func (s shape) slots() uint32 {
	var n uint32
	for _, c := range s {
		n += c.count
	}
	return n
}

// draws returns the names of the chains that draw a slot of each class.
func (s shape) draws(pool int) []string {
	names := make([]string, len(s))
	var offset uint32
	for i, c := range s {
		names[i] = pickName(pool, c.count, offset)
		offset += c.count
	}
	return names
}

// choose returns rules that lead to the chain of a class, each by its share of the remaining traffic.
func (s shape) choose(pool int) [][]Statement {
	left := uint32(parts)
	var rules [][]Statement
	for i, name := range s.draws(pool) {
		if i == len(s)-1 {
			return append(rules, []Statement{leadTo(name)})
		}
		rules = append(rules, []Statement{Draw{Share: s[i].weight, Of: left}, leadTo(name)})
		left -= s[i].weight
	}
	return rules
}

// String returns the shape for names of chains: the number of slots if all are equal, or count and share of each class, as
// in 7x700.3x300.
func (s shape) String() string {
	switch len(s) {
	case 0:
		return "0"
	case 1:
		return strconv.FormatUint(uint64(s[0].count), 10)
	}
	var b strings.Builder
	for i, c := range s {
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(strconv.FormatUint(uint64(c.count), 10))
		b.WriteByte('x')
		b.WriteString(strconv.FormatUint(uint64(c.weight), 10))
	}
	return b.String()
}

// mostSlots bounds the slots of a pool in a parsed name.
const mostSlots = 1 << 24

// parseShape reads the String of a shape.
func parseShape(text string) (shape, bool) {
	var read shape
	if !strings.Contains(text, "x") {
		read = evenShape(parseCount(text))
		return read, read.String() == text && read.slots() <= mostSlots
	}
	var all uint64
	for one := range strings.SplitSeq(text, ".") {
		count, weight, _ := strings.Cut(one, "x")
		c := class{weight: parseCount(weight), count: parseCount(count)}
		if c.weight == 0 || c.count == 0 || c.count > mostSlots {
			return nil, false
		}
		all += uint64(c.weight)
		read = append(read, c)
	}
	return read, len(read) > 1 && len(read) <= mostClasses && all == parts && read.String() == text
}
