// Command disruption measures the costs and the savings of budgets by failure domain. Its lab has
// three zones. The pods that it evicts are objects on nodes without network. Two replicas of the
// controller run in real pods. It measures:
//
//   - evictions, 200 at a time, over 100 budgets and then over one, while pods die and come back and
//     one replica is killed. The history of the API shows whether any exceeded a budget.
//   - a service of 420 pods whose nodes are drained: under a PodDisruptionBudget with
//     maxUnavailable 1, and a zone at a time under a TopologyDisruptionBudget.
//   - a StatefulSet of 420 pods that gets a new template: by a DomainRollout, a zone at a time; by a
//     small controller that evicts every pod that budgets permit; and by its own rolling update, a
//     pod at a time and as many as a zone has.
//
// "make bench-disruption" runs it in a lab of its own and removes the lab at the end.
package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"vicinity.dev/vicinity/lab/test/bench/meter"
)

type size struct {
	// evictions is the number of admitted evictions.
	evictions int
	// native limits the move of the service under a PodDisruptionBudget, and the rolling update of a
	// pod at a time; 0 is no limit.
	native time.Duration
}

var sizes = map[string]size{
	"short": {evictions: 2000, native: time.Minute},
	"full":  {evictions: 10000},
}

const (
	// pods is the size of the service that moves, in three zones, startTime the time that each pod
	// takes to start.
	pods, zones = 420, 3
	startTime   = 2 * time.Second
	// nodes is the number of nodes without network.
	nodes = 500
	// died is the interval at which pods die by themselves during evictions.
	died = 500 * time.Millisecond
	// crowd is the number of workloads of a storm.
	crowd = 100
	// recycledNodes is the number of nodes between which a service moves.
	recycledNodes = 36
)

type bench struct {
	*meter.Run
	size
	// inFlight is the number of concurrent evictions.
	inFlight int
	// storm leaves out everything but the evictions over budgets.
	storm   bool
	kubectl string
	figures figures
}

func main() {
	b := &bench{}
	flags := flag.NewFlagSet("bench-disruption", flag.ContinueOnError)
	named := flags.String("size", "short", "how much of everything: short or full")
	flags.IntVar(&b.inFlight, "in-flight", 200, "`number` of evictions requested at a time")
	number := flags.Int("evictions", 0, "`number` of evictions over budgets in all; 0 is as many as -size says")
	flags.BoolVar(&b.storm, "storm", false, "only evict over 100 budgets and over one, without the death of a replica")
	meter.Main(flags, func(ctx context.Context, r *meter.Run) (fmt.Stringer, error) {
		var err error
		b.Run = r
		if b.size, err = meter.Size(sizes, *named); err != nil {
			return nil, err
		}
		switch {
		case *number < 0:
			return nil, fmt.Errorf("-evictions: %d is not allowed; it must be 0 or more", *number)
		case b.inFlight < 1:
			return nil, fmt.Errorf("-in-flight: %d is not allowed; it must be 1 or more", b.inFlight)
		case *number > 0:
			b.evictions = *number
		}
		if b.kubectl, err = b.Program("kubectl"); err != nil {
			return nil, err
		}
		b.figures.bench = b
		return &b.figures, b.measure(ctx)
	})
}
