package proxy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"vicinity.dev/vicinity/internal/proxy/cluster"
)

// Services whose refused addresses change all the time leave room for events about others and
// about the node, and get one in ten minutes each.
func TestEventsOfOneKindLeaveRoom(t *testing.T) {
	w := newWorld(t)
	w.put(aRange("kubernetes", "10.96.0.0/16"))
	const flappers = 20
	for i := range flappers {
		w.put(aService(fmt.Sprint("f", i), fmt.Sprint("10.96.0.", 10+i)), aGroup(fmt.Sprint("f", i), fmt.Sprint("g", i), "10.1.1.1"))
	}
	flap := func(n int) {
		s := aService(fmt.Sprint("f", n%flappers), fmt.Sprint("10.96.0.", 10+n%flappers))
		if n/flappers%3 != 0 { // else none is refused
			s.Spec.ExternalIPs = []string{fmt.Sprintf("10.96.7.%d", n%251)}
		}
		w.put(s)
		w.run(time.Second)
	}
	for n := range 60 {
		flap(n)
	}
	cut := withExternal(aService("cut", "10.96.0.2"), 5)
	w.bounds.Service = 28
	w.put(cut, aGroup("cut", "cut-1", "10.1.1.2", "10.1.1.3", "10.1.1.4"))
	const minutes = 30
	for n := range minutes * 60 {
		flap(n)
	}
	if !w.bounds.waits(cluster.KeyOf(cut)) {
		t.Fatal("the Service is not cut: this test shows nothing")
	}
	w.warnings.Bypassed(cluster.KeyOf(cut), "IPv4", "x", w.clock.Now())
	w.warnings.Tell(w.clock.Now())
	all := strings.Join(w.events.events, "\n")
	for _, reason := range []string{"shop/cut Warning TooManyElements", "RulesBypassed"} {
		if !strings.Contains(all, reason) {
			t.Errorf("there is no event %s", reason)
		}
	}
	for i := range flappers {
		// Once at the beginning and once in each ten minutes after that.
		if got := strings.Count(all, fmt.Sprintf("shop/f%d Warning AddressRefused", i)); got < 2 || got > 1+(minutes+1)/10 {
			t.Errorf("%d events about the addresses of one Service", got)
		}
	}
}
