package load

import (
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestPulse(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	p := NewStallDetector(start)
	// Late by little, then still for 3 s and for 0.4 s, and since 4.5 s.
	for _, ms := range []int{50, 100, 340, 350, 3350, 3400, 3800, 4300, 4500} {
		p.tick(0, at(ms))
	}
	for _, test := range []struct{ from, to, want int }{
		{0, 350, 0},
		{100, 340, 0},
		{350, 3350, 3000},
		{1000, 2000, 1000},
		{0, 1350, 1000},
		{3000, 3500, 350 + 100},
		{0, 4500, 3000 + 400 + 500},
		{4500, 4700, 0},      // not late yet
		{4500, 9500, 5000},   // the tick is yet to come
		{9000, 9500, 500},    // began within
		{4200, 4400, 100},    // ended with a gap
		{20000, 20000, 0},    // no time at all
		{-1000, 0, 0},        // before everything
		{3350, 3400, 0},      // between two
		{3800, 10000, 6000},  // one to the end, and 200 ms that are none
		{10000, 15000, 5000}, // all of it
	} {
		if got := p.Stalled(at(test.from), at(test.to)); got != time.Duration(test.want)*time.Millisecond {
			t.Errorf("from %d to %d ms: %v missed, want %d ms", test.from, test.to, got, test.want)
		}
	}
}

func TestExcuses(t *testing.T) {
	start := time.Now()
	for _, test := range []struct {
		gap  time.Duration
		want bool
	}{
		{1900 * time.Millisecond, false},
		{2 * time.Second, true},
		{9 * time.Second, true},
	} {
		p := NewStallDetector(start)
		p.tick(0, start.Add(test.gap))
		for at := test.gap; at < 20*time.Second; at += tickPeriod {
			p.tick(0, start.Add(at))
		}
		if got := p.Excuses(start, 10*time.Second); got != test.want {
			t.Errorf("%v of the first 10 s without a tick: excuse %v, want %v", test.gap, got, test.want)
		}
		if p.Excuses(start.Add(10*time.Second), 10*time.Second) {
			t.Errorf("%v without a tick before it began are an excuse", test.gap)
		}
	}
}

// TestProcessorsStandStill has one of two stand still, or both, at the same time or not.
func TestProcessorsStandStill(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	p := &StallDetector{last: []time.Time{start, start}}
	// The first is still from 1 to 3 s, the second from 2 to 4, from 6 to 7 and since 9 s.
	for ms := 0; ms <= 10000; ms += 50 {
		if ms <= 1000 || ms >= 3000 {
			p.tick(0, at(ms))
		}
		if ms <= 2000 || ms >= 4000 && ms <= 6000 || ms >= 7000 && ms <= 9000 {
			p.tick(1, at(ms))
		}
	}
	for _, test := range []struct{ from, to, want int }{
		{0, 10000, 3000 + 1000 + 1000},
		{0, 1000, 0},
		{2500, 2600, 100},
		{2500, 6500, 1500 + 500},
		{4000, 6000, 0},
		{9000, 10000, 1000},
	} {
		if got := p.Stalled(at(test.from), at(test.to)); got != time.Duration(test.want)*time.Millisecond {
			t.Errorf("from %d to %d ms: %v missed, want %d ms", test.from, test.to, got, test.want)
		}
	}
}

// TestDetectStalls has a thread on each processor tick, bound to it.
func TestDetectStalls(t *testing.T) {
	start := time.Now()
	p, stop, err := DetectStalls()
	if err != nil {
		t.Fatal(err)
	}
	for ticked, late := false, time.Now().Add(time.Minute); !ticked; time.Sleep(tickPeriod) {
		if time.Now().After(late) {
			t.Fatal("a processor does not tick")
		}
		p.mu.Lock()
		ticked = !slices.ContainsFunc(p.last, func(last time.Time) bool { return last.Sub(start) < 3*tickPeriod })
		p.mu.Unlock()
	}
	if bound := boundThreads(t); len(p.last) == 0 || len(bound) != len(p.last) {
		t.Errorf("%d processors tick, and threads are bound to %v", len(p.last), bound)
	}
	stop()
	end := time.Now()
	if missed, still := p.Stalled(start, end), p.Stalled(end, end.Add(time.Hour)); missed >= end.Sub(start) || still < time.Hour {
		t.Errorf("%v missed of %v, and of an hour after the end %v", missed, end.Sub(start), still)
	}
}

func TestPulseBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		p := NewStallDetector(start)
		go p.Run(t.Context())
		time.Sleep(time.Minute)
		if missed := p.Stalled(start, time.Now()); missed != 0 {
			t.Errorf("%v missed of a minute in which nothing was late", missed)
		}
	})
}

