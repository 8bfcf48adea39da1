// Package e2e_test checks the project's promises in labs. An area is a part of the project, a
// promise a sentence about it that can be checked. Each promise prints one line, "ok AREA/promise
// figure" or "FAIL AREA/promise why". A promise that fails fails the run, but the others are still
// tried.
//
// Areas share labs, and one lab runs at a time. "make test" tries the promises of its tier, "make
// e2e" all but the promises of "make soak" alone. AREA=proxy selects an area. The promises need
// root and take minutes: without the variable E2E_AREA, which make sets, nothing runs.
package e2e_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/signal"
	"path/filepath"
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
	"vicinity.dev/vicinity/test/built"
)

// setup configures a lab that areas share.
type setup struct {
	name    string
	shape   func() shape.Shape
	prepare func(context.Context, *lab.Cluster) error
}

// area is a part of the project. Its promises run in order, each in a namespace of its own.
// Neighbours that may run beside each other do.
type area struct {
	name     string
	setup    *setup
	promises []promise
}

type promise struct {
	name string
	tier tier
	// within limits the duration; the default is usualTime. A long form has longForm.
	within time.Duration
	// beside says that the promise changes nothing that others of the area use, and that they do
	// not disturb its measurements.
	beside bool
	// alone says that the promise brings up a lab of its own; no other lab runs meanwhile.
	alone bool
	// keep checks the promise and returns its figure.
	keep func(context.Context, *scene) (figure string, err error)
}

// tier is the smallest target of make that tries a promise.
type tier string

const (
	inE2E  tier = "" // make e2e
	inTest tier = "test"
	inSoak tier = "soak" // only make soak
)

const (
	usualTime = 2 * time.Minute
	longForm  = 3 * time.Hour
)

// together is the number of promises that run at the same time: the cores of the smallest machine.
const together = 2

// scene is the place where a promise is checked. A promise that is alone gets only options.
type scene struct {
	*lab.Client
	cluster *lab.Cluster
	// namespace belongs to the promise.
	namespace string
	// options are the options of this run's labs.
	options lab.Options
}

// areas returns all areas in the order in which they run. Areas that share a lab are neighbours.
func areas() []area {
	return []area{
		routingArea(), proxyArea(), namesArea(), shiftArea(), doctorArea(), consoleArea(), releaseArea(),
		disruptionArea(), rolloutsArea(),
		labArea(), everythingArea(), metricsArea(),
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
	// An interrupt would end a test program at once and leave its labs behind. Here the current
	// promises fail, and no other starts.
	var stop context.CancelFunc
	interrupted, stop = signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := m.Run()
	stop()
	// The logs above are long and may be cut, so the summary comes last.
	for _, line := range summary {
		fmt.Println(line)
	}
	os.Exit(code)
}

// interrupted returns a context that ends on an interrupt.
var interrupted = context.Background()

// summary has the lines of the run's summary.
var summary []string

// takeDownTime is reserved at the end of a run to take the last lab down.
const takeDownTime = 2 * time.Minute

// record is a promise with its tries.
type record struct {
	area    area
	promise promise
	tries   []verdict.Try
}

func (r *record) outcome() verdict.Outcome {
	return verdict.Outcome{Area: r.area.name, Promise: r.promise.name, Tries: r.tries}
}

func TestPromises(t *testing.T) {
	ctx := interrupted
	if deadline, ok := t.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-takeDownTime))
		defer cancel()
	}
	chosen, err := choose(os.Getenv(areaVariable), os.Getenv("E2E_TIER"), os.Getenv("E2E_PROMISE"))
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	for shared := range inLabs(chosen) {
		t.Run(shared[0].area.setup.name, func(t *testing.T) { runAll(ctx, t, shared) })
	}
	if os.Getenv("E2E_RETRIES") == "1" {
		for _, r := range chosen {
			if r.outcome().Failed() {
				t.Run("again/"+r.outcome().Name(), func(t *testing.T) { runAll(ctx, t, []*record{r}) })
			}
		}
	}
	var outcomes []verdict.Outcome
	for _, r := range chosen {
		outcomes = append(outcomes, r.outcome())
	}
	lines, passed := verdict.Judge(outcomes)
	summary = append(slices.Concat(verdict.Table(outcomes), lines, summary), fmt.Sprintf("labs took %s", time.Since(begun).Round(time.Second)))
	if !passed {
		t.Fail()
	}
}

