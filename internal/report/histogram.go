package report

import (
	"fmt"
	"math"

	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/simulate"
)

func total(h simulate.Histogram) int64 {
	var sum int64
	for _, n := range h.Counts {
		sum += n
	}
	return sum
}

// fullest is the percentage of cases in the fullest bin.
func fullest(h simulate.Histogram) float64 {
	var most int64
	for _, n := range h.Counts {
		most = max(most, n)
	}
	return 100 * float64(most) / float64(max(total(h), 1))
}

// end is the end of the last bin that has a case.
func end(h simulate.Histogram) float64 {
	for i := len(h.Counts); i > 0; i-- {
		if h.Counts[i-1] > 0 {
			return float64(i) * h.Width
		}
	}
	return 0
}

type distribution struct {
	id, title, unit, class string
	// Charts to compare share these: most and ticks of the axis of values, and tallest, the largest
	// percentage of cases.
	most    float64
	ticks   []tick
	tallest float64
	mean    float64
	// limit, if above 0, is a value to mark.
	limit float64
	// open means that the last bin has no end.
	open bool
}

// draw makes the chart. Heights grow with the square root of the number of cases, so that rare cases
// stay visible.
func (d distribution) draw(h simulate.Histogram) figure {
	f := figure{ID: d.id, Title: d.title, Class: "chart histogram", Width: 360, Height: 148}
	cases := total(h)
	if cases == 0 {
		return empty(f, "no cases")
	}
	f.Title += fmt.Sprintf(" of %s, mean %s", plaintext.Plural(cases, "case"), percent(d.mean))
	var heights []tick
	for _, t := range percentTicks(1, 10, 25, 50, 100) {
		if t.value <= d.tallest*1.02 {
			heights = append(heights, t)
		}
	}
	c := newChart(f, margins{top: 20, right: 20, bottom: 36, left: 44},
		axis{most: d.most, ticks: d.ticks}, axis{most: d.tallest, ticks: heights, bend: math.Sqrt}, d.unit)
	if d.limit > 0 && d.limit <= d.most {
		c.add(shape{Kind: line, Class: "limit", X: c.x.at(d.limit), Y: c.y.to - 4, H: c.y.from - c.y.to + 4, Hint: "threshold " + shortPercent(d.limit)})
	}
	for i, n := range h.Counts {
		if n == 0 {
			continue
		}
		from, to := float64(i)*h.Width, float64(i+1)*h.Width
		values := shortPercent(from) + " to " + shortPercent(to)
		if d.open && i == len(h.Counts)-1 {
			values = shortPercent(from) + " or more"
		}
		left, right := c.x.at(from), c.x.at(to)
		// Even one case in millions must show.
		part := 100 * float64(n) / float64(cases)
		top := min(c.y.at(part), c.y.from-1)
		gap := 0.0
		if right-left > 4 {
			gap = 1
		}
		c.add(shape{
			Kind: rect, Class: "bar " + d.class, X: left, Y: top, W: max(right-left-gap, 0.8), H: c.y.from - top,
			Hint: fmt.Sprintf("%s: %s, %s", values, plaintext.Plural(n, "case"), percent(part)),
		})
	}
	at := c.x.at(d.mean)
	c.add(shape{Kind: line, Class: "mean", X: at, Y: c.y.to - 4, H: c.y.from - c.y.to + 4})
	anchor := "start"
	if at > f.Width/2 {
		anchor = "end"
	}
	c.label("value", at, c.y.to-8, anchor, "mean "+percent(d.mean))
	return c.figure
}
