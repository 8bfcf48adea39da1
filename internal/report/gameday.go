package report

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"vicinity.dev/vicinity/internal/inspect/gameday"
	"vicinity.dev/vicinity/internal/kit/plaintext"
)

// GameDay writes the page about a practice run.
func GameDay(w io.Writer, run *gameday.Run) error {
	var inDomain, busiest track
	for _, s := range run.Samples {
		at := time.Duration(s.Second) * time.Second
		inDomain.note(at, s.InDomain)
		busiest.note(at, s.Busiest)
	}
	length := time.Duration(run.Seconds) * time.Second
	return page{
		Title: "Vicinity: practice run without " + run.From.Value, Command: "vicinity gameday", Headline: strings.ToUpper(run.Result[:1]) + run.Result[1:],
		Lead: fmt.Sprintf("%s=%s was out of service for %s from %s.", run.From.Key, run.From.Value, plaintext.Span(length), plaintext.Clock(run.Begun.Time)),
		Facts: []fact{
			{"Reason", run.Reason},
			{"Services that should move", plaintext.Thousands(int64(len(run.Services)))},
			{"Services that should yield", cmp.Or(plaintext.FirstOf(run.Yields, 8), "none")},
		},
		Body: struct {
			*gameday.Run
			Figures []figure
		}{run, []figure{
			inDomain.draw("in-domain", "New connections that end in the domain", "line-1", length),
			busiest.draw("busiest", "Load on top of the busiest Service, until then", "line-2", length),
		}},
	}.write(w, "gameday")
}
