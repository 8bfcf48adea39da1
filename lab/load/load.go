// Package load sends requests over real connections from pods of a lab to a Service,
// and measures who answered.
//
// A [Plan] says what to send: to which addresses, how often, for how long. The rate is
// an open loop: requests leave when the schedule says so, whether earlier ones were
// answered or not, so that a slow Service is seen as slow instead of being asked less.
// At no moment have more requests left than the schedule allows up to then; what could
// not be sent in time is counted as not sent, never caught up for, and what timed out
// while this machine stood still as stalled, not as failed. Nothing is sent to an address
// that is not in the plan, and a run ends by itself.
//
// A [Source] is the place to send from: a function that opens connections as if from a
// pod. Each yields a [Result]; results merge, over sources as over time. What a result
// says in shares and percentiles is a [Summary], and Table, JSON, Live and Line are its
// renderings, functions from values to text.
//
// The other end is an echo that answers with an [Answer]. The package does not start
// pods, does not look up names or Services, and writes to no terminal.
package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Place is where a source is.
type Place struct {
	Pod  string `json:"pod,omitempty"`
	Node string `json:"node,omitempty"`
	Zone string `json:"zone,omitempty"`
}

// Source is a pod from which requests are sent.
type Source struct {
	Place
	// Dial opens a connection as if from the pod, to an IP address and port.
	Dial DialFunc
}

// DialFunc opens a connection, as net.Dialer does.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Watch is told of what happens during a run. Functions may be nil.
type Watch struct {
	// Progress is called at each interval and at the end, never twice at once.
	Progress func(Progress)
	// Failure is called at the first failure of the run, at once, so that the kernel's
	// state can be looked at. It holds up no other
	// request, but the run does not end before it returns.
	Failure func(Failure)
	// Pulse says when this machine stood still, and beats until the run ends; nil is one
	// that only this process has.
	Pulse *Pulse
	// Notice is for how long at least endpoints serve on that are to end, zero if none ends
	// during the run. It is the time in which all have to learn of that. A request that finds
	// nobody, or that is under way when its endpoint ends, shows nothing if this machine stood
	// still from so much time before it on.
	Notice time.Duration
}

// Progress is how far a run is.
type Progress struct {
	Elapsed time.Duration
	// Last is what happened since the last call, Total since the start.
	Last, Total Result
}

// job is a source's part of a plan: of every Of requests the one with number Index.
type job struct {
	Plan  Plan
	Place Place
	Index int
	Of    int
}

// Run carries out the plan, its requests dealt out evenly over the sources, and returns
// when all are answered, failed or timed out. When ctx ends, no more are sent and those
// on their way are abandoned; that is no error.
func Run(ctx context.Context, plan Plan, sources []Source, watch Watch) (Result, error) {
	plan = plan.withDefaults()
	if err := plan.Validate(); err != nil {
		return Result{}, err
	}
	if len(sources) == 0 {
		return Result{}, errors.New("there is no source to send from; at least one is needed")
	}
	for _, source := range sources {
		if source.Dial == nil {
			return Result{}, fmt.Errorf("source %q has no Dial; each needs one", source.Pod)
		}
	}
	start := time.Now()
	recorder := newRecorder(watch.Failure)
	pulse := watch.Pulse
	if pulse == nil {
		pulse = NewPulse(start)
		beating, still := context.WithCancel(context.WithoutCancel(ctx))
		defer still()
		go pulse.Run(beating)
	}
	var running sync.WaitGroup
	for i, source := range sources {
		c := &client{dial: source.Dial, recorder: recorder, pulse: pulse, notice: watch.Notice}
		running.Go(func() { c.run(ctx, job{Plan: plan, Place: source.Place, Index: i, Of: len(sources)}) })
	}
	ended := make(chan struct{})
	go func() {
		running.Wait()
		close(ended)
	}()

	total := newTally()
	report := func() {
		last := recorder.take()
		total.add(last)
		if watch.Progress != nil {
			watch.Progress(Progress{Elapsed: time.Since(start), Last: last, Total: total.result()})
		}
	}
	ticker := time.NewTicker(plan.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			report()
		case <-ended:
			report()
			return total.result(), nil
		}
	}
}
