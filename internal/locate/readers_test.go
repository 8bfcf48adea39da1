package locate

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
)

// TestReaders sees that readers find what was there all the time, while the table grows and
// chains change around it, and of what changes one of its states. Run it with -race.
func TestReaders(t *testing.T) {
	x := New()
	const fixed = 200
	address := func(network byte, i int) netip.Addr {
		return netip.AddrFrom4([4]byte{network, byte(i >> 16), byte(i >> 8), byte(i)})
	}
	x.SetNode("range", Node{PodRanges: prefixes("10.0.0.0/8", "11.0.0.0/8"), Labels: zone("r")})
	for i := range fixed {
		x.SetPod("fixed", fmt.Sprint(i), Pod{IPs: []netip.Addr{address(10, i)}, Node: "fixed", Labels: zone("f")})
	}
	x.SetPod("moving", "0", Pod{IPs: addrs("11.0.0.1"), Node: "m0"})

	var done atomic.Bool
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for !done.Load() {
				for i := range fixed {
					if at, ok := x.Lookup(address(10, i)); !ok || at.Node != "fixed" {
						t.Errorf("the reader finds %v at %+v, %t", address(10, i), at, ok)
						return
					}
				}
				if at, ok := x.Lookup(address(11, 1)); !ok || at.Source != PodLocator {
					t.Errorf("the reader finds the moving pod at %+v, %t", at, ok)
					return
				}
				if at, ok := x.Lookup(address(10, 1<<20)); !ok || at.Source != PodRange {
					t.Errorf("the reader finds what has no pod at %+v, %t", at, ok)
					return
				}
			}
		})
	}
	for i := range 2000 {
		x.SetPod("other", fmt.Sprint(i), Pod{IPs: []netip.Addr{address(12, i)}, Node: fmt.Sprint("n", i%7), Labels: zone("o")})
		// A pod takes the address over before the one that had it is deleted.
		x.SetPod("moving", fmt.Sprint(i+1), Pod{IPs: addrs("11.0.0.1"), Node: fmt.Sprint("m", i%3)})
		x.DeletePod("moving", fmt.Sprint(i))
		if i%3 == 0 {
			x.DeletePod("other", fmt.Sprint(i/2))
		}
		if i%50 == 0 {
			x.SetNode("other", Node{PodRanges: []netip.Prefix{netip.PrefixFrom(address(13, i), 16+i/50%8)}})
		}
	}
	done.Store(true)
	readers.Wait()
}
