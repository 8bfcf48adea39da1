// Package load sends requests over real connections from pods of a lab to a Service, and measures
// which endpoints answer.
//
// A [Plan] says where to send how many requests for how long. The rate is an open loop: requests leave
// on schedule, whether earlier ones were answered or not. So a slow Service is seen as slow instead of
// getting fewer requests. Requests never leave early. A request that could not leave in time counts as
// not sent, and is not made up for, unless the plan is patient. A request that left and has no right
// answer within its timeout has failed, whatever the cause. Requests go only to addresses in the plan,
// and a run ends by itself.
//
// A [Source] opens connections as if from a pod. All sources add up in one [Result], which [Table]
// renders as text.
//
// The server is an echo, which answers with an [Answer]. The package does not start pods, does not
// look up names or Services, and does not write to a terminal.
package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
)

// Place is where a source runs.
type Place struct {
	Pod, Node, Zone string
}

// Source is a pod that sends requests.
type Source struct {
	Place
	// Dial opens a connection to an IP address and port as if from the pod.
	Dial DialFunc
}

// DialFunc opens a connection, as net.Dialer does.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Watch follows a run. All fields are optional.
type Watch struct {
	// Answered counts the answers of the run as they come.
	Answered *atomic.Int64
	// Enough ends the sending when it is closed. Requests in flight are waited for.
	Enough <-chan struct{}
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
	recorder := newRecorder(watch.Answered)
	var running sync.WaitGroup
	for i, source := range sources {
		c := &client{dial: source.Dial, recorder: recorder, enough: watch.Enough}
		running.Go(func() { c.run(ctx, job{Plan: plan, Place: source.Place, Index: i, Of: len(sources)}) })
	}
	running.Wait()
	return recorder.result(), nil
}
