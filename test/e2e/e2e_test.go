// Package e2e_test holds what the project promises, and shows it in a real cluster: a
// lab. An area is a part of the project, a promise a sentence about it that is either
// kept or not. Each prints one line, "ok AREA/promise figure" or "FAIL AREA/promise
// why", and all are tried, whatever failed before.
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
	"strings"
	"syscall"
	"testing"
	"time"

	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/shape"
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
	for _, line := range broken {
		fmt.Println(line)
	}
	fmt.Printf("promises: %d passed, %d failed\n", kept, len(broken))
	os.Exit(code)
}

// interrupted ends when the user no longer wants to wait.
var interrupted = context.Background()

// Promises are tried one after the other: kept counts those that were kept. broken has
// a line for each that was not, and for what kept an area from beginning.
var (
	kept   int
	broken []string
)

func TestPromises(t *testing.T) {
	wanted, only := os.Getenv(areaVariable), regexp.MustCompile(os.Getenv("E2E_PROMISE"))
	var names []string
	ran := false
	for _, a := range areas() {
		names = append(names, a.name)
		if wanted == a.name || wanted == allAreas {
			ran = true
			t.Run(a.name, func(t *testing.T) { a.run(t, only) })
		}
	}
	if !ran {
		t.Fatalf("area %q is unknown; it must be one of %s", wanted, strings.Join(names, ", "))
	}
}

func (a area) run(t *testing.T, only *regexp.Regexp) {
	cluster := lab.Start(t, a.shape())
	client, err := cluster.Client()
	if err != nil {
		t.Fatal(err)
	}
	if a.prepare != nil {
		begun := time.Now()
		if err := a.prepare(t.Context(), cluster); err != nil {
			a.broke("prepare", err, begun)
			t.FailNow()
		}
	}
	for _, p := range a.promises {
		if !only.MatchString(p.name) || interrupted.Err() != nil {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			s := &scene{Client: client, cluster: cluster, options: cluster.Options()}
			begun := time.Now()
			figure, err := p.show(interrupted, s)
			if err != nil {
				t.Fail()
				a.broke(p.name, err, begun)
				return
			}
			kept++
			fmt.Printf("ok %s/%s %s (%s)\n", a.name, p.name, figure, tenths(begun))
		})
	}
}

// broke notes and prints that something in an area failed.
func (a area) broke(name string, err error, begun time.Time) {
	line := fmt.Sprintf("FAIL %s/%s %s (%s)", a.name, name, oneLine(err), tenths(begun))
	broken = append(broken, line)
	fmt.Println(line)
}

// tenths is the time since a moment, in tenths of seconds.
func tenths(begun time.Time) time.Duration { return time.Since(begun).Round(100 * time.Millisecond) }

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

// oneLine is the message of an error, which may join several, on one line.
func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' }), "; ")
}
