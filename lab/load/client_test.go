package load

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var somewhere = netip.MustParseAddrPort("10.96.0.7:80")

// dialPipe dials an echo through a pipe, in the bubble of the test.
func dialPipe(answer func(net.Conn, string)) DialFunc {
	return func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go converse(far, answer)
		return near, nil
	}
}

// converse answers until the client closes or says that it is done.
func converse(conn net.Conn, answer func(net.Conn, string)) {
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		id, last := strings.CutSuffix(lines.Text(), " "+CloseWord)
		answer(conn, id)
		if last {
			return
		}
	}
}

func reply(conn net.Conn, id string) {
	a := Answer{Endpoint: Endpoint{Pod: "echo-1", Namespace: "default", Node: "zone-a-1", Zone: "zone-a", Service: "echo"}, ID: id}
	_, _ = conn.Write(a.Line()) // the client may be gone
}

// checkSums checks that every request is counted exactly once.
func checkSums(t *testing.T, r Result) {
	t.Helper()
	if sum := r.Answered + r.Failed() + r.Unsent.Total() + r.Abandoned; sum != r.Due {
		t.Errorf("%d requests were due, %d were counted: %d answered, %d failed, %+v unsent, %d abandoned",
			r.Due, sum, r.Answered, r.Failed(), r.Unsent, r.Abandoned)
	}
	var flows int64
	for _, f := range r.Flows {
		flows += f.Answers
	}
	if latency := r.Latency(); flows != r.Answered || latency.Count() != r.Answered {
		t.Errorf("%d answers, %d in flows, %d latencies", r.Answered, flows, latency.Count())
	}
}

func zones(dial DialFunc, names ...string) []Source {
	var sources []Source
	for _, zone := range names {
		sources = append(sources, Source{Place: Place{Pod: "client-" + zone, Node: zone + "-1", Zone: zone}, Dial: dial})
	}
	return sources
}

func TestRequestsFollowTheSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var mu sync.Mutex
		var seen []time.Duration
		dial := dialPipe(func(conn net.Conn, id string) {
			mu.Lock()
			seen = append(seen, time.Since(start))
			mu.Unlock()
			time.Sleep(300 * time.Millisecond) // much longer than the interval of requests
			reply(conn, id)
		})
		plan := Plan{Targets: []netip.AddrPort{somewhere}, Protocol: TCP, Rate: 50, Duration: 2 * time.Second}
		r, err := Run(t.Context(), plan, zones(dial, "zone-a", "zone-b", "zone-c"), Watch{})
		if err != nil {
			t.Fatal(err)
		}
		checkSums(t, r)
		if r.Answered != 100 || r.Due != 100 || r.Connections != 100 {
			t.Errorf("%d answers of %d over %d connections, want 100 of each", r.Answered, r.Due, r.Connections)
		}
		if len(seen) != 100 {
			t.Fatalf("%d requests arrived, want 100", len(seen))
		}
		for i, at := range seen {
			if off := (at - time.Duration(i)*20*time.Millisecond).Abs(); off > time.Microsecond {
				t.Errorf("request %d arrived at %v, want %v", i, at, time.Duration(i)*20*time.Millisecond)
			}
		}
		if latency := r.Latency(); latency.Quantile(0) < 298*time.Millisecond || latency.Max() != 300*time.Millisecond {
			t.Errorf("latency from %v to %v, want 300 ms", latency.Quantile(0), latency.Max())
		}
		if got := r.InZone(); got != 34./100 {
			t.Errorf("in zone %v, want 0.34: zone-a sends the first and the last request", got)
		}
	})
}

func TestASilentServiceTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := dialPipe(func(conn net.Conn, _ string) { _, _ = io.Copy(io.Discard, conn) })
		plan := Plan{Targets: []netip.AddrPort{somewhere}, Protocol: TCP, Rate: 10, Duration: time.Second, Timeout: 700 * time.Millisecond}
		start := time.Now()
		r, err := Run(t.Context(), plan, zones(dial, "zone-a"), Watch{})
		if err != nil {
			t.Fatal(err)
		}
		checkSums(t, r)
		if r.FailedAs(TimedOut) != 10 {
			t.Errorf("failures %+v, want 10 timed out", r.Failures)
		}
		// The last request is sent after 900 ms, and times out after 700 ms.
		if took := time.Since(start); took != 1600*time.Millisecond {
			t.Errorf("the run took %v, want 1.6 s", took)
		}
		if first := r.Examples[0]; first.After != 700*time.Millisecond || !first.Time.Equal(start.Add(700*time.Millisecond)) ||
			first.From.Zone != "zone-a" || first.Target != somewhere.String() || first.To != nil {
			t.Errorf("the first failure is %+v", first)
		}
	})
}

func TestClosedConnectionsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := dialPipe(func(conn net.Conn, id string) {
			if strings.HasSuffix(id, "7") {
				_ = conn.Close()
				return
			}
			reply(conn, id)
		})
		plan := Plan{Targets: []netip.AddrPort{somewhere}, Protocol: TCP, Rate: 100, Duration: 3500 * time.Millisecond}
		var answered atomic.Int64
		r, err := Run(t.Context(), plan, zones(dial, "zone-a", "zone-b"), Watch{Answered: &answered})
		if err != nil {
			t.Fatal(err)
		}
		checkSums(t, r)
		if r.Due != 350 || r.FailedAs(Closed) != 34 || answered.Load() != r.Answered || r.Connections != r.Due {
			t.Errorf("%d requests over %d connections with failures %+v, %d answers, %d in Watch.Answered", r.Due, r.Connections, r.Failures, r.Answered, answered.Load())
		}
	})
}
