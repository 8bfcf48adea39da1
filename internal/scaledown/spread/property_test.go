package spread

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var now = time.Unix(1_000_000, 0)

// drawPod draws a pod in any domain and state.
func drawPod(t *rapid.T, number, sets, domains int) Pod {
	p := Pod{
		Name: fmt.Sprintf("p%d", number), Set: fmt.Sprintf("s%d", rapid.IntRange(1, sets).Draw(t, "set")),
		Phase: Running, Ready: true,
		Cost: rapid.OneOf(rapid.Just(int32(0)), rapid.Int32Range(-6, 2), rapid.Just(int32(withheld-2))).Draw(t, "cost"),
		UID:  fmt.Sprintf("u%d", rapid.IntRange(1, 1000).Draw(t, "uid")), Created: now.Add(-time.Duration(rapid.IntRange(0, 100).Draw(t, "age")) * time.Second),
	}
	p.ReadySince = p.Created
	if rapid.IntRange(0, 9).Draw(t, "foreign") == 0 {
		p.Foreign, p.Cost = true, rapid.SampledFrom([]int32{math.MinInt32, -2000, -3, 0, 5, 3000, withheld - 2}).Draw(t, "foreign cost")
	}
	switch rapid.IntRange(0, 9).Draw(t, "state") {
	case 0:
		p.Phase, p.Ready = Pending, false
	case 1:
		p.Phase, p.Ready = Unknown, false
	case 2:
		p.Ready = false
	}
	if p.Phase != Pending || rapid.Bool().Draw(t, "assigned") {
		p.Domain = fmt.Sprintf("d%d", rapid.IntRange(1, domains).Draw(t, "domain"))
		p.Node = fmt.Sprintf("%s-n%d", p.Domain, rapid.IntRange(1, 3).Draw(t, "node"))
	}
	return p
}

func drawPods(t *rapid.T, most int) []Pod {
	domains, sets := rapid.IntRange(1, 4).Draw(t, "domains"), rapid.IntRange(1, 2).Draw(t, "sets")
	pods := make([]Pod, rapid.IntRange(0, most).Draw(t, "pods"))
	for i := range pods {
		pods[i] = drawPod(t, i, sets, domains)
	}
	blocked := map[string]bool{}
	for i := range domains {
		blocked[fmt.Sprintf("d%d", i+1)] = rapid.IntRange(0, 3).Draw(t, "blocked") == 0
	}
	for i := range pods {
		pods[i].Blocked = blocked[pods[i].Domain]
	}
	return pods
}

// write sets the costs of a plan.
func write(t interface{ Fatalf(string, ...any) }, pods []Pod, plan Plan) {
	for _, change := range plan.Changes {
		i := slices.IndexFunc(pods, func(p Pod) bool { return p.Name == change.Pod })
		if pods[i].Foreign || pods[i].Cost == change.Cost {
			t.Fatalf("cost %d is written to %+v", change.Cost, pods[i])
		}
		pods[i].Cost = change.Cost
	}
}

func occupied(pods []Pod) occupancy {
	o := newOccupancy()
	for i := range pods {
		o.add(&pods[i])
	}
	return o
}

// partOf ranks a pod within its class by the rules that precede the spread.
func partOf(p *Pod) int {
	switch {
	case p.Foreign && p.Cost < 0:
		return 0
	case p.Foreign:
		return 2
	case p.Blocked:
		return 3
	}
	return 1
}

// A ReplicaSet always deletes a pod of the fullest domain, and there of the fullest node, among the pods that rank equal otherwise.
func TestEachPodThatGoesIsOfTheFullestDomain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pods := drawPods(t, 16)
		plan := NewPlan(pods)
		write(t, pods, plan)
		if again := NewPlan(pods); len(again.Changes) > 0 {
			t.Fatalf("a second plan changes costs again: %v", again.Changes)
		}
		set := rapid.SampledFrom([]string{"s1", "s2"}).Draw(t, "removed from")
		if slices.Contains(plan.Crowded, set) {
			return
		}
		left := slices.Clone(pods)
		for _, gone := range Removed(pods, set, len(pods), now) {
			o := occupied(left)
			for i := range left {
				other := &left[i]
				if other.Set != set || gone.Node == "" || classOf(other) != classOf(&gone) {
					continue
				}
				part := partOf(&gone)
				if other := partOf(other); other < part {
					t.Fatalf("%s goes, of part %d before part %d", gone.Name, part, other)
				} else if other > part || gone.Foreign {
					continue
				}
				if o.domains[other.Domain] > o.domains[gone.Domain] {
					t.Fatalf("%s of %s goes, and %s has more pods: %v", gone.Name, gone.Domain, other.Domain, o.domains)
				}
				if other.Domain == gone.Domain && o.nodes[other.Node] > o.nodes[gone.Node] {
					t.Fatalf("%s of %s goes, and %s has more pods: %v", gone.Name, gone.Node, other.Node, o.nodes)
				}
			}
			left = slices.DeleteFunc(left, func(p Pod) bool { return p.Name == gone.Name })
		}
	})
}

