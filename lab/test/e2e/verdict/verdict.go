// Package verdict decides whether a run of promises has passed, from the results of their
// tries.
//
// A promise that failed may be tried once more: on a shared machine a single failure can be
// chance, but not a second one, nor many single ones. A try that the machine disturbed
// shows nothing: another one must keep the promise, and it does not count as a failure.
package verdict

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// MostOnSecondTry is how many promises of a run may need their second try, except those
// whose first one was disturbed.
const MostOnSecondTry = 2

// ErrDisturbed is wrapped in the error of a disturbed try.
var ErrDisturbed = errors.New("the machine stood still")

// Try is a try to keep a promise.
type Try struct {
	// Figure is what a successful try measured.
	Figure string
	// Err is why the promise was not kept.
	Err  error
	Took time.Duration
}

// String is the figure or the error on one line, and the duration.
func (t Try) String() string {
	text := t.Figure
	if t.Err != nil {
		text = oneLine(t.Err)
	}
	return fmt.Sprintf("%s (%s)", text, t.Took.Round(100*time.Millisecond))
}

// Outcome is the result of a promise.
type Outcome struct {
	// Promise is AREA/promise.
	Promise string
	// Tries is empty if the run ended before, and has a second one only after a failed
	// first one.
	Tries []Try
}

type state int

const (
	notTried state = iota
	kept
	keptOnSecondTry
	failed
)

func (o Outcome) state() state {
	switch n := len(o.Tries); {
	case n == 0:
		return notTried
	case o.Tries[n-1].Err != nil:
		return failed
	case n > 1:
		return keptOnSecondTry
	}
	return kept
}

// disturbed reports whether the first try was disturbed.
func (o Outcome) disturbed() bool { return errors.Is(o.Tries[0].Err, ErrDisturbed) }

// Failed reports whether the last try failed.
func (o Outcome) Failed() bool { return o.state() == failed }

// Judge decides whether a run has passed, and returns the lines to print. A run passes if
// all promises were kept, at most MostOnSecondTry of them on their second try after an
// undisturbed first one.
func Judge(outcomes []Outcome) (lines []string, passed bool) {
	in := make(map[state][]Outcome)
	for _, o := range outcomes {
		in[o.state()] = append(in[o.state()], o)
	}
	if len(in[keptOnSecondTry]) > 0 {
		lines = append(lines, "kept on the second try")
	}
	for _, o := range in[keptOnSecondTry] {
		lines = append(lines, "  "+o.Promise, "    first:  "+o.Tries[0].String(), "    second: "+o.Tries[1].String())
	}
	for _, o := range in[failed] {
		line := "FAIL " + o.Promise + " " + o.Tries[0].String()
		if len(o.Tries) > 1 {
			line += "; second try: " + o.Tries[1].String()
		}
		lines = append(lines, line)
	}
	failedOnce := 0
	for _, o := range in[keptOnSecondTry] {
		if !o.disturbed() {
			failedOnce++
		}
	}
	tooMany := failedOnce > MostOnSecondTry
	if tooMany {
		lines = append(lines, fmt.Sprintf("FAIL %d promises needed a second try; at most %d may", failedOnce, MostOnSecondTry))
	}
	total := fmt.Sprintf("promises: %d passed, %d failed", len(in[kept])+len(in[keptOnSecondTry]), len(in[failed]))
	if n := len(in[notTried]); n > 0 {
		total += fmt.Sprintf(", %d not tried", n)
	}
	return append(lines, total), len(in[failed]) == 0 && len(in[notTried]) == 0 && !tooMany
}

// Each runs one after the other until the context ends. It returns those that were not begun.
func Each[T any](ctx context.Context, all []T, run func(T)) (left []T) {
	for i, one := range all {
		if ctx.Err() != nil {
			return all[i:]
		}
		run(one)
	}
	return nil
}

// oneLine is the message of an error, which may join several, on one line.
func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' }), "; ")
}
