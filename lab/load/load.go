// Package load sends requests over real connections from pods of a lab to a Service,
// and measures who answered.
//
// A [Plan] says what to send: to which addresses, how often, for how long. The rate is
// an open loop: requests leave when the schedule says so, whether earlier ones were
// answered or not, so that a slow Service is seen as slow instead of being asked less.
// At no moment have more requests left than the schedule allows up to then; what could
// not be sent in time is counted as not sent, never caught up for. Nothing is sent to
// an address that is not in the plan, and a run ends by itself.
//
// A [Source] is the place to send from: either a function that opens connections as if
// from a pod, or the way to a client program in the pod, which does the same by
// [Handler]. Each yields a [Result]; results merge, over sources as over time. What a
// result says in shares and percentiles is a [Summary], and Table, JSON, Live and Line
// are its renderings, functions from values to text.
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

// Source is a pod from which requests are sent. One of Dial and Control is set.
type Source struct {
	Place
	// Dial opens a connection as if from the pod, to an IP address and port.
	Dial DialFunc
	// Control opens a connection to the API of a client program in the pod
	// (see Handler), which then opens the connections itself.
	Control func(ctx context.Context) (net.Conn, error)
}

// DialFunc opens a connection, as net.Dialer does.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Watch is told of what happens during a run. Functions may be nil.
type Watch struct {
	// Progress is called at each interval and at the end, never twice at once.
	Progress func(Progress)
	// Failure is called at the first failure of the run, at once if it happened in
	// this process, so that the kernel's state can be looked at. It holds up no other
	// request, but the run does not end before it returns.
	Failure func(Failure)
}

// Progress is how far a run is.
type Progress struct {
	Elapsed time.Duration
	// Last is what happened since the last call, Total since the start.
	Last, Total Result
}

// generator sends a source's part of the requests. It reports to the recorder that it
// was made with, and has reported everything when it returns.
type generator interface {
	run(ctx context.Context, job job) error
}

// job is a source's part of a plan: of every Of requests the one with number Index.
type job struct {
	Plan  Plan  `json:"plan"`
	Place Place `json:"place"`
	Index int   `json:"index"`
	Of    int   `json:"of"`
}

func (j job) validate() error {
	if j.Of < 1 || j.Index < 0 || j.Index >= j.Of {
		return fmt.Errorf("part %d of %d does not exist; a part is a number from 0 to below the number of parts", j.Index, j.Of)
	}
	return j.Plan.Validate()
}

// generator is what sends from the source.
func (s Source) generator(recorder *recorder) (generator, error) {
	switch {
	case s.Dial != nil && s.Control == nil:
		return &client{dial: s.Dial, recorder: recorder}, nil
	case s.Control != nil && s.Dial == nil:
		return &remote{control: s.Control, recorder: recorder}, nil
	}
	return nil, fmt.Errorf("source %q has Dial: %t, Control: %t; exactly one of them must be set", s.Pod, s.Dial != nil, s.Control != nil)
}

// Run carries out the plan, its requests dealt out evenly over the sources, and returns
// when all are answered, failed or timed out. When ctx ends, no more are sent and those
// on their way are abandoned; that is no error. If a source could not be used, the
// others go on, and both what they measured and the error are returned.
func Run(ctx context.Context, plan Plan, sources []Source, watch Watch) (Result, error) {
	plan = plan.withDefaults()
	if err := plan.Validate(); err != nil {
		return Result{}, err
	}
	if len(sources) == 0 {
		return Result{}, errors.New("there is no source to send from; at least one is needed")
	}
	recorder := newRecorder(watch.Failure)
	var parts []part
	for i, source := range sources {
		g, err := source.generator(recorder)
		if err != nil {
			return Result{}, err
		}
		parts = append(parts, part{generator: g, job: job{Plan: plan, Place: source.Place, Index: i, Of: len(sources)}})
	}
	return run(ctx, parts, recorder, watch.Progress)
}

// part is a job and who does it.
type part struct {
	generator
	job job
}

// run does all parts at once.
func run(ctx context.Context, parts []part, recorder *recorder, progress func(Progress)) (Result, error) {
	start := time.Now()
	errs := make([]error, len(parts))
	var running sync.WaitGroup
	for i, p := range parts {
		running.Go(func() {
			if err := p.run(ctx, p.job); err != nil {
				errs[i] = fmt.Errorf("sending from pod %s: %w", p.job.Place.Pod, err)
			}
		})
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
		if progress != nil {
			progress(Progress{Elapsed: time.Since(start), Last: last, Total: total.result()})
		}
	}
	ticker := time.NewTicker(parts[0].job.Plan.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			report()
		case <-ended:
			report()
			return total.result(), errors.Join(errs...)
		}
	}
}
