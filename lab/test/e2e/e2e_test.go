// Package e2e_test shows in a lab what the project promises. An area is a part of the
// project, a promise a sentence about it that can be checked. Each prints one line, "ok
// AREA/promise figure" or "FAIL AREA/promise why". All are tried, whatever failed before;
// one that failed is tried once more after all others, alone in a new lab. The package
// verdict decides what that means for the run.
//
// "make e2e" runs them, or those of one area: AREA=lab. They need root and minutes, so
// nothing runs without the variable E2E_AREA, which it sets.
package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/test/e2e/verdict"
)

// area is a part of the project. Its promises run in order in a common cluster, each in a
// namespace of its own; neighbours that may run beside each other do.
type area struct {
	name  string
	shape func() shape.Shape
	// prepare makes in the cluster what all promises need, if anything.
	prepare  func(context.Context, *lab.Cluster) error
	promises []promise
}

// promise is something that the project promises.
type promise struct {
	name string
	// within limits its duration; the default is usualTime.
	within time.Duration
	// beside says that it changes nothing that others of the area use, and measures nothing that
	// they disturb.
	beside bool
	// keep checks the promise and returns its figure.
	keep func(context.Context, *scene) (figure string, err error)
}

const usualTime = 2 * time.Minute

// together is how many promises run beside each other at most.
const together = 3

// scene is where a promise is checked.
type scene struct {
	*lab.Client
	cluster *lab.Cluster
	// namespace belongs to the promise.
	namespace string
	// root is where this run has its labs; promises about whole labs make theirs
	// there too.
	options lab.Options
	// cutOff are the nodes that the promise has cut off.
	cutOff []string
}

// areas are all areas in the order in which they run.
func areas() []area {
	return []area{
		labArea(), routingArea(), proxyArea(), namesArea(), disruptionArea(), rolloutsArea(),
		doctorArea(), everythingArea(), releaseArea(), metricsArea(), consoleArea(),
	}
}

const (
	areaVariable = "E2E_AREA"
	allAreas     = "all"
)

func TestMain(m *testing.M) {
	if os.Getenv(areaVariable) == "" {
		os.Exit(0)
	}
	// An interrupt would end a test program at once and leave its labs behind. Here it
	// makes what runs fail, and nothing else starts.
	var stop context.CancelFunc
	interrupted, stop = signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := m.Run()
	stop()
	// The logs of labs before this are long and may be cut.
	for _, line := range summary {
		fmt.Println(line)
	}
	os.Exit(code)
}

// interrupted ends on an interrupt.
var interrupted = context.Background()

// summary are the lines that sum up the run.
var summary []string

// takeDownTime is reserved in the time of a run to take the last lab down.
const takeDownTime = 2 * time.Minute

// record is a promise with its tries.
type record struct {
	area    area
	promise promise
	tries   []verdict.Try
}

func (r *record) name() string { return r.area.name + "/" + r.promise.name }

func (r *record) outcome() verdict.Outcome {
	return verdict.Outcome{Promise: r.name(), Tries: r.tries}
}

func TestPromises(t *testing.T) {
	ctx := interrupted
	if deadline, ok := t.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-takeDownTime))
		defer cancel()
	}
	chosen, err := choose(os.Getenv(areaVariable), os.Getenv("E2E_PROMISE"))
	if err != nil {
		t.Fatal(err)
	}
	wanted := slices.DeleteFunc(areas(), func(a area) bool { return len(chosen[a.name]) == 0 })
	left := verdict.Each(ctx, wanted, func(a area) {
		t.Run(a.name, func(t *testing.T) { a.run(ctx, t, chosen[a.name]) })
	})
	for _, a := range left {
		t.Errorf("area %s was not begun: %v", a.name, ctx.Err())
	}
	var outcomes []verdict.Outcome
	for _, a := range areas() {
		for _, r := range chosen[a.name] {
			if r.outcome().Failed() && ctx.Err() == nil {
				t.Run("again/"+r.name(), func(t *testing.T) { a.run(ctx, t, []*record{r}) })
			}
			outcomes = append(outcomes, r.outcome())
		}
	}
	lines, passed := verdict.Judge(outcomes)
	summary = append(summary, lines...)
	if !passed {
		t.Fail()
	}
}

