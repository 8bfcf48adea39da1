// Command routing measures the routing controller at scale, against a real API server with
// thousands of nodes, Services and slices as objects: the time to write all hints, its costs, and
// how long a change of a slice waits for its hints.
//
// "make bench-routing" runs it in a lab of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/test/bench/meter"
)

type size struct{ nodes, services int }

var sizes = map[string]size{
	"short": {500, 1000},
	"full":  {5000, 10000},
}

const (
	// rate is the number of changes per second, changing the time of making them. Each change is of
	// another Service.
	rate     = 20
	changing = 30 * time.Second
	// convergeTime generously limits the time until all hints and conditions are written.
	convergeTime = 20 * time.Minute
	// quietTime is how long a controller that is done writes nothing, pollPeriod the interval of
	// checking that, which costs it time too.
	quietTime  = 3 * time.Second
	pollPeriod = 500 * time.Millisecond
)

type bench struct {
	*meter.Run
	size
	// flags are added to the controller's.
	flags string

	*planner
	plans      []plan
	observer   *observer
	controller *meter.Program
	metrics    netip.AddrPort
	figures    figures
}

func main() {
	b := &bench{}
	flags := flag.NewFlagSet("bench-routing", flag.ContinueOnError)
	named := flags.String("size", "short", "how much of everything: short or full")
	flags.StringVar(&b.flags, "controller-flags", "", "more `flags` for the controller, added to those of the chart")
	meter.Main(flags, func(ctx context.Context, r *meter.Run) (fmt.Stringer, error) {
		var err error
		b.Run = r
		if b.size, err = meter.Size(sizes, *named); err != nil {
			return nil, err
		}
		return &b.figures, b.measure(ctx)
	})
}

func (b *bench) measure(ctx context.Context) (err error) {
	b.Say("a control plane with %d nodes, %d Services", b.nodes, b.services)
	err = b.Up(ctx, shape.Options{NodesPerZone: []int{0}, FakeNodes: b.nodes, ControlPlaneOnly: true, SingleStack: true}, nil)
	if err != nil {
		return err
	}
	b.Say("the nodes are ready")
	if err := b.fill(ctx); err != nil {
		return err
	}
	if b.observer, err = watch(ctx, b.API); err != nil {
		return err
	}
	f := &b.figures
	f.nodes, f.services, f.endpoints = b.nodes, b.services, b.endpoints
	for _, p := range b.plans {
		f.slices += len(p.slices)
	}
	b.Say("%d endpoints in %d slices; the controller starts", f.endpoints, f.slices)
	if err := b.start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.controller.Stop()) }()
	if err := b.converge(ctx); err != nil {
		return err
	}
	if err := b.change(ctx); err != nil {
		return err
	}
	f.memory, err = b.controller.Peak()
	return err
}

func (b *bench) start(ctx context.Context) (err error) {
	if b.metrics, err = meter.FreeAddress(ctx); err != nil {
		return err
	}
	program, err := b.Program("vicinity-controller")
	if err != nil {
		return err
	}
	args := []string{
		program, "--kubeconfig", b.Cluster.Kubeconfig(), "--namespace", "vicinity-system", "--leader-elect=false",
		"--health-probe-bind-address", "0", "--metrics-bind-address", b.metrics.String(),
	}
	b.controller, err = meter.Start("controller", "", b.Folder, b.Lost, append(args, strings.Fields(b.flags)...)...)
	return err
}

func (b *bench) converge(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, convergeTime, errors.New("the controller takes too long"))
	defer cancel()
	o, f := b.observer, &b.figures
	err := o.wait(ctx, func() string {
		if o.done < b.services {
			return fmt.Sprintf("%d of %d Services have their hints", o.done, b.services)
		}
		return ""
	})
	if err != nil {
		return err
	}
	b.Say("all hints are written")
	err = o.wait(ctx, func() string {
		f.converged = o.last.Sub(b.controller.Began)
		if o.reported < b.services {
			return fmt.Sprintf("%d of %d Services have a condition", o.reported, b.services)
		}
		return ""
	})
	if err != nil {
		return err
	}
	if f.convergeWrites, err = b.quiet(ctx); err != nil {
		return err
	}
	f.convergeSliceWrites, f.convergeServiceWrites = o.writes()
	f.convergeCPU, err = b.controller.CPU()
	return err
}

func (b *bench) change(ctx context.Context) error {
	changes, err := b.changes(rate * int(changing/time.Second))
	if err != nil {
		return err
	}
	b.Say("%d changes begin", len(changes))
	if err := b.makeChanges(ctx, changes); err != nil {
		return err
	}
	if _, err := b.quiet(ctx); err != nil {
		return err
	}
	cpu, err := b.controller.CPU()
	if err != nil {
		return err
	}
	f := &b.figures
	f.changes, f.changeCPU = len(changes), cpu-f.convergeCPU
	b.observer.mu.Lock()
	defer b.observer.mu.Unlock()
	for _, c := range changes {
		if !c.answered.IsZero() {
			f.answered = append(f.answered, c.answered.Sub(c.sent))
		}
	}
	return nil
}

func (b *bench) writes(ctx context.Context) (int, error) {
	page, err := meter.Page(ctx, nil, b.metrics, "/metrics")
	if err != nil {
		return 0, fmt.Errorf("reading the controller's metrics: %w", err)
	}
	const requests = "rest_client_requests_total"
	all, err := meter.SumMetric(strings.NewReader(page), requests, "")
	if err != nil {
		return 0, err
	}
	if all == 0 {
		return 0, errors.New("the controller does not count its requests")
	}
	reads, err := meter.SumMetric(strings.NewReader(page), requests, `method="GET"`)
	return int(all - reads), err
}

// quiet waits until the controller has stopped writing, and returns the number of writes.
func (b *bench) quiet(ctx context.Context) (int, error) {
	ticker := time.NewTicker(pollPeriod)
	defer ticker.Stop()
	before, since := -1, time.Now()
	for {
		writes, err := b.writes(ctx)
		if err != nil {
			return 0, err
		}
		if writes != before {
			before, since = writes, time.Now()
		}
		if time.Since(since) >= quietTime {
			return writes, nil
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-ticker.C:
		}
	}
}
