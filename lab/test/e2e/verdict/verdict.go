// Package verdict decides whether a run of promises has passed, from the results of their tries.
//
// A promise fails if its last try fails. A promise that passes only its second try is a flake: it
// is printed with both results, and does not fail the run.
package verdict

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// Try is a try of a promise.
type Try struct {
	// Figure is the measurement of a successful try.
	Figure string
	// Err is the reason of a failed try.
	Err  error
	Took time.Duration
}

// String returns the figure or the error on one line, and the duration.
func (t Try) String() string {
	return fmt.Sprintf("%s (%s)", t.text(), t.Took.Round(100*time.Millisecond))
}

func (t Try) text() string {
	if t.Err == nil {
		return t.Figure
	}
	// An error may join several.
	return strings.Join(strings.FieldsFunc(t.Err.Error(), func(r rune) bool { return r == '\n' }), "; ")
}

// Outcome is the result of a promise.
type Outcome struct {
	Area, Promise string
	// Tries is empty if the run ended too early.
	Tries []Try
}

// Name is AREA/promise.
func (o Outcome) Name() string { return o.Area + "/" + o.Promise }

// Failed reports whether the last try failed.
func (o Outcome) Failed() bool { return len(o.Tries) > 0 && o.Tries[len(o.Tries)-1].Err != nil }

func (o Outcome) isFlake() bool { return len(o.Tries) > 1 && !o.Failed() }

// Judge decides whether a run has passed, and returns the lines to print. A run passes if it tried
// all promises and the last try of each passed.
func Judge(outcomes []Outcome) (lines []string, passed bool) {
	kept, failed, notTried := 0, 0, 0
	for _, o := range outcomes {
		switch {
		case len(o.Tries) == 0:
			notTried++
			continue
		case o.Failed():
			failed++
			lines = append(lines, "FAIL "+o.Name()+" "+tries(o))
			continue
		case o.isFlake():
			lines = append(lines, "FLAKE "+o.Name()+" "+tries(o))
		}
		kept++
	}
	total := fmt.Sprintf("promises: %d passed, %d failed", kept, failed)
	if notTried > 0 {
		total += fmt.Sprintf(", %d not tried", notTried)
	}
	return append(lines, total), failed+notTried == 0
}

func tries(o Outcome) string {
	var all []string
	for _, t := range o.Tries {
		all = append(all, t.String())
	}
	return strings.Join(all, "; second try: ")
}

// A table shows figureWidth characters of a figure. The promise's own line has all of it.
const figureWidth = 110

// Table shows the outcomes: capability, promise, seconds and figure.
func Table(outcomes []Outcome) []string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CAPABILITY\tPROMISE\tSECONDS\tFIGURE")
	for _, o := range outcomes {
		seconds, figure := "-", "not tried"
		if n := len(o.Tries); n > 0 {
			last := o.Tries[n-1]
			seconds, figure = fmt.Sprintf("%.1f", last.Took.Seconds()), shortened(last.text())
			if last.Err != nil {
				figure = "FAIL " + figure
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", o.Area, o.Promise, seconds, figure)
	}
	_ = w.Flush() // a strings.Builder never fails
	return strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
}

func shortened(figure string) string {
	if letters := []rune(figure); len(letters) > figureWidth {
		return string(letters[:figureWidth-1]) + "…"
	}
	return figure
}
