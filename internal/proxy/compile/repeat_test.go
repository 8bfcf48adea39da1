package compile

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// targetsOf are so many targets.
func targetsOf(n int) []netip.AddrPort {
	targets := make([]netip.AddrPort, n)
	for i := range targets {
		targets[i] = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 80)
	}
	return targets
}

// slotsOf counts the slots that endpoints with given numbers and weights have.
func slotsOf(node string, kinds ...[2]int) (times []int, total int) {
	var weights []int
	for _, kind := range kinds {
		for range kind[0] {
			weights = append(weights, kind[1])
		}
	}
	targets := targetsOf(len(weights))
	place := map[netip.AddrPort]int{}
	for i, target := range targets {
		place[target] = i
	}
	times = make([]int, len(targets))
	pool := repeat(targets, weights, node)
	for _, target := range pool {
		times[place[target]]++
	}
	return times, len(pool)
}

func TestRepeat(t *testing.T) {
	for _, test := range []struct {
		kinds [][2]int // how many of which weight
		total int
		least []int // slots of an endpoint of each kind
	}{
		{[][2]int{{10, 1000}}, 10, []int{1}},
		{[][2]int{{10, 7}}, 10, []int{1}},
		{[][2]int{{1, 1000}, {1, 500}}, 3, []int{2, 1}},
		{[][2]int{{3, 700}, {2, 500}}, 31, []int{7, 5}},
		{[][2]int{{2, 1000}, {1, 333}}, 7, []int{3, 1}},
		{[][2]int{{99, 1000}, {1, 370}}, 795, []int{8, 3}},
		{[][2]int{{1, 1000}, {1, 996}}, 2, []int{1, 1}},
		{[][2]int{{1, 1000}, {100, 1}}, 1000, []int{900, 1}},
		{[][2]int{{5000, 1000}, {5000, 100}}, 55000, []int{10, 1}},
		// Here the bound leaves nothing better.
		{[][2]int{{400, 1000}, {1, 37}}, 6401, []int{16, 1}},
		// And here some have a slot more than others.
		{[][2]int{{50000, 1000}, {50000, 1}}, 400000, []int{7, 1}},
	} {
		t.Run(fmt.Sprint(test.kinds), func(t *testing.T) {
			times, total := slotsOf("a1", test.kinds...)
			at := 0
			for i, kind := range test.kinds {
				if least := slices.Min(times[at : at+kind[0]]); least != test.least[i] {
					t.Errorf("of weight %d: %d slots, want %d", kind[1], least, test.least[i])
				}
				at += kind[0]
			}
			if total != test.total {
				t.Errorf("%d slots, want %d", total, test.total)
			}
		})
	}
}

// TestRepeatDiffers has nodes choose others for a slot more, so that together they give
// each endpoint its share.
func TestRepeatDiffers(t *testing.T) {
	const nodes, heavy, light = 200, 301, 900
	sums := make([]int, heavy+light)
	for node := range nodes {
		times, total := slotsOf(fmt.Sprintf("node-%d", node), [2]int{heavy, 1000}, [2]int{light, 1})
		if total != usualSlots*(heavy+light) {
			t.Fatalf("%d slots", total)
		}
		for i, n := range times {
			sums[i] += n
		}
	}
	for _, kind := range [][]int{sums[:heavy], sums[heavy:]} {
		if least, most := slices.Min(kind), slices.Max(kind); most-least > nodes/2 {
			t.Errorf("endpoints of one weight have %d to %d slots on %d nodes", least, most, nodes)
		}
	}
}

// TestShares gives endpoints of a few weights their slots.
func TestShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var kinds [][2]int
		seen := map[int]bool{}
		n, sum, greatest := 0, 0, 0
		for range rapid.IntRange(1, 4).Draw(t, "weights") {
			count, weight := rapid.IntRange(1, 1500).Draw(t, "count"), rapid.IntRange(1, fullWeight).Draw(t, "weight")
			if rapid.Bool().Draw(t, "few") {
				count = 1 + count%12
			}
			if seen[weight] {
				continue
			}
			seen[weight] = true
			kinds = append(kinds, [2]int{count, weight})
			n, sum, greatest = n+count, sum+count*weight, max(greatest, weight)
		}
		times, total := slotsOf("a1", kinds...)
		if total > mostSlots(n) || total > max(fewSlots, leastSlots*n, manySlots) {
			t.Fatalf("%v: %d slots for %d endpoints", kinds, total, n)
		}
		at, excess := 0, 0.0
		worst := 0.0
		for _, kind := range kinds {
			slots, fewest, most := 0, total, 0
			for range kind[0] {
				slots, fewest, most = slots+times[at], min(fewest, times[at]), max(most, times[at])
				at++
			}
			if fewest < 1 || most > fewest+1 {
				t.Fatalf("%v: endpoints of weight %d have %d to %d slots", kinds, kind[1], fewest, most)
			}
			// An endpoint has a slot, whatever its weight.
			exact := float64(total) * float64(kind[0]*kind[1]) / float64(sum)
			excess += max(0, float64(kind[0])-exact)
			worst = max(worst, math.Abs(float64(slots)-exact))
		}
		if allowed := max(inexact*float64(total), excess+float64(len(kinds))); worst > allowed+1e-6 {
			t.Fatalf("%v: a share is off by %.1f of %d slots, %.1f are allowed", kinds, worst, total, allowed)
		}
	})
}
