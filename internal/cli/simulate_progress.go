package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"vicinity.dev/vicinity/internal/command"
	"vicinity.dev/vicinity/internal/simulate"
)

// progress draws a bar that is written over and over on one line.
type progress struct {
	out   io.Writer // nil for none
	drawn bool
}

func newProgress(w io.Writer, mode string) (*progress, error) {
	switch mode {
	case "always":
		return &progress{out: w}, nil
	case "never":
		return &progress{}, nil
	case "auto":
		if file, ok := w.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
			return &progress{out: w}, nil
		}
		return &progress{}, nil
	}
	return nil, command.UsageErrorf("--progress %q is unknown; it must be auto, always or never", mode)
}

// redraw is the time from one picture of the bar to the next.
const redraw = 100 * time.Millisecond

// start returns the function to call with the number of cases done, nil if
// none is drawn.
func (p *progress) start(dataset simulate.Dataset, clock func() time.Duration) func(int64) {
	if p.out == nil {
		return nil
	}
	var last time.Duration
	return func(done int64) {
		now := clock()
		if now-last < redraw {
			return
		}
		last = now
		p.draw(done, dataset, now)
	}
}

// draw draws the bar, as far as it is known how long it should be.
func (p *progress) draw(done int64, dataset simulate.Dataset, passed time.Duration) {
	const width = 30
	p.drawn = true
	all, known := dataset.Cases()
	if !known {
		p.line(fmt.Sprintf("%s, %s", count(done, "case", "cases"), passed.Round(time.Second)))
		return
	}
	share := float64(done) / float64(all)
	filled := int(share * width)
	left := time.Duration(float64(passed) * (1/share - 1))
	p.line(fmt.Sprintf("[%s%s] %3.0f%%, %s left", strings.Repeat("#", filled), strings.Repeat(" ", width-filled), 100*share, left.Round(time.Second)))
}

// line replaces the line. Nothing can be done about a failure to show progress.
func (p *progress) line(text string) {
	_, _ = fmt.Fprintf(p.out, "\r%s\x1b[K", text)
}

// end removes the bar.
func (p *progress) end() {
	if p.drawn {
		p.line("")
	}
}
