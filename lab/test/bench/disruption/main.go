// Command disruption measures what budgets by failure domain cost and what they save, in a lab of
// three zones whose pods are evicted are objects on nodes without network, with two replicas of the
// controller that run in pods of their own:
//
//   - evictions, 200 at a time, over 100 budgets and then over one, while pods die and come back and
//     one replica is killed. The history of the API shows whether any was admitted beyond a budget.
//   - a service of 420 pods that moves to other nodes as those that it is on are drained: under a
//     PodDisruptionBudget with maxUnavailable 1, and a zone at a time under a TopologyDisruptionBudget.
//   - a StatefulSet of 420 pods that gets a new template: by a DomainRollout, a zone at a time, by a small
//     controller that evicts whatever it is let, and by its own rolling update, a pod at a time and as many
//     as a zone has.
//   - drainers of 500 nodes that know nothing of budgets by domain, and ask every second for what
//     is refused.
//
// "make bench-disruption" runs it. The lab is its own and is removed at the end.
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
	// evictions is how many are admitted in all, inFlight how many are asked for at a time.
	evictions, inFlight int
	// pods is the size of the service that moves, startTime what each of its pods takes to start.
	pods      int
	startTime time.Duration
	// native limits how long the service moves under a PodDisruptionBudget, and how long a rolling update
	// of a pod at a time goes on; 0 is to its end.
	native time.Duration
	// nodes is how many nodes are asked for in vain, retry for how long.
	nodes int
	retry time.Duration
	// storm leaves out all but the evictions over budgets.
	storm bool
	// bin is the folder of the programs.
	bin string
	log io.Writer
}

var sizes = map[string]options{
	"short": {evictions: 2000, native: time.Minute, retry: 20 * time.Second},
	"full":  {evictions: 10000, native: 0, retry: 2 * time.Minute},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program
	o, err := parse(os.Args[1:])
	if err == nil {
		err = o.run(ctx, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-disruption:", err)
		os.Exit(1)
	}
}

func parse(args []string) (*options, error) {
	flags := flag.NewFlagSet("bench-disruption", flag.ContinueOnError)
	size := flags.String("size", "short", "how much of everything: short or full")
	inFlight := flags.Int("in-flight", 200, "`number` of evictions that are asked for at a time")
	pods := flags.Int("pods", 420, "`number` of pods of the service that moves")
	startTime := flags.Duration("start-time", 2*time.Second, "how long a pod of that service takes to start")
	nodes := flags.Int("nodes", 500, "`number` of nodes without network, whose drainers are refused")
	number := flags.Int("evictions", 0, "`number` of evictions over budgets in all; 0 is as many as -size says")
	storm := flags.Bool("storm", false, "only evict over 100 budgets and over one, without the death of a replica")
	bin := flags.String("bin", "bin", "`folder` of the programs vicinity-lab, vicinity-controller, vicinity-kubernetes and kubectl")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	o, found := sizes[*size]
	o.inFlight, o.pods, o.startTime, o.nodes, o.storm, o.log = *inFlight, *pods, *startTime, *nodes, *storm, os.Stderr
	if *number != 0 {
		o.evictions = *number
	}
	var err error
	if o.bin, err = filepath.Abs(*bin); err != nil {
		return nil, err
	}
	const zones, leastNodes = 3, 36
	switch {
	case flags.NArg() > 0:
		return nil, fmt.Errorf("argument %q: there are only flags", flags.Arg(0))
	case !found:
		return nil, fmt.Errorf("-size: %q is unknown; it must be short or full", *size)
	case *number < 0:
		return nil, fmt.Errorf("-evictions: %d is not allowed; it must be 0 or more", *number)
	case o.inFlight < 1:
		return nil, fmt.Errorf("-in-flight: %d is not allowed; it must be 1 or more", o.inFlight)
	case o.pods < zones || o.pods%zones != 0:
		return nil, fmt.Errorf("-pods: %d is not allowed; it must be a multiple of the %d zones", o.pods, zones)
	case o.startTime < 0:
		return nil, fmt.Errorf("-start-time: %s is not allowed; it must be 0s or more", o.startTime)
	case o.nodes < leastNodes || o.nodes > maxNodes:
		return nil, fmt.Errorf("-nodes: %d is not allowed; it must be from %d to %d", o.nodes, leastNodes, maxNodes)
	}
	return &o, nil
}

// maxNodes is how many nodes without network a lab has addresses for beside the others.
const maxNodes = 2000
