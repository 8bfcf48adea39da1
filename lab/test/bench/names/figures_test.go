package main

import (
	"math"
	"strings"
	"testing"
	"time"
)

// rounds has a round for each pair of figures of CoreDNS and vicinity-dns: queries a second and,
// in microseconds, latency and CPU.
func rounds(pairs ...[2]turn) (all []round) {
	for _, p := range pairs {
		all = append(all, round{coredns: p[0], vicinity: p[1]})
	}
	return all
}

func turnOf(perSecond float64, p99, cpu time.Duration) turn {
	return turn{perSecond: perSecond, p50: p99 / 2 * time.Microsecond, p99: p99 * time.Microsecond, cpu: cpu * time.Microsecond}
}

// A machine that is slow for a while is so for both servers of a round.
func TestRatioIsOfRounds(t *testing.T) {
	c := &contest{rounds: rounds(
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
		t.Errorf("the median of nothing is %v", got)
	}
}

func TestFigures(t *testing.T) {
	f := &figures{machine: "2 CPUs", pods: 100_000, loads: []string{"0.50", "1.25"}}
	f.memories = []memory{{contender{dns: coredns, pods: verified}, 200 << 20, 300 << 20}, {contender{dns: vicinity, pods: insecure}, 100 << 20, 150 << 20}}
	f.contests = []*contest{
		{mix: plain, rate: 3000, rounds: rounds([2]turn{turnOf(10000, 200, 20), turnOf(9900, 210, 21)})},
		{mix: headless, cache: true, rate: 4000, rounds: rounds([2]turn{turnOf(10000, 200, 20), turnOf(9800, 200, 20)})},
		{mix: filtered, cache: true, rate: 5000, rounds: rounds([2]turn{turnOf(10000, 200, 20), turnOf(9000, 240, 25)})},
	}
	text := f.String()
	for _, want := range []string{
		"2 CPUs; load in between 0.50 1.25\n",
		"\n| plain | no | 10000, 9900 | 0.990 | 3000 | 200 µs, 210 µs | 1.050 | 20.0 µs, 21.0 µs | 1.050 |\n",
		"\n| with 100000 pods | memory | the most until then |\n",
		"\n| coredns, `pods verified` | 200 MiB | 300 MiB |\n",
		"\nRESULT memory dns=vicinity watch=insecure pods=100000 pss_mib=100 peak_mib=150\n",
		"\nRESULT dns=coredns cache=no mix=plain qps=10000 p50_us=100 p99_us=200 cpu_us_per_query=20.00\n",
		"\nRESULT dns=vicinity cache=yes mix=filtered qps=9000 p50_us=120 p99_us=240 cpu_us_per_query=25.00\n",
		"\nRESULT ratio cache=yes mix=headless qps=0.980 p99=1.000 cpu=1.000\n",
		"\nRESULT ratios pods=100000 qps=0.980 p99=1.050 cpu=1.050 filtered_qps=0.900 filtered_p99=1.200 filtered_cpu=1.250\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}
