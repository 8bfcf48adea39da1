package main

import (
	"strings"
	"testing"
	"time"
)

func TestFigures(t *testing.T) {
	f := &figures{}
	peer := f.of(kubeProxy, 1000)
	peer.changes, peer.starts = []time.Duration{time.Second, 2 * time.Second}, []time.Duration{3 * time.Second}
	peer.cpu, peer.costed, peer.memory = time.Second, 4, 100<<20
	own := f.of(vicinity, 1000)
	own.changes, own.groupChanges = []time.Duration{10 * time.Millisecond}, []time.Duration{1500 * time.Microsecond}
	own.connects = []time.Duration{45 * time.Microsecond, 40 * time.Microsecond, 1100 * time.Millisecond}
	own.direct = []time.Duration{41 * time.Microsecond}
	own.answered, own.failed = 4, 2
	peer.raced, peer.racedDirect = []time.Duration{50 * time.Microsecond, 70 * time.Microsecond, 60 * time.Microsecond}, []time.Duration{44 * time.Microsecond}
	own.loads = []string{"0.50", "1.25"}
	if f.of(vicinity, 1000) != own || f.of(vicinity, 5000) == own {
		t.Error("what was measured of a proxy with a number of Services is not found again")
	}
	f.contests = f.contests[:2]
	f.zones, f.own, f.all = 3, received{1 << 20, 10, 5 << 20, "1"}, received{3 << 20, 30, 7 << 20, "2"}
	f.crowd, f.crowdWritten, f.crowded = 100000, 3*time.Second, 9*time.Second
	text := f.String()
	for _, want := range []string{
		"\nRESULT proxy=kube-proxy services=1000 start_s=3.00 change_p50_ms=1000.0 change_p99_ms=2000.0 group_p50_ms=- cpu_per_change_ms=250.00 rss_mib=100 connect_p50_us=60.0\n",
		"\nRESULT proxy=vicinity services=1000 start_s=0.00 change_p50_ms=10.0 change_p99_ms=10.0 group_p50_ms=1.50 cpu_per_change_ms=0.00 rss_mib=0 connect_p50_us=45.0\n",
		"\nRESULT subsetting zones=3 endpoints=10 bytes_mib=1.0 rss_mib=5 all_endpoints=30 all_bytes_mib=3.0 all_rss_mib=7\n",
		"\nRESULT crowd endpoints=100000 written_s=3.0 programmed_s=9.0 ",
		"\n| | 1000 Services, kube-proxy | 1000 Services, vicinity |\n| --- | --- | --- |\n",
		"\n| change of a group to a connection reaching it: p50, p99 | - | 1.50 ms, 1.50 ms |\n",
		"| 45.0 µs, 1100000.0 µs (1 of 3 took a second and more) |\n",
		"| 41.0 µs, 41.0 µs |\n",
		"| 2 of 6 |\n",
		"p50 of each race | 50.0 µs, 70.0 µs, 60.0 µs | - |\n",
		"| 0.50 1.25 |\n",
		"\n| its own zone | 10 | 1.0 MiB | 5 MiB | 1 |\n| all zones | 30 | 3.0 MiB | 7 MiB | 2 |\n",
		"programmed 9.0 s after the first slice was sent, 6.0 s after the last was written",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}
