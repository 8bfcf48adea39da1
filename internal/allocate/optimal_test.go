package allocate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// optimalRegion returns a region with the zones a, b, c and so on.
func optimalRegion(capacity, endpoints []int) Region {
	var r Region
	for i := range capacity {
		r.Zones = append(r.Zones, Zone{Name: string(rune('a' + i)), Capacity: float64(capacity[i]), Endpoints: endpoints[i]})
	}
	return r
}

func optimalPlan(t *testing.T, p *Planner, r Region, threshold float64) (Plan, Figures) {
	t.Helper()
	bound := &Bound{Algorithm: Optimal, OverloadThreshold: threshold}
	plan, outcome, err := p.Allocate(r, Intent{Bound: bound}, Previous{})
	if err != nil {
		t.Fatalf("allocating %v: %v", r, err)
	}
	return plan, outcome.Figures
}

// evenScore returns the part of the score that optimal maximises, from 0 to 0.85.
func evenScore(f Figures) float64 {
	return 0.45*f.InZone + 0.20*(1-f.Overload) + 0.20*(1-f.Deviation)
}

// families tries all families of consumer sets, with all sizes.
type families struct {
	expected []float64
	own      []int
	total    int
	limit    float64
	size     []int // by mask of consumers
	best     float64
}

func bestFamily(shares []float64, own []int, threshold float64) float64 {
	f := &families{own: own, limit: threshold - tolerance, size: make([]int, 1<<len(own)), best: math.Inf(-1)}
	for _, n := range own {
		f.total += n
	}
	for _, share := range shares {
		f.expected = append(f.expected, share*float64(f.total))
	}
	f.try(1, f.total)
	return f.best
}

func (f *families) try(mask, rest int) {
	if mask == len(f.size)-1 {
		f.size[mask] = rest
		f.rate()
		return
	}
	for n := 0; n <= rest; n++ {
		f.size[mask] = n
		f.try(mask+1, rest-n)
	}
	f.size[mask] = 0
}

func (f *families) rate() {
	width, load := make([]int, len(f.own)), make([]float64, len(f.own))
	most := 0.0
	for z := range f.own {
		for mask, n := range f.size {
			width[z] += n * (mask >> z & 1)
		}
		if f.expected[z] > 0 && width[z] == 0 {
			return
		}
		if f.expected[z] > 0 {
			load[z] = f.expected[z] / float64(width[z])
			most += load[z] * float64(min(f.own[z], width[z]))
		}
	}
	overload, deviation := 0.0, 0.0
	for mask, n := range f.size {
		if n == 0 {
			continue
		}
		sum := 0.0
		for z := range f.own {
			sum += load[z] * float64(mask>>z&1)
		}
		if sum == 0 {
			return // no zone with traffic consumes it
		}
		overload = max(overload, sum-1)
		deviation += math.Abs(sum-1) * float64(n)
	}
	even := 0.2*(1-overload) + 0.2*(1-deviation/float64(f.total))
	if overload >= f.limit || even+0.45*most/float64(f.total) <= f.best {
		return
	}
	f.best = max(f.best, even+0.45*f.inZone(load)/float64(f.total))
}

// inZone keeps endpoints at home one after the other, those of the zones with the greatest load
// first. It makes room by moving other endpoints between groups.
func (f *families) inZone(load []float64) float64 {
	zones := make([]int, len(load))
	at := make([][]int, len(load))
	for z := range zones {
		zones[z], at[z] = z, make([]int, len(f.size))
	}
	slices.SortFunc(zones, func(a, b int) int {
		if load[a] > load[b] {
			return -1
		}
		return 1
	})
	used := make([]int, len(f.size))
	var keep func(z int, seen []bool) bool
	keep = func(z int, seen []bool) bool {
		for mask := range f.size {
			if mask>>z&1 == 0 || seen[mask] || f.size[mask] == 0 {
				continue
			}
			seen[mask] = true
			if used[mask] < f.size[mask] {
				used[mask]++
				at[z][mask]++
				return true
			}
			for other := range at {
				if at[other][mask] > 0 && keep(other, seen) {
					at[other][mask]--
					at[z][mask]++
					return true
				}
			}
		}
		return false
	}
	sum := 0.0
	for _, z := range zones {
		for n := 0; n < f.own[z] && keep(z, make([]bool, len(f.size))); n++ {
			sum += load[z]
		}
	}
	return sum
}

