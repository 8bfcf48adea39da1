// Package e2e_test holds what the project promises, and shows it in a real cluster: a
// lab. An area is a part of the project, a promise a sentence about it that is either
// kept or not. Each prints one line, "ok AREA/promise figure" or "FAIL AREA/promise
// why", and all are tried, whatever failed before. One that failed is tried once more
// after all others, by itself in a lab of its own; the package verdict decides what that
// means for the run.
//
// "make e2e" runs them, or those of one area: AREA=lab. Without the variable E2E_AREA,
// which it sets, nothing here runs: they need root, and minutes.
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
	"syscall"
	"testing"
	"time"

	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/test/e2e/verdict"
)

// area is a part of the project with what it promises, shown in a cluster that its
// promises share. They run in order, each in a namespace of its own.
type area struct {
	name  string
	shape func() shape.Shape
	// prepare does in the cluster what all promises need, if anything.
	prepare  func(context.Context, *lab.Cluster) error
	promises []promise
}

// promise is one thing that the project promises.
type promise struct {
	name string
	// within is how long it may take; nothing is as long as usual.
	within time.Duration
	// keep shows the promise and returns the figure that it is about.
	keep func(context.Context, *scene) (figure string, err error)
}

// usualTime is how long a promise may take that does not say otherwise.
const usualTime = 2 * time.Minute

// scene is where a promise is shown.
type scene struct {
	*lab.Client
	cluster *lab.Cluster
	// namespace is the promise's own.
	namespace string
	// root is where this run has its labs; promises about whole labs make theirs
	// there too.
	options lab.Options
	// cutOff are the nodes that a promise has cut off.
	cutOff []string
}

// areas are all there are, in the order in which they run.
func areas() []area { return []area{labArea(), routingArea(), proxyArea()} }

const (
	areaVariable = "E2E_AREA"
	allAreas     = "all"
)

func TestMain(m *testing.M) {
	if os.Getenv(areaVariable) == "" {
		os.Exit(0)
	}
	// Interrupted, a test program would end at once and leave its labs behind: instead
	// what runs fails, and nothing else begins.
	var stop context.CancelFunc
	interrupted, stop = signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := m.Run()
	stop()
	// What failed stands between the logs of labs, which are long and may be cut.
	for _, line := range summary {
		fmt.Println(line)
	}
	os.Exit(code)
}

// interrupted ends when the user no longer wants to wait.
var interrupted = context.Background()

// summary is what the run came to, in lines.
var summary []string

// takeDownTime is what is left of the time of a run to take the last lab down.
const takeDownTime = 2 * time.Minute

// record is a promise that a run is about, and how often it was tried.
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
	for _, a := range areas() {
		if of := chosen[a.name]; len(of) > 0 {
			t.Run(a.name, func(t *testing.T) { a.run(ctx, t, of) })
		}
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

// choose finds the promises of some areas, or of all, whose names match, by area.
func choose(wanted, matching string) (map[string][]*record, error) {
	only, err := regexp.Compile(matching)
	if err != nil {
		return nil, fmt.Errorf("PROMISE %q is not a regular expression: %w", matching, err)
	}
	byName := make(map[string]area)
	var names []string
	for _, a := range areas() {
		byName[a.name] = a
		names = append(names, a.name)
	}
	of := names
	if wanted != allAreas {
		of = strings.Fields(wanted)
	}
	chosen := make(map[string][]*record)
	for _, name := range of {
		a, ok := byName[name]
		if !ok {
			return nil, fmt.Errorf("area %q is unknown; it must be one of %s, or several with spaces between them", name, strings.Join(names, ", "))
		}
		for _, p := range a.promises {
			if only.MatchString(p.name) {
				chosen[name] = append(chosen[name], &record{area: a, promise: p})
			}
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("PROMISE %q matches no promise of %s", matching, strings.Join(of, ", "))
	}
	return chosen, nil
}

// run tries promises of an area, one after the other, in a lab that they share. Without
// a lab none is tried.
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
	for _, r := range records {
		if ctx.Err() != nil {
			return
		}
		s := &scene{Client: client, cluster: cluster, options: cluster.Options()}
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
}

// observed is a test whose lab also shows its logs when a promise was not kept that is
// tried again, and shows them at once: the run may pass yet, and go test shows no logs
// of a test that passed.
type observed struct {
	*testing.T
	records []*record
}

func (o observed) Failed() bool {
	return o.T.Failed() || slices.ContainsFunc(o.records, func(r *record) bool { return r.outcome().Failed() })
}

func (o observed) Logf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// show keeps a promise in a namespace that is removed afterwards. It does not wait
// for it to go: the next promise has one of its own.
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