// choose finds the promises of the wanted areas whose names match, by area. The wanted are names of areas or all, and
// those with a minus before them are left out.
func choose(wanted, matching string) (map[string][]*record, error) {
	only, err := regexp.Compile(matching)
	if err != nil {
		return nil, fmt.Errorf("PROMISE %q is not a regular expression: %w", matching, err)
	}
	var names []string
	for _, a := range areas() {
		names = append(names, a.name)
	}
	var of []string
	for _, name := range strings.Fields(wanted) {
		left, out := strings.CutPrefix(name, "-")
		switch {
		case name == allAreas:
			of = append(of, names...)
		case !slices.Contains(names, left):
			return nil, fmt.Errorf("area %q is unknown; it must be all, one of %s, or several with spaces between them, of which those with a minus before them are left out",
				left, strings.Join(names, ", "))
		case out:
			of = slices.DeleteFunc(of, func(name string) bool { return name == left })
		default:
			of = append(of, name)
		}
	}
	chosen := make(map[string][]*record)
	for _, a := range areas() {
		if !slices.Contains(of, a.name) {
			continue
		}
		for _, p := range a.promises {
			if only.MatchString(p.name) {
				chosen[a.name] = append(chosen[a.name], &record{area: a, promise: p})
			}
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("PROMISE %q matches no promise of %s", matching, strings.Join(of, ", "))
	}
	return chosen, nil
}

// run tries promises of an area in a common lab: one after the other, but for neighbours that may
// run beside each other.
func (a area) run(ctx context.Context, t *testing.T, records []*record) {
	cluster := lab.Start(observed{T: t, records: records}, a.shape())
	client, err := cluster.Client()
	if err != nil {
		t.Fatal(err)
	}
	release, err := client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("%s: Kubernetes %s\n", a.name, release.GitVersion)
	if a.prepare != nil {
		if err := a.prepare(t.Context(), cluster); err != nil {
			line := fmt.Sprintf("FAIL %s could not be prepared: %v", a.name, err)
			summary = append(summary, line)
			t.Fatal(line)
		}
	}
	for len(records) > 0 {
		n := 1
		for n < len(records) && records[n-1].promise.beside && records[n].promise.beside {
			n++
		}
		var running sync.WaitGroup
		places := make(chan struct{}, together)
		for _, r := range records[:n] {
			places <- struct{}{}
			running.Go(func() {
				r.try(ctx, &scene{Client: client, cluster: cluster, options: cluster.Options()})
				<-places
			})
		}
		running.Wait()
		records = records[n:]
	}
}

// try tries a promise, unless the run has ended.
func (r *record) try(ctx context.Context, s *scene) {
	if ctx.Err() != nil {
		return
	}
	begun := time.Now()
	figure, err := r.promise.show(ctx, s)
	try := verdict.Try{Figure: figure, Err: err, Took: time.Since(begun)}
	r.tries = append(r.tries, try)
	word := "ok"
	if err != nil {
		word = "FAIL"
	}
	fmt.Println(word, r.name(), try)
}

// observed also shows the lab's logs of promises that failed and will be tried again, at
// once: go test prints no logs of a test that passes.
type observed struct {
	*testing.T
	records []*record
}

func (o observed) Failed() bool {
	return o.T.Failed() || slices.ContainsFunc(o.records, func(r *record) bool { return r.outcome().Failed() })
}

func (o observed) Logf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// show checks a promise in a namespace that is then removed, without waiting for that.
func (p promise) show(ctx context.Context, s *scene) (figure string, err error) {
	if p.within == 0 {
		p.within = usualTime
	}
	ctx, cancel := context.WithTimeout(ctx, p.within)
	defer cancel()
	if s.namespace, err = s.MakeNamespace(ctx, p.name); err != nil {
		return "", err
	}
	defer func() {
		// The context of a promise that took too long has ended.
		err = errors.Join(err, s.RemoveNamespace(context.WithoutCancel(ctx), s.namespace))
	}()
	return p.keep(ctx, s)
}