// checkBest compares the plan with the best of all families.
func checkBest(t *testing.T, p *Planner, capacity, endpoints []int, threshold float64) {
	t.Helper()
	region := optimalRegion(capacity, endpoints)
	plan, figures := optimalPlan(t, p, region, threshold)
	got, want := evenScore(figures), bestFamily(region.Shares(plan.Zones), endpoints, threshold)
	if math.Abs(got-want) > 1e-9 {
		t.Errorf("capacity %v, endpoints %v, threshold %v: score %v, the best family has %v; groups %v", capacity, endpoints, threshold, got, want, plan.Groups)
	}
}

// tuples yields all tuples of numbers from low to high.
func tuples(n, low, high int, yield func([]int)) {
	tuple := make([]int, n)
	var fill func(i int)
	fill = func(i int) {
		if i == n {
			yield(tuple)
			return
		}
		for tuple[i] = low; tuple[i] <= high; tuple[i]++ {
			fill(i + 1)
		}
	}
	fill(0)
}

func TestOptimalIsBestOfThreeZones(t *testing.T) {
	var p Planner
	tuples(3, 0, 3, func(capacity []int) {
		if !slices.IsSorted(capacity) || capacity[2] == 0 {
			return
		}
		tuples(3, 0, 3, func(endpoints []int) {
			if slices.Max(endpoints) > 0 {
				checkBest(t, &p, capacity, endpoints, 0.5)
			}
		})
	})
}

func TestOptimalIsBestOfRandomCases(t *testing.T) {
	for _, test := range []struct{ zones, endpoints, cases int }{
		{2, 60, 500}, {3, 12, 200}, {4, 6, 200}, {4, 8, 3}, {5, 4, 60}, {5, 5, 1}, {6, 3, 20},
	} {
		t.Run(fmt.Sprintf("%d zones, %d endpoints", test.zones, test.endpoints), func(t *testing.T) {
			var p Planner
			random := rand.New(rand.NewPCG(uint64(test.zones), uint64(test.endpoints)))
			for range test.cases {
				capacity, endpoints := make([]int, test.zones), make([]int, test.zones)
				for z := range capacity {
					capacity[z] = random.IntN(11)
				}
				capacity[0]++
				for range test.endpoints {
					endpoints[random.IntN(test.zones)]++
				}
				threshold := []float64{0.5, 0.2, 0.05, 1}[random.IntN(4)]
				checkBest(t, &p, capacity, endpoints, threshold)
			}
		})
	}
}

func TestOptimalExamples(t *testing.T) {
	for _, test := range []struct {
		name                string
		capacity, endpoints []int
		want                []string // consumers and members of each group
		inZone              float64
	}{
		{"everything in place", []int{1, 1, 1}, []int{5, 5, 5}, []string{"{a} [{0 5}]", "{b} [{1 5}]", "{c} [{2 5}]"}, 1},
		{"a zone without endpoints uses the others", []int{1, 1, 1}, []int{1, 1, 0}, []string{"{a,c} [{0 1}]", "{b,c} [{1 1}]"}, 2.0 / 3},
		{"all endpoints in one zone", []int{1, 1, 1}, []int{4, 0, 0}, []string{"{a,b,c} [{0 4}]"}, 1.0 / 3},
		{"a spare endpoint goes where it is missing", []int{1, 1, 1}, []int{3, 4, 2}, []string{"{a} [{0 3}]", "{b} [{1 3}]", "{c} [{1 1} {2 2}]"}, 8.0 / 9},
		{"a zone without traffic gives its endpoints away", []int{1, 1, 0}, []int{2, 2, 4}, []string{"{a} [{0 2} {2 2}]", "{b} [{1 2} {2 2}]"}, 0.5},
		{"only one zone has traffic", []int{1, 0, 0}, []int{2, 1, 0}, []string{"{a,b,c} [{0 2} {1 1}]"}, 2.0 / 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			plan, figures := optimalPlan(t, new(Planner), optimalRegion(test.capacity, test.endpoints), 0.5)
			var got []string
			for g := range plan.Groups {
				got = append(got, fmt.Sprint(plan.ConsumerSet(g), " ", plan.Groups[g].Members))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("groups %v, want %v", got, test.want)
			}
			if math.Abs(figures.InZone-test.inZone) > tolerance {
				t.Errorf("in-zone %v, want %v", figures.InZone, test.inZone)
			}
		})
	}
}