// squares is smaller for a more even spread.
func squares(counts map[string]int) int {
	sum := 0
	for _, n := range counts {
		sum += n * n
	}
	return sum
}

// However many pods go, no other choice would leave a more even spread.
func TestEveryPrefixLeavesTheBestSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pods := drawPods(t, 10)
		for i := range pods {
			pods[i].Foreign, pods[i].Blocked = false, false
		}
		write(t, pods, NewPlan(pods))
		order := Removed(pods, "s1", len(pods), now)
		n := rapid.IntRange(0, len(order)).Draw(t, "removed")
		counts := occupied(pods).domains
		if n == 0 {
			return
		}
		after := maps.Clone(counts)
		for i := range order[:n] {
			if order[i].Node != "" {
				after[order[i].Domain]--
			}
		}
		// fixed counts the pods that must go. choice has those of the last class.
		last, fixed := classOf(&order[n-1]), 0
		var choice []Pod
		base := maps.Clone(counts)
		for i := range order {
			switch c := classOf(&order[i]).compare(last); {
			case c < 0:
				fixed++
				if order[i].Node != "" {
					base[order[i].Domain]--
				}
			case c == 0:
				choice = append(choice, order[i])
			}
		}
		if !last.assigned {
			return
		}
		for subset := range 1 << len(choice) {
			other, size := maps.Clone(base), 0
			for i := range choice {
				if subset>>i&1 == 1 {
					other[choice[i].Domain]--
					size++
				}
			}
			if size == n-fixed && squares(other) < squares(after) {
				t.Fatalf("%d of %v go, %v are left; it could be %v", n, counts, after, other)
			}
		}
	})
}

// For each pod that comes or goes, few costs are written: one for it, one per higher tier of its domain, and those of the other
// ReplicaSet's pods in the domain.
func TestFewCostsAreWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.IntRange(1, 30).Draw(t, "nodes of a domain")
		sets := rapid.IntRange(1, 2).Draw(t, "sets")
		var pods []Pod
		written, allowed, next := 0, 0, 0
		allow := func(changed Pod) {
			allowed += tiersOf(pods, changed.Domain)
			for i := range pods {
				if pods[i].Domain == changed.Domain && pods[i].Set != changed.Set {
					allowed++
				}
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(pods) > 0 && rapid.IntRange(0, 2).Draw(t, "goes") == 0 {
				i := rapid.IntRange(0, len(pods)-1).Draw(t, "which")
				allow(pods[i])
				pods = slices.Delete(pods, i, i+1)
			} else {
				domain := fmt.Sprintf("d%d", rapid.IntRange(1, 3).Draw(t, "domain"))
				pods = append(pods, Pod{
					Name: fmt.Sprintf("p%d", next), Set: fmt.Sprintf("s%d", rapid.IntRange(1, sets).Draw(t, "set")),
					Domain: domain, Phase: Running, Ready: true,
					Node: fmt.Sprintf("%s-n%d", domain, rapid.IntRange(1, nodes).Draw(t, "node")),
				})
				next++
				allow(pods[len(pods)-1])
			}
			plan := NewPlan(pods)
			written += len(plan.Changes)
			write(t, pods, plan)
			if written > allowed {
				t.Fatalf("%d costs are written, %d are allowed", written, allowed)
			}
		}
	})
}

// tiersOf returns how many pods the fullest node of a domain has.
func tiersOf(pods []Pod, domain string) int {
	most := 0
	for node, n := range occupied(pods).nodes {
		if len(node) > len(domain) && node[:len(domain)] == domain {
			most = max(most, n)
		}
	}
	return most
}

