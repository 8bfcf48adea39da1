package load

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

var somewhere = netip.MustParseAddrPort("10.96.0.7:80")

// piped dials an echo at the other end of a pipe, where time is that of the bubble that
// a test runs in.
func piped(answer func(net.Conn, string)) DialFunc {
	return func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go converse(far, answer)
		return near, nil
	}
}

// converse answers until the client asks for the last time, or goes.
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
	_, _ = conn.Write(a.Line()) // whoever asks may be gone
}

// balanced checks that every request has exactly one fate.
func balanced(t *testing.T, r Result) {
	t.Helper()
	if sum := r.Answered + r.Failed() + r.Unsent.Total() + r.Abandoned; sum != r.Due {
		t.Errorf("%d requests were due, %d have a fate: %d answered, %d failed, %+v unsent, %d abandoned",
			r.Due, sum, r.Answered, r.Failed(), r.Unsent, r.Abandoned)
	}
	var flows int64
	for _, f := range r.Flows {
		flows += f.Answers
	}
	if latency := r.Latency(); flows != r.Answered || latency.Count() != r.Answered {
		t.Errorf("%d answers, %d in flows, %d latencies", r.Answered, flows, latency.Count())
	}
	if sent := r.Due - r.Unsent.Late - r.Unsent.Busy; r.Lag.Count() != sent {
		t.Errorf("%d requests left, %d lags", sent, r.Lag.Count())
	}
}

func zones(dial DialFunc, names ...string) []Source {
	var sources []Source
	for _, zone := range names {
		sources = append(sources, Source{Place: Place{Pod: "client-" + zone, Node: zone + "-1", Zone: zone}, Dial: dial})
	}
	return sources
}

func TestRequestsLeaveByTheSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var mu sync.Mutex
		var seen []time.Duration
		dial := piped(func(conn net.Conn, id string) {
			mu.Lock()
			seen = append(seen, time.Since(start))
			mu.Unlock()
			time.Sleep(300 * time.Millisecond) // much longer than from one request to the next
			reply(conn, id)
		})
		plan := Plan{Targets: []netip.AddrPort{somewhere}, Protocol: TCP, Rate: 50, Duration: 2 * time.Second}
		r, err := Run(t.Context(), plan, zones(dial, "zone-a", "zone-b", "zone-c"), Watch{})
		if err != nil {
			t.Fatal(err)
		}
		balanced(t, r)
		if r.Answered != 100 || r.Due != 100 || r.Connections != 100 {
			t.Errorf("%d answers of %d over %d connections, want 100 of each", r.Answered, r.Due, r.Connections)
		}
		if len(seen) != 100 {
			t.Fatalf("%d requests came, want 100", len(seen))
		}
		for i, at := range seen {
			if off := (at - time.Duration(i)*20*time.Millisecond).Abs(); off > time.Microsecond {
				t.Errorf("request %d came at %v, want %v", i, at, time.Duration(i)*20*time.Millisecond)
			}
		}
		if latency := r.Latency(); latency.Min() != 300*time.Millisecond || latency.Max() != 300*time.Millisecond {
			t.Errorf("latency from %v to %v, want 300 ms", latency.Min(), latency.Max())
		}
		if got := r.InZone(); got != 34./100 {
			t.Errorf("in zone %v, want 0.34: that zone has the first and the last request", got)
		}
	})
}

func TestWhatIsBeyondTheConcurrencyIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int64
		dial := piped(func(conn net.Conn, id string) {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(995 * time.Millisecond)
			now.Add(-1)
			reply(conn, id)
		})
		plan := Plan{Targets: []netip.AddrPort{somewhere}, Protocol: TCP, Rate: 100, Duration: 2 * time.Second, Concurrency: 10}
		r, err := Run(t.Context(), plan, zones(dial, "zone-a"), Watch{})
		if err != nil {
			t.Fatal(err)
		}
		balanced(t, r)
		// Ten at the start of each second; the rest finds all ten under way.
		if r.Due != 200 || r.Answered != 20 || r.Unsent.Busy != 180 || most.Load() != 10 {
			t.Errorf("%d due, %d answered, %+v unsent, %d at a time", r.Due, r.Answered, r.Unsent, most.Load())
		}
	})
}

func TestAPatientPlanSendsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := piped(func(conn net.Conn, id string) {
			time.Sleep(995 * time.Millisecond)
			reply(conn, id)
		})
		plan := Plan{Targets: []netip.AddrPort{somewhere}, Protocol: TCP, Rate: 100, Duration: 2 * time.Second, Concurrency: 10, Patient: true}
		start := time.Now()
		r, err := Run(t.Context(), plan, zones(dial, "zone-a"), Watch{})
		if err != nil {
			t.Fatal(err)
		}
		balanced(t, r)
		if took := time.Since(start).Round(time.Second); r.Answered != 200 || r.Unsent.Total() != 0 || took != 20*time.Second {
			t.Errorf("%d answered, %+v unsent, in %v; want all 200, ten at a time", r.Answered, r.Unsent, took)
		}
	})
}

func TestASilentServiceTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := piped(func(net.Conn, string) {})
		var first []Failure
		plan := Plan{Targets: []netip.AddrPort{somewhere}, Protocol: TCP, Rate: 10, Duration: time.Second, Timeout: 700 * time.Millisecond, KeepAlive: true}
		start := time.Now()
		r, err := Run(t.Context(), plan, zones(dial, "zone-a"), Watch{Failure: func(f Failure) { first = append(first, f) }})
		if err != nil {
			t.Fatal(err)
		}
		balanced(t, r)
		if r.FailedAs(TimedOut) != 10 {
			t.Errorf("failures %+v, want 10 timed out", r.Failures)
		}
		// The last one left after 900 ms, and took its 700.
		if took := time.Since(start); took != 1600*time.Millisecond {
			t.Errorf("the run took %v, want 1.6 s", took)
		}
		if len(first) != 1 || first[0].After != 700*time.Millisecond || !first[0].Time.Equal(start.Add(700*time.Millisecond)) ||
			first[0].From.Zone != "zone-a" || first[0].Target != somewhere.String() || first[0].To != nil {
			t.Errorf("told of %+v", first)
		}
	})
}

func TestLookingAtAFailureHoldsUpNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := piped(func(conn net.Conn, _ string) { _ = conn.Close() })
		told, looked := 0, false
		plan := Plan{Targets: []netip.AddrPort{somewhere}, Protocol: TCP, Rate: 10, Duration: time.Second, Concurrency: 2}
		r, err := Run(t.Context(), plan, zones(dial, "zone-a"), Watch{Failure: func(Failure) {
			told++
			time.Sleep(time.Minute)
			looked = true
		}})
		if err != nil {
			t.Fatal(err)
		}
		balanced(t, r)
		if r.FailedAs(Closed) != 10 || told != 1 || !looked {
			t.Errorf("failures %+v, told %d times, looked to the end: %t", r.Failures, told, looked)
		}
	})
}

func TestAStoppedRunAbandonsWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := piped(func(net.Conn, string) {})
		ctx, cancel := context.WithTimeout(t.Context(), 950*time.Millisecond)
		defer cancel()
		plan := Plan{Targets: []netip.AddrPort{somewhere}, Protocol: TCP, Rate: 10, Duration: time.Hour, Timeout: time.Minute, KeepAlive: true}
		start := time.Now()
		r, err := Run(ctx, plan, zones(dial, "zone-a"), Watch{})
		if err != nil {
			t.Fatal(err)
		}
		balanced(t, r)
		if r.Abandoned != 10 || r.Due != 10 || time.Since(start) != 950*time.Millisecond {
			t.Errorf("%d of %d abandoned after %v: %+v", r.Abandoned, r.Due, time.Since(start), r)
		}
	})
}

func TestWhatIsUnderWayIsWaitedForWhenItIsEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := piped(func(conn net.Conn, id string) {
			time.Sleep(300 * time.Millisecond)
			reply(conn, id)
		})
		for name, test := range map[string]struct {
			dial     DialFunc
			answered int64
			took     time.Duration
		}{"answered": {slow, 10, 1200 * time.Millisecond}, "lost": {piped(func(net.Conn, string) {}), 0, 2900 * time.Millisecond}} {
			enough := make(chan struct{})
			time.AfterFunc(950*time.Millisecond, func() { close(enough) })
			plan := Plan{Targets: []netip.AddrPort{somewhere}, Protocol: TCP, Rate: 10, Duration: time.Hour, Timeout: 2 * time.Second, KeepAlive: true}
			start := time.Now()
			r, err := Run(t.Context(), plan, zones(test.dial, "zone-a"), Watch{Enough: enough})
			if err != nil {
				t.Fatal(err)
			}
			balanced(t, r)
			if took := time.Since(start); r.Due != 10 || r.Answered != test.answered || r.FailedAs(TimedOut) != 10-test.answered || took != test.took {
				t.Errorf("%s: %d of %d answered after %v, want %d after %v: %+v", name, r.Answered, r.Due, took, test.answered, test.took, r)
			}
		}
	})
}

func TestProgressAddsUpToTheResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		dial := piped(func(conn net.Conn, id string) {
			if strings.HasSuffix(id, "7") {
				_ = conn.Close()
				return
			}
			reply(conn, id)
		})
		plan := Plan{Targets: []netip.AddrPort{somewhere}, Protocol: TCP, Rate: 100, Duration: 3500 * time.Millisecond, KeepAlive: true}
		var parts []Result
		var last Progress
		r, err := Run(t.Context(), plan, zones(dial, "zone-a", "zone-b"), Watch{Progress: func(p Progress) {
			n++
			parts = append(parts, p.Last)
			last = p
			if p.Total.Due != merge(parts...).Due {
				t.Errorf("after %v the total is %d due, the parts %d", p.Elapsed, p.Total.Due, merge(parts...).Due)
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		balanced(t, r)
		if n != 4 || last.Total.Due != 350 || r.Due != 350 || r.FailedAs(Closed) != 34 {
			t.Errorf("%d reports, the last of %d, in all %d with failures %+v", n, last.Total.Due, r.Due, r.Failures)
		}
		if whole := merge(parts...); whole.Answered != r.Answered || whole.Failed() != r.Failed() || len(whole.Flows) != len(r.Flows) {
			t.Errorf("the parts make %d answers and %d failures, the result has %d and %d", whole.Answered, whole.Failed(), r.Answered, r.Failed())
		}
		if r.Connections != 2+34 {
			t.Errorf("%d connections, want one for each zone and one after each failure", r.Connections)
		}
	})
}

func TestTargetsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		targets := []netip.AddrPort{somewhere, netip.MustParseAddrPort("[fd00::7]:80")}
		var mu sync.Mutex
		asked := make(map[string]int)
		echo := piped(reply)
		dial := func(ctx context.Context, network, address string) (net.Conn, error) {
			mu.Lock()
			asked[network+" "+address]++
			mu.Unlock()
			return echo(ctx, network, address)
		}
		plan := Plan{Targets: targets, Protocol: TCP, Rate: 100, Duration: time.Second}
		if _, err := Run(t.Context(), plan, zones(dial, "zone-a", "zone-b"), Watch{}); err != nil {
			t.Fatal(err)
		}
		if len(asked) != 2 || asked["tcp 10.96.0.7:80"] != 50 || asked["tcp [fd00::7]:80"] != 50 {
			t.Errorf("asked %v", asked)
		}
		// Nor do sources begin with the same one.
		clear(asked)
		plan.Duration = 20 * time.Millisecond
		if _, err := Run(t.Context(), plan, zones(dial, "zone-a", "zone-b"), Watch{}); err != nil {
			t.Fatal(err)
		}
		if len(asked) != 2 {
			t.Errorf("asked first %v", asked)
		}
	})
}

// While a server has no room for a connection TCP asks for it again.
func TestConnectionsThatAreAskedForAgain(t *testing.T) {
	for _, full := range []bool{false, true} {
		listener := listenForOne(t)
		accept := func() { acceptAll(t, listener, func(conn *net.TCPConn) { converse(conn, reply) }) }
		target := netip.MustParseAddrPort(listener.Addr().String())
		var dialer net.Dialer
		if full {
			for range 2 { // the kernel takes one more than the queue has room for
				conn, err := dialer.DialContext(t.Context(), "tcp", target.String())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
			}
			dialer.Control = func(_, _ string, raw syscall.RawConn) error {
				go func() {
					for sentAgain(raw) == 0 && t.Context().Err() == nil {
						time.Sleep(10 * time.Millisecond)
					}
					accept()
				}()
				return nil
			}
		} else {
			accept()
		}
		plan := Plan{Targets: []netip.AddrPort{target}, Protocol: TCP, Rate: 1, Duration: time.Second, Timeout: 10 * time.Second}
		r, err := Run(t.Context(), plan, zones(dialer.DialContext, "zone-a"), Watch{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Answered != 1 || r.Connections != 1 || (r.Resent == 1) != full {
			t.Errorf("queue full %t: %d answered, %d connections, %d of them asked for again", full, r.Answered, r.Connections, r.Resent)
		}
	}
}

// listenForOne listens with room for one connection that is not accepted.
func listenForOne(t *testing.T) net.Listener {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	socket := os.NewFile(uintptr(fd), "listener")
	defer socket.Close()
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 1)); err != nil {
		t.Fatal(err)
	}
	listener, err := net.FileListener(socket)
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

func TestSourcesAreChecked(t *testing.T) {
	plan := Plan{Targets: []netip.AddrPort{somewhere}, Rate: 1, Duration: time.Second}
	for _, test := range []struct {
		sources []Source
		want    string
	}{
		{nil, "there is no source to send from; at least one is needed"},
		{[]Source{{Place: Place{Pod: "a"}}}, `source "a" has no Dial; each needs one`},
	} {
		if _, err := Run(t.Context(), plan, test.sources, Watch{}); err == nil || err.Error() != test.want {
			t.Errorf("got %v, want %s", err, test.want)
		}
	}
}
