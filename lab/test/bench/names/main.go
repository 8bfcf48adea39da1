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
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// options are set by flags.
type options struct {
	// pods is the number of pods and of their PodLocators.
	pods   int
	rounds int
	// duration is how long each server is asked for one figure.
	duration time.Duration
	// bin is the folder of the programs.
	bin string
	// profiles is the folder for profiles; empty means none.
	profiles string
	log      io.Writer
}

// maxPods is the number of addresses for pods.
const maxPods = 1_000_000

var sizes = map[string]int{"short": 10_000, "full": 100_000}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program
	o, err := parse(os.Args[1:])
	if err == nil {
		err = o.run(ctx, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-names:", err)
		os.Exit(1)
	}
}

func parse(args []string) (*options, error) {
	o := &options{log: os.Stderr}
	flags := flag.NewFlagSet("bench-names", flag.ContinueOnError)
	size := flags.String("size", "short", "how many pods: short or full")
	flags.IntVar(&o.pods, "pods", 0, "`number` of pods, if not that of the size")
	flags.IntVar(&o.rounds, "rounds", 5, "how often the two servers take turns with each kind of queries")
	flags.DurationVar(&o.duration, "duration", 3*time.Second, "how long a server is asked for each figure")
	flags.StringVar(&o.bin, "bin", "bin", "`folder` of the programs vicinity-dns, bench-coredns, vicinity-lab and vicinity-kubernetes")
	flags.StringVar(&o.profiles, "profiles", "", "`folder` for CPU profiles of both servers; without it there are none")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	var err error
	if o.bin, err = filepath.Abs(o.bin); err != nil {
		return nil, err
	}
	named, found := sizes[*size]
	switch {
	case flags.NArg() > 0:
		return nil, fmt.Errorf("argument %q: there are only flags", flags.Arg(0))
	case !found:
		return nil, fmt.Errorf("-size: %q is unknown; it must be short or full", *size)
	}
	if o.pods == 0 {
		o.pods = named
	}
	switch {
	case o.pods < leastPods || o.pods > maxPods:
		return nil, fmt.Errorf("-pods: %d is not allowed; it must be from %d to %d", o.pods, leastPods, maxPods)
	case o.rounds < 1:
		return nil, fmt.Errorf("-rounds: %d is not allowed; it must be 1 or more", o.rounds)
	case o.duration < time.Second:
		return nil, fmt.Errorf("-duration: %s is not allowed; it must be 1s or more", o.duration)
	}
	return o, nil
}
