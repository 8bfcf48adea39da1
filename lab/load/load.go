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
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
)

// Place is the pod, node and zone of a source.
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
	// Answered counts the answers of the run as they arrive.
	Answered *atomic.Int64
	// Enough stops sending when it is closed. The run still waits for requests in flight.
	Enough <-chan struct{}
}

// job is a source's share of a plan: request Index of every Of requests.
type job struct {
	Plan  Plan
	Place Place
	Index int
	Of    int
}

// Run executes the plan and distributes its requests evenly over the sources. It returns when all
// requests have an answer or have failed. When ctx ends, it sends no more, abandons requests in
// flight, and returns no error.
func Run(ctx context.Context, plan Plan, sources []Source, watch Watch) (Result, error) {
	plan = plan.withDefaults()
	if err := plan.Validate(); err != nil {
		return Result{}, err
	}
	if len(sources) == 0 {
		return Result{}, errors.New("there is no source; at least one is needed")
	}
	for _, source := range sources {
		if source.Dial == nil {
			return Result{}, fmt.Errorf("source %q has no Dial; each source needs one", source.Pod)
		}
	}
	recorder := newRecorder(watch.Answered)
	var running sync.WaitGroup
	for i, source := range sources {
		c := &client{
			job:  job{Plan: plan, Place: source.Place, Index: i, Of: len(sources)},
			dial: source.Dial, recorder: recorder, enough: watch.Enough, name: rand.Text()[:8],
		}
		running.Go(func() { c.run(ctx) })
	}
	running.Wait()
	return recorder.result(), nil
}
