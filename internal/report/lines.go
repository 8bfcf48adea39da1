package report

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// track is a percentage over time. A value holds until the next point.
type track struct {
	at     []time.Duration
	values []float64
}

func (t *track) note(at time.Duration, value *float64) {
	if value != nil {
		t.at, t.values = append(t.at, at), append(t.values, *value)
	}
}

// draw makes the chart of a run until its end.
func (t *track) draw(id, title, class string, end time.Duration) figure {
	f := figure{ID: id, Title: title, Class: "chart history", Width: 360, Height: 136}
	if len(t.at) == 0 {
		return empty(f, "nothing recorded")
	}
	most, percents := upTo(max(slices.Max(t.values), 10))
	times, unit := timeScale(end)
	c := newChart(f, margins{top: 22, right: 20, bottom: 36, left: 44}, axis{most: float64(end), ticks: times}, axis{most: most, ticks: percents}, unit)
	c.label("unit", c.x.from, 11, "start", title)
	var trace strings.Builder
	for i, value := range t.values {
		x, y := px(c.x.at(float64(t.at[i]))), px(c.y.at(value))
		if i == 0 {
			fmt.Fprintf(&trace, "M%s %s", x, y)
		} else {
			fmt.Fprintf(&trace, "H%sV%s", x, y)
		}
	}
	fmt.Fprintf(&trace, "H%s", px(c.x.to))
	c.add(shape{Kind: path, Class: "trace " + class, Path: trace.String()})
	return c.figure
}

// timeScale marks a span of time in a fitting unit, and names the unit.
func timeScale(end time.Duration) (ticks []tick, unit string) {
	size, unit := time.Second, "seconds"
	switch {
	case end > 3*time.Hour:
		size, unit = time.Hour, "hours"
	case end > 3*time.Minute:
		size, unit = time.Minute, "minutes"
	}
	whole := float64(end) / float64(size)
	step := nice(whole / 6)
	for n := 0.0; n <= whole; n += step {
		ticks = append(ticks, tick{n * float64(size), fmt.Sprint(n)})
	}
	return ticks, unit
}