// inLabs yields promises lab by lab: all promises that share a lab together, and each promise that
// is alone by itself.
func inLabs(chosen []*record) iter.Seq[[]*record] {
	return func(yield func([]*record) bool) {
		for len(chosen) > 0 {
			n := 1
			for n < len(chosen) && chosen[n].area.setup == chosen[0].area.setup {
				n++
			}
			var shared, alone []*record
			for _, r := range chosen[:n] {
				if r.promise.alone {
					alone = append(alone, r)
				} else {
					shared = append(shared, r)
				}
			}
			if len(shared) > 0 && !yield(shared) {
				return
			}
			for _, r := range alone {
				if !yield([]*record{r}) {
					return
				}
			}
			chosen = chosen[n:]
		}
	}
}

// choose returns the promises of the wanted areas and tier whose names match. wanted has names of
// areas, or all; a minus before an area excludes it.
func choose(wanted, wantedTier, matching string) ([]*record, error) {
	only, err := regexp.Compile(matching)
	if err != nil {
		return nil, fmt.Errorf("PROMISE %q is not a regular expression: %w", matching, err)
	}
	if wantedTier := tier(wantedTier); wantedTier != inE2E && wantedTier != inTest {
		return nil, fmt.Errorf("TIER %q is unknown; it must be %s, or empty for all promises", wantedTier, inTest)
	}
	var names []string
	for _, a := range areas() {
		names = append(names, a.name)
	}
	var in []string
	for _, name := range strings.Fields(wanted) {
		left, out := strings.CutPrefix(name, "-")
		switch {
		case name == allAreas:
			in = append(in, names...)
		case !slices.Contains(names, left):
			return nil, fmt.Errorf("AREA %q is unknown; it must be all, or one or more of %s; a minus before an area excludes it",
				left, strings.Join(names, ", "))
		case out:
			in = slices.DeleteFunc(in, func(name string) bool { return name == left })
		default:
			in = append(in, name)
		}
	}
	var chosen []*record
	var soak []string
	for _, a := range areas() {
		if !slices.Contains(in, a.name) {
			continue
		}
		for _, p := range a.promises {
			switch {
			case !only.MatchString(p.name):
			case p.tier == inSoak && !soaking():
				soak = append(soak, a.name+"/"+p.name)
			case wantedTier == "" || p.tier == tier(wantedTier):
				chosen = append(chosen, &record{area: a, promise: p})
			}
		}
	}
	switch {
	case len(chosen) == 0 && len(soak) > 0:
		return nil, fmt.Errorf("only \"make soak\" tries %s; it takes AREA and PROMISE too", strings.Join(soak, ", "))
	case len(chosen) == 0:
		return nil, fmt.Errorf("PROMISE %q matches no promise of %s", matching, strings.Join(in, ", "))
	}
	return chosen, nil
}

