// Command names measures what vicinity-dns costs beside a CoreDNS without the plugin vicinity: one
// with the same plugins, the same Corefile less one line, and the same real API server, from which
// it has nodes, Services and pods as objects only.
//
// Both servers run all the time and are asked in turns by dnsperf, whose address is that of a pod in
// the range of a node, in another zone each round. In each turn the first queries come as fast as
// the server answers, which gives queries per second and the CPU that one takes. Then they come at
// a third of that, the same for both servers, for latencies that are not those of a queue. A ratio
// is the median of those of each round, so that what slowly changes on the machine is in both of its terms.
//
// Three kinds of queries are measured apart: plain ones, of cluster IPs, as resolvers ask with a
// search path and ndots of 5; headless ones, of Services that ask for nothing; and filtered ones, of headless
// Services that prefer their zone, whose answers differ between the two servers.
//
// Memory is that of each server after the same queries, and of a CoreDNS that watches all pods,
// as it does with "pods verified".
//
// "make bench-names" runs it. The lab is its own and is removed at the end.
package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"vicinity.dev/vicinity/lab/test/bench/meter"
)

// sizes are the numbers of pods, each with its PodLocator.
var sizes = map[string]int{"short": 10_000, "full": 100_000}

const (
	// rounds is how often the two servers take turns with each kind of queries, duration how long a
	// server is asked for each figure.
	rounds   = 5
	duration = 3 * time.Second
)

func main() {
	b := &bench{}
	flags := flag.NewFlagSet("bench-names", flag.ContinueOnError)
	named := flags.String("size", "short", "how many pods: short or full")
	flags.StringVar(&b.profiles, "profiles", "", "`folder` for CPU profiles of both servers; without it there are none")
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
