// Command names measures the cost of vicinity-dns beside a CoreDNS without the plugin vicinity: with
// the same other plugins, the same Corefile except for one line, and the same real API server, whose
// nodes, Services and pods are only objects.
//
// Both servers run all the time, and dnsperf queries them in turns from the address of a pod, in
// another zone each round. In each turn, the first queries come as fast as the server answers, which
// gives queries per second and the CPU time of each. Then they come at a third of that rate, the same
// for both servers, for latencies without a queue. A ratio is the median of the rounds' ratios, so
// that slow changes of the machine affect both of its terms.
//
// Three kinds of queries are measured: plain ones for cluster IPs, as resolvers send them with a
// search path and ndots of 5; headless ones for Services without a request; and filtered ones for
// headless Services that prefer their zone, whose answers differ between the two servers.
//
// Memory is measured for each server after the same queries, and for a CoreDNS that watches all pods,
// as with "pods verified".
//
// "make bench-names" runs it in a lab of its own and removes the lab at the end.
package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"vicinity.dev/vicinity/lab/test/bench/meter"
)

// sizes are the numbers of pods, each with a PodLocator.
var sizes = map[string]int{"short": 10_000, "full": 100_000}

const (
	// rounds is the number of turns of each server with each kind of queries, duration the time for
	// each figure.
	rounds   = 5
	duration = 3 * time.Second
)

func main() {
	b := &bench{}
	flags := flag.NewFlagSet("bench-names", flag.ContinueOnError)
	named := flags.String("size", "short", "how many pods: short or full")
	meter.Main(flags, func(ctx context.Context, r *meter.Run) (fmt.Stringer, error) {
		var err error
		b.Run, b.figures.machine = r, r.Machine
		if b.pods, err = meter.Size(sizes, *named); err != nil {
			return nil, err
		}
		b.nodes, b.figures.pods = b.pods/podsPerNode, b.pods
		return &b.figures, b.measure(ctx)
	})
}