// runAll tries promises in one lab, one after the other; neighbours that may run beside each other
// run at the same time.
func runAll(ctx context.Context, t *testing.T, records []*record) {
	if ctx.Err() != nil {
		t.Errorf("not begun: %v", ctx.Err())
		return
	}
	if records[0].promise.alone {
		program, err := labProgram()
		if err != nil {
			t.Fatal(err)
		}
		records[0].try(ctx, &scene{options: lab.Options{Root: t.TempDir(), Program: program}})
		return
	}
	begun := time.Now()
	in := records[0].area.setup
	cluster := bringUp(t, in.shape(), records)
	client, err := cluster.Client()
	if err != nil {
		t.Fatal(err)
	}
	release, err := client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if err := in.prepare(t.Context(), cluster); err != nil {
		line := fmt.Sprintf("FAIL lab %s could not be prepared: %v", in.name, err)
		summary = append(summary, line)
		t.Fatal(line)
	}
	fmt.Printf("lab %s: Kubernetes %s, up after %.0f s\n", in.name, release.GitVersion, time.Since(begun).Seconds())
	for len(records) > 0 {
		n := 1
		for n < len(records) && records[n-1].mayRunBeside(records[n]) {
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

// mayRunBeside reports whether a promise may run beside its neighbour.
func (r *record) mayRunBeside(next *record) bool {
	return r.area.name == next.area.name && r.promise.beside && next.promise.beside
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
	fmt.Println(word, r.outcome().Name(), try)
}

// bringUp brings a lab up and takes it down when the test ends. The process ID in its name keeps it
// apart from users' labs. If a promise failed, bringUp prints the end of the components' logs.
func bringUp(t *testing.T, s shape.Shape, records []*record) *lab.Cluster {
	t.Helper()
	program, err := labProgram()
	if err != nil {
		t.Fatal(err)
	}
	s.Name = fmt.Sprintf("%s-%d", s.Name, os.Getpid())
	var log bytes.Buffer
	cluster, err := lab.Up(t.Context(), s, lab.Options{Root: t.TempDir(), Program: program, Log: &log})
	if err != nil {
		t.Fatalf("bringing a lab up: %v\n%s", err, &log)
	}
	t.Cleanup(func() {
		if t.Failed() || slices.ContainsFunc(records, func(r *record) bool { return r.outcome().Failed() }) {
			fmt.Println("the lab's logs end with")
			if err := cluster.ComponentLogs(os.Stdout, nil); err != nil {
				fmt.Println("reading the lab's logs:", err)
			}
		}
		// The test's context has ended.
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := cluster.Down(ctx); err != nil {
			t.Fatalf("taking the lab down: %v", err)
		}
	})
	return cluster
}

// labProgram returns the path in VICINITY_LAB, or bin/vicinity-lab.
func labProgram() (string, error) {
	if program := os.Getenv("VICINITY_LAB"); program != "" {
		return filepath.Abs(program)
	}
	return built.Program("vicinity-lab")
}

// show checks a promise in a namespace that it then removes, without waiting for the removal.
func (p promise) show(ctx context.Context, s *scene) (figure string, err error) {
	within := cmp.Or(p.within, usualTime)
	if soaking() {
		within = longForm
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if p.alone {
		return p.kept(ctx, s)
	}
	if s.namespace, err = s.MakeNamespace(ctx, p.name); err != nil {
		return "", err
	}
	defer func() {
		// If the promise took too long, its context has ended.
		err = errors.Join(err, s.RemoveNamespace(context.WithoutCancel(ctx), s.namespace))
	}()
	return p.kept(ctx, s)
}

// kept checks a promise. check and must may end it.
func (p promise) kept(ctx context.Context, s *scene) (figure string, err error) {
	defer undo(&err, func() error { return nil })
	return p.keep(ctx, s)
}

// undo is deferred to restore shared state after a promise. It receives the promise's error, also
// when check ends the promise, and joins its own.
func undo(err *error, change func() error) {
	thrown := recover()
	if failed, is := thrown.(failure); is {
		*err, thrown = failed.error, nil
	}
	*err = errors.Join(*err, change())
	if thrown != nil {
		panic(thrown)
	}
}

// failure is the panic value that ends a promise.
type failure struct{ error }

// check ends the promise if there is an error. Only functions on the promise's own call path may
// call it: it must not leave a goroutine, nor skip a function that adds context to the error. Other
// functions return errors.
func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// must is check for a function that also returns a value.
func must[T any](value T, err error) T {
	check(err)
	return value
}
