// Command proxy measures what a node's proxy costs and how fast it is: kube-proxy and
// vicinity-proxy take turns on a node of a lab with thousands of Services, as objects of a
// real API server, and one Service whose endpoint really listens.
//
// Both clocks start when the change of an EndpointSlice is sent, and stop when a new
// connection from the node reaches the new endpoint. With vicinity-proxy the change goes
// through vicinity-controller and an EndpointGroup; how long it takes from the group's own
// write is measured too, which kube-proxy knows nothing of.
//
// Each has the flags that it has by default, but for what is the kernel's as a whole. CPU
// is that of the proxy and of the programs it starts, from before the first of many changes
// to after the last. Memory is what is resident after all changes. Each connection through
// the cluster IP is followed by one to the endpoint itself, as a control; each has a source
// port of its own, and the kernel remembers none when they begin. At last both proxies run at
// the same time, each on a node of its own, and connections by the rules of either alternate. Beside the figures
// stands the load of the machine during them, of which this benchmark is a part.
//
// "make bench-proxy" runs it. The lab is its own and is removed at the end.
package main

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"

	"vicinity.dev/vicinity/lab/test/bench/meter"
)

const (
	// changes is how often the endpoints of a Service change under vicinity-proxy in each round, and
	// peerChanges under kube-proxy, which takes seconds for each. costly is how often they
	// do under vicinity-proxy once more while its CPU is measured.
	changes, peerChanges, costly = 200, 10, 100
	// connects is how many connections are opened to see how long that takes.
	connects = 5000
	// races is how often both proxies are measured at the same time, for that alone.
	races = 3
	// maxServices is how many there are addresses for.
	maxServices = 50000
)

type options struct {
	sizes  []int
	rounds int
	// endpoints is how many one Service gets in the end, 0 for none.
	endpoints int
	// subsets is whether traffic that stays in its zone is measured too, peer whether kube-proxy is,
	// and weights whether Services whose endpoints have weights are.
	subsets, peer, weights bool
}

func main() {
	b := &bench{}
	flags := flag.NewFlagSet("bench-proxy", flag.ContinueOnError)
	sizes := flags.String("sizes", "1000,5000,10000", "`numbers` of Services, each with 10 endpoints, in ascending order")
	flags.IntVar(&b.rounds, "rounds", 2, "how often the two proxies take turns with each number of Services")
	flags.IntVar(&b.endpoints, "endpoints", 100000, "endpoints that one Service gets in the end; 0 for none")
	flags.BoolVar(&b.peer, "peer", true, "measure kube-proxy, too, which takes minutes to start with tens of thousands of Services")
	flags.BoolVar(&b.weights, "weights", true, "measure, with the greatest number of Services, vicinity-proxy while zones share their traffic by weights")
	flags.BoolVar(&b.subsets, "subsets", true, "measure, with the greatest number of Services, what a node receives whose zone sees only its own endpoints")
	meter.Main(flags, func(ctx context.Context, r *meter.Run) (fmt.Stringer, error) {
		b.Run = r
		if err := b.check(*sizes); err != nil {
			return nil, err
		}
		return &b.figures, b.measure(ctx)
	})
}

func (b *bench) check(sizes string) error {
	last := 0
	for text := range strings.SplitSeq(sizes, ",") {
		size, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || size <= last || size > maxServices {
			return fmt.Errorf("-sizes: %q is not allowed; write numbers from 1 to %d in ascending order, with commas between", text, maxServices)
		}
		b.sizes, last = append(b.sizes, size), size
	}
	if b.rounds < 1 {
		return fmt.Errorf("-rounds: %d is not allowed; it must be 1 or more", b.rounds)
	}
	if b.endpoints < 0 {
		return fmt.Errorf("-endpoints: %d is not allowed; it must be 0 or more", b.endpoints)
	}
	return nil
}
