package report

import (
	"fmt"
	"math"
	"time"
)

// track is a value over time. A value holds until the next point. NaN leaves a gap.
type track struct {
	at     []time.Duration
	values []float64
}

func (t track) greatest() float64 {
	most := 0.0
	for _, v := range t.values {
		if v > most && !math.IsInf(v, 1) {
			most = v
		}
	}
	return most
}

// fine is the distance below which two points look the same.
const fine = 0.5

// trace adds the path of the track to an outline. Points that are too close to tell apart become their
// range, so that a long history does not make a large page.
func (t track) trace(c *chart, o *outline) {
	drawing := false
	for i := 0; i < len(t.at); {
		x := c.x.at(float64(t.at[i]))
		first, last := t.values[i], t.values[i]
		low, high := first, first
		next := i + 1
		for ; next < len(t.at) && c.x.at(float64(t.at[next])) < x+fine; next++ {
			last = t.values[next]
			low, high = math.Min(low, last), math.Max(high, last)
		}
		switch {
		case math.IsNaN(first):
			if drawing {
				o.op("H", x)
			}
		case drawing:
			o.op("H", x)
			o.op("V", c.y.at(first))
		default:
			o.op("M", x, c.y.at(first))
		}
		if low < high {
			o.op("V", c.y.at(high))
			o.op("V", c.y.at(low))
			o.op("V", c.y.at(last))
		}
		drawing = !math.IsNaN(last)
		i = next
	}
	if drawing {
		o.op("H", c.x.to)
	}
}

type history struct {
	id, title, class string
	// head is the title of the chart.
	head string
	end  time.Duration
	// most and ticks are the end and the marks of the axis of values.
	most  float64
	ticks []tick
	// limit is a value to mark, if above 0; the chart is shaded from it on.
	limit float64
	// timed draws the time axis, which the lower of two charts has for both.
	timed bool
	// around are the tracks to compare with. A page draws them once; other charts repeat the path
	// aroundID.
	around   []track
	aroundID string
}

func (h history) draw(t track) figure {
	f := figure{ID: h.id, Title: h.title, Class: "chart history", Width: 360, Height: 112}
	if len(t.at) == 0 {
		return empty(f, "nothing recorded")
	}
	m := margins{top: 22, right: 20, bottom: 12, left: 44}
	ticks, unit := timeScale(h.end)
	if h.timed {
		f.Height += 24
		m.bottom += 24
	} else {
		ticks, unit = nil, ""
	}
	c := newChart(f, m, axis{most: float64(h.end), ticks: ticks}, axis{most: h.most, ticks: h.ticks}, unit)
	c.label("unit", c.x.from, 11, "start", h.head)
	if h.limit > 0 && h.limit <= h.most {
		at := c.y.at(h.limit)
		c.add(
			shape{Kind: rect, Class: "above", X: c.x.from, Y: c.y.to, W: c.x.to - c.x.from, H: at - c.y.to},
			shape{Kind: line, Class: "limit", X: c.x.from, Y: at, W: c.x.to - c.x.from, Hint: "threshold " + shortPercent(h.limit)},
		)
	}
	switch {
	case h.around != nil:
		var o outline
		for _, other := range h.around {
			other.trace(c, &o)
		}
		c.add(shape{Kind: path, ID: h.aroundID, Class: "trace other", Path: o.String()})
	case h.aroundID != "":
		c.add(shape{Kind: same, Path: "#" + h.aroundID})
	}
	var o outline
	t.trace(c, &o)
	c.add(shape{Kind: path, Class: "trace " + h.class, Path: o.String()})
	return c.figure
}

// timeScale marks a span of virtual time in a fitting unit, and names the unit.
func timeScale(end time.Duration) (ticks []tick, unit string) {
	size, unit := time.Second, "seconds"
	switch {
	case end > 72*time.Hour:
		size, unit = 24*time.Hour, "days"
	case end > 3*time.Hour:
		size, unit = time.Hour, "hours"
	case end > 3*time.Minute:
		size, unit = time.Minute, "minutes"
	}
	whole := float64(end) / float64(size)
	if whole <= 0 {
		return []tick{{0, "0"}}, unit
	}
	step := roundStep(whole, unit)
	for n := 0.0; n <= whole*(1+1e-9); n += step {
		ticks = append(ticks, tick{n * float64(size), fmt.Sprintf("%g", math.Round(n*1000)/1000)})
	}
	return ticks, unit
}

// roundStep returns a round distance for at most seven marks.
func roundStep(whole float64, unit string) float64 {
	steps := []float64{1, 2, 5, 10, 15, 20, 30, 60}
	if unit == "hours" {
		steps = []float64{1, 2, 3, 6, 12, 24}
	}
	for _, step := range steps {
		if whole >= 1 && whole/step <= 6 {
			return step
		}
	}
	return nice(whole / 6)
}