// boundThreads are the processors to which threads of this process are bound alone.
func boundThreads(t *testing.T) map[string]bool {
	t.Helper()
	threads, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil {
		t.Fatal(err)
	}
	bound := make(map[string]bool)
	for _, thread := range threads {
		status, err := os.ReadFile(thread)
		if err != nil {
			continue // it ended
		}
		for line := range strings.Lines(string(status)) {
			list, found := strings.CutPrefix(line, "Cpus_allowed_list:")
			if list = strings.TrimSpace(list); found && !strings.ContainsAny(list, ",-") {
				bound[list] = true
			}
		}
	}
	return bound
}

// TestSlow has answers take long, while this machine goes on and while it does not.
func TestSlow(t *testing.T) {
	for _, test := range []struct {
		name          string
		takes         time.Duration
		ticks         bool
		slow, delayed int64
	}{
		{"quick", 2 * time.Second, true, 0, 0},
		{"slow", 3 * time.Second, true, 10, 0},
		{"still", 3 * time.Second, false, 0, 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dial := piped(func(conn net.Conn, id string) {
					time.Sleep(test.takes)
					reply(conn, id)
				})
				watch := Watch{Stalls: NewStallDetector(time.Now())}
				if test.ticks {
					watch.Stalls = nil
				}
				plan := Plan{Targets: []netip.AddrPort{somewhere}, Protocol: TCP, Rate: 10, Duration: time.Second, Timeout: 5 * time.Second, KeepAlive: true}
				r, err := Run(t.Context(), plan, []Source{{Dial: dial}}, watch)
				if err != nil {
					t.Fatal(err)
				}
				if r.Slow != test.slow || r.Delayed != test.delayed || r.Answered != 10 {
					t.Errorf("%d of %d answers were slow and %d delayed, want %d and %d of 10", r.Slow, r.Answered, r.Delayed, test.slow, test.delayed)
				}
			})
		})
	}
}

// TestStandingStillIsNoFailure has requests time out while nothing ticks.
func TestStandingStillIsNoFailure(t *testing.T) {
	closed := func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		_ = far.Close()
		return near, nil
	}
	ends := piped(func(conn net.Conn, _ string) {
		time.Sleep(time.Second)
		_ = conn.Close()
	})
	nobody := func(context.Context, string, string) (net.Conn, error) { return nil, syscall.EHOSTUNREACH }
	for _, test := range []struct {
		name            string
		dial            DialFunc
		notice          time.Duration
		ticks           bool
		stalled, failed int64
	}{
		{"still", piped(func(net.Conn, string) {}), 0, false, 10, 0},
		{"ticking", piped(func(net.Conn, string) {}), 0, true, 0, 10},
		{"still, but closed", closed, time.Minute, false, 0, 10},
		{"still, but it ends", ends, 0, false, 0, 10},
		{"still while its end is near", ends, 5 * time.Second, false, 10, 0},
		{"still for too little of that before its end", ends, time.Minute, false, 0, 10},
		{"ticking while its end is near", ends, 5 * time.Second, true, 0, 10},
		{"still, but nobody is there", nobody, 0, false, 0, 10},
		{"still while all had to learn that nobody is there", nobody, 5 * time.Second, false, 10, 0},
		{"still for too little of that", nobody, time.Minute, false, 0, 10},
		{"ticking while all had to learn that nobody is there", nobody, 5 * time.Second, true, 0, 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &client{dial: test.dial, recorder: newRecorder(nil), stalls: NewStallDetector(time.Now()), notice: test.notice}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if test.ticks {
					go c.stalls.Run(ctx)
				}
				time.Sleep(2 * time.Second)
				plan := Plan{Targets: []netip.AddrPort{somewhere}, Protocol: TCP, Rate: 10, Duration: time.Second, KeepAlive: true}
				c.run(ctx, job{Plan: plan.withDefaults(), Of: 1})
				r := c.recorder.take()
				balanced(t, r)
				if r.Stalled != test.stalled || r.Failed() != test.failed {
					t.Errorf("%d stalled, %d failed, want %d and %d: %+v", r.Stalled, r.Failed(), test.stalled, test.failed, r.Failures)
				}
			})
		})
	}
}
