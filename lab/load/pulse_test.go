package load

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

func TestPulse(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	p := NewPulse(start)
	// Late by little, then still for 3 s and for 0.4 s, and since 4.5 s.
	for _, ms := range []int{50, 100, 340, 350, 3350, 3400, 3800, 4300, 4500} {
		p.beat(at(ms))
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
		{4500, 9500, 5000},   // the beat is yet to come
		{9000, 9500, 500},    // began within
		{4200, 4400, 100},    // ended with a gap
		{20000, 20000, 0},    // no time at all
		{-1000, 0, 0},        // before everything
		{3350, 3400, 0},      // between two
		{3800, 10000, 6000},  // one to the end, and 200 ms that are none
		{10000, 15000, 5000}, // all of it
	} {
		if got := p.Missed(at(test.from), at(test.to)); got != time.Duration(test.want)*time.Millisecond {
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
		p := NewPulse(start)
		p.beat(start.Add(test.gap))
		for at := test.gap; at < 20*time.Second; at += beat {
			p.beat(start.Add(at))
		}
		if got := p.Excuses(start, 10*time.Second); got != test.want {
			t.Errorf("%v of the first 10 s without a beat: excuse %v, want %v", test.gap, got, test.want)
		}
		if p.Excuses(start.Add(10*time.Second), 10*time.Second) {
			t.Errorf("%v without a beat before it began are an excuse", test.gap)
		}
	}
}

func TestPulseBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		p := NewPulse(start)
		go p.Run(t.Context())
		time.Sleep(time.Minute)
		if missed := p.Missed(start, time.Now()); missed != 0 {
			t.Errorf("%v missed of a minute in which nothing was late", missed)
		}
	})
}

// TestStandingStillIsNoFailure has requests time out while the pulse does not beat.
func TestStandingStillIsNoFailure(t *testing.T) {
	refused := func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		_ = far.Close()
		return near, nil
	}
	for _, test := range []struct {
		name            string
		dial            DialFunc
		beats           bool
		stalled, failed int64
	}{
		{"still", piped(func(net.Conn, string) {}), false, 10, 0},
		{"beating", piped(func(net.Conn, string) {}), true, 0, 10},
		{"still, but refused", refused, false, 0, 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &client{dial: test.dial, recorder: newRecorder(nil), pulse: NewPulse(time.Now())}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if test.beats {
					go c.pulse.Run(ctx)
				}
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
