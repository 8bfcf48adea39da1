// Package load sends requests over real connections from pods of a lab to a Service, and
// measures who answers.
//
// A [Plan] says where to send how many requests for how long. The rate is an open loop:
// requests leave on schedule, whether earlier ones were answered or not, so that a slow
// Service is seen as slow instead of being asked less. Requests never leave early. What
// could not leave in time counts as not sent, and is not made up for, unless the plan is
// patient. Every request that
// left and has no right answer within its timeout has failed, whatever the cause. Requests
// go only to addresses in the plan, and a run ends by itself.
//
// A [Source] opens connections as if from a pod. All sources add up in one [Result], which
// a [Summary] expresses in shares and percentiles. Table, Live and Line render it as text.
//
// The server is an echo, which answers with an [Answer]. The package does not start pods,
// does not look up names or Services, and does not write to a terminal.
package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Place is where a source runs.
type Place struct {
	Pod  string `json:"pod,omitempty"`
	Node string `json:"node,omitempty"`
	Zone string `json:"zone,omitempty"`
}

// Source is a pod that sends requests.
type Source struct {
	Place
	// Dial opens a connection to an IP address and port as if from the pod.
	Dial DialFunc
}

// DialFunc opens a connection, as net.Dialer does.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Watch receives events of a run. All fields are optional.
type Watch struct {
	// Progress is called after each interval and at the end, never concurrently.
	Progress func(Progress)
	// Failure is called at once at the first failure of the run, to look at the kernel's
	// state. It does not block other requests, but the run does not end before it returns.
	Failure func(Failure)
	// Enough ends the sending when it is closed. Requests in flight are waited for.
	Enough <-chan struct{}
}

// Progress is the state of a run.
type Progress struct {
	Elapsed time.Duration
	// Last covers the time since the last call, Total that since the start.
	Last, Total Result
}

// job is a source's share of a plan: of every Of requests the one with number Index.
type job struct {
	Plan  Plan
	Place Place
	Index int
	Of    int
}

// Run executes the plan, with its requests distributed evenly over the sources, and returns
// when all are answered, failed or timed out. When ctx ends it sends no more and abandons
// those in flight; that is no error.
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
	var running sync.WaitGroup
	for i, source := range sources {
		c := &client{dial: source.Dial, recorder: recorder, enough: watch.Enough}
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
