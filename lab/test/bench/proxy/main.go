// Command proxy compares the speed and the costs of the proxies of a node. kube-proxy and
// vicinity-proxy take turns on a node of a lab with thousands of Services, as objects of a real API
// server, and one live Service whose endpoint listens.
//
// The time of a change begins when the change of an EndpointSlice is sent. It ends when a new
// connection from the node reaches the new endpoint. With vicinity-proxy the change passes through
// vicinity-controller and an EndpointGroup.
//
// Each proxy has its default flags, except those for settings of the whole kernel. Changes follow each
// other, so that kube-proxy waits for its minimum sync period before each. It takes more turns with
// shorter ones. CPU is that of the proxy and of its child processes during many changes. Memory is
// resident memory after all changes. Then connections are counted that fail. Each has a source port of
// its own, and the kernel's connection table is empty at the start. At the end both proxies run at the
// same time, each on its own node, and connections by the rules of either alternate. As a control, each
// is followed by one to the endpoint itself.
//
// "make bench-proxy" runs it in a lab of its own and removes the lab at the end.
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
	// changes is the number of changes of a Service in each round under vicinity-proxy, and
	// peerChanges under kube-proxy, which takes up to seconds for each. costly more changes follow under
	// vicinity-proxy while its CPU is measured.
	changes, peerChanges, costly = 200, 10, 100
	// connects is the number of connections after the changes, and of each way in a race.
	connects = 5000
	// races is how often both proxies run at the same time.
	races = 3
	// There are addresses for maxServices.
	maxServices = 50000
)

type options struct {
	sizes  []int
	rounds int
	// endpoints is the number of endpoints that one Service gets at the end, 0 for none.
	endpoints int
	// subsets adds traffic that stays in its zone, weights adds Services whose endpoints have
	// weights, and peer adds kube-proxy.
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
	flags.BoolVar(&b.subsets, "subsets", true, "with the greatest number of Services, also measure what a node receives when its zone sees only its own endpoints")
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
