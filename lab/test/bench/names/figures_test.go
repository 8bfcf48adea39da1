package main

import (
	"math"
	"testing"
	"time"
)

// roundsOf has a round for each pair of figures of CoreDNS and vicinity-dns: queries per second, and
// latency and CPU in microseconds.
func roundsOf(pairs ...[2]turn) (all []round) {
	for _, p := range pairs {
		all = append(all, round{coredns: p[0], vicinity: p[1]})
	}
	return all
}

func turnOf(perSecond float64, p99, cpu time.Duration) turn {
	return turn{perSecond: perSecond, p99: p99 * time.Microsecond, cpu: cpu * time.Microsecond}
}

// A slow phase of the machine affects both servers of a round.
func TestRatioIsOfRounds(t *testing.T) {
	c := &contest{rounds: roundsOf(
		[2]turn{turnOf(1000, 100, 20), turnOf(990, 102, 21)},
		[2]turn{turnOf(100, 1000, 30), turnOf(98, 1050, 30)},
		[2]turn{turnOf(2000, 50, 20), turnOf(2020, 50, 20)},
	)}
	if got := c.ratio(perSecond); got != 0.99 {
		t.Errorf("the ratio is %v, want 0.99", got)
	}
	if got := c.median(vicinity, perSecond); got != 990 {
		t.Errorf("the median is %v, want 990", got)
	}
	if got := median([]float64{4, 1, 3, 2}); got != 2.5 {
		t.Errorf("the median is %v, want 2.5", got)
	}
	if got := median(nil); !math.IsNaN(got) {
		t.Errorf("the median without values is %v", got)
	}
}