// If new pods land in the emptiest domain, a repair ends with an even spread. It evicts each misplaced pod once.
func TestRepairsEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		domains := []string{"d1", "d2", "d3"}[:rapid.IntRange(1, 3).Draw(t, "domains")]
		pods := make([]Pod, rapid.IntRange(0, 20).Draw(t, "pods"))
		for i := range pods {
			d := rapid.SampledFrom(domains).Draw(t, "domain")
			pods[i] = Pod{Name: fmt.Sprintf("p%d", i), Set: "s", Domain: d, Node: d + "-n", Phase: Running, Ready: true}
		}
		for misplaced := Misplaced(pods, domains); ; misplaced-- {
			if got := Misplaced(pods, domains); got != misplaced {
				t.Fatalf("%d pods are misplaced, want %d", got, misplaced)
			}
			evict, found := Repair(pods, domains, now)
			if !found {
				if misplaced != 0 {
					t.Fatalf("%d pods are misplaced, and none is moved", misplaced)
				}
				return
			}
			counts := occupied(pods).domains
			emptiest := slices.MinFunc(domains, func(a, b string) int { return counts[a] - counts[b] })
			i := slices.IndexFunc(pods, func(p Pod) bool { return p.Name == evict.Name })
			pods[i].Domain, pods[i].Node = emptiest, emptiest+"-n"
		}
	})
}

// difference returns how many more pods the fullest domain has than the emptiest.
func difference(counts map[string]int, domains []Place) int {
	fullest, emptiest := 0, 0
	for i, domain := range domains {
		n := counts[domain.Name]
		if fullest = max(fullest, n); i == 0 {
			emptiest = n
		}
		emptiest = min(emptiest, n)
	}
	return fullest - emptiest
}

func drawPlaces(t *rapid.T) []Place {
	places := make([]Place, rapid.IntRange(1, 6).Draw(t, "domains"))
	for i := range places {
		places[i] = Place{Name: fmt.Sprintf("d%d", i), Usable: true}
	}
	return places
}

// The pods of a StatefulSet stay evenly spread at any scale, whatever its first ordinal is.
func TestEveryNumberOfOrdinalsIsSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		places, counts := drawPlaces(t), map[string]int{}
		start := rapid.IntRange(0, 20).Draw(t, "start")
		for i := range rapid.IntRange(0, 40).Draw(t, "ordinals") {
			name, ok := Assign(start+i, places)
			if !ok {
				t.Fatalf("ordinal %d has no domain of %v", start+i, places)
			}
			if counts[name]++; difference(counts, places) > 1 {
				t.Fatalf("with ordinals %d to %d there are %v", start, start+i, counts)
			}
		}
	})
}

// While domains are lost, only their ordinals move. All ordinals stay evenly spread over the other domains.
func TestOnlyOrdinalsOfLostDomainsMove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := drawPlaces(t)
		after, lost, left := make([]Place, len(before)), map[string]bool{}, []Place(nil)
		for i, place := range before {
			place.Usable = !rapid.Bool().Draw(t, "lost")
			if after[i] = place; place.Usable {
				left = append(left, place)
			} else {
				lost[place.Name] = true
			}
		}
		counts := map[string]int{}
		for ordinal := range 40 {
			was, _ := Assign(ordinal, before)
			now, ok := Assign(ordinal, after)
			switch {
			case ok != (len(left) > 0):
				t.Fatalf("ordinal %d of %v: %t", ordinal, after, ok)
			case !ok:
				continue
			case lost[now]:
				t.Fatalf("ordinal %d is in %s, which is lost", ordinal, now)
			case now != was && !lost[was]:
				t.Fatalf("ordinal %d moves from %s to %s, and %v are lost", ordinal, was, now, lost)
			}
			if counts[now]++; difference(counts, left) > 1 {
				t.Fatalf("with ordinal %d there are %v, and %v are lost", ordinal, counts, lost)
			}
		}
	})
}

func TestNoDomain(t *testing.T) {
	for _, test := range []struct {
		ordinal int
		domains []Place
	}{{0, nil}, {3, []Place{{Name: "a"}, {Name: "b"}}}, {-1, []Place{{Name: "a", Usable: true}}}} {
		if name, ok := Assign(test.ordinal, test.domains); ok || name != "" {
			t.Errorf("ordinal %d of %v is in %q", test.ordinal, test.domains, name)
		}
	}
}
