package report

import (
	"math"
	"strconv"
)

// figure is a drawing. Later shapes cover earlier ones. Shapes have classes, which the style sheet
// colours.
type figure struct {
	// ID is unique in the page and ties the drawing to its title.
	ID string
	// Title describes the drawing to readers who cannot see it.
	Title         string
	Class         string
	Width, Height float64
	Shapes        []shape
}

// shape is one element of a drawing. Kind decides which fields it uses.
type shape struct {
	Kind  kind
	Class string
	// X and Y are the corner of a rectangle, the start of a line, or the place of a text. W and H are
	// a size, or the vector of a line.
	X, Y, W, H float64
	// Round is the radius of a rectangle's corners.
	Round float64
	Path  string
	Text  string
	// Anchor is the end of a text that stands at X: start, middle or end.
	Anchor string
	// Hint is shown under the pointer.
	Hint string
}

type kind string

const (
	rect kind = "rect"
	line kind = "line"
	path kind = "path"
	text kind = "text"
)

func (f *figure) add(shapes ...shape) {
	f.Shapes = append(f.Shapes, shapes...)
}

func (f *figure) label(class string, x, y float64, anchor, words string) {
	f.add(shape{Kind: text, Class: class, X: x, Y: y, Anchor: anchor, Text: words})
}

type tick struct {
	value float64
	label string
}

// axis maps values to positions along one side of a chart.
type axis struct {
	least, most float64 // values
	from, to    float64 // positions
	ticks       []tick
	// bend distorts the distance between values; nil keeps it.
	bend func(float64) float64
}

// at returns the place of a value, within the ends.
func (a axis) at(value float64) float64 {
	bend := a.bend
	if bend == nil {
		bend = func(v float64) float64 { return v }
	}
	least, most := bend(a.least), bend(a.most)
	if most <= least {
		return a.from
	}
	part := (bend(min(max(value, a.least), a.most)) - least) / (most - least)
	return a.from + part*(a.to-a.from)
}

func percentTicks(values ...float64) []tick {
	var ticks []tick
	for _, v := range values {
		ticks = append(ticks, tick{v, shortPercent(v)})
	}
	return ticks
}

// nice returns the smallest of 1, 2, 2.5 and 5 times a power of ten that is not below the value.
func nice(value float64) float64 {
	if !(value > 0) || math.IsInf(value, 1) {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(value)))
	for _, factor := range []float64{1, 2, 2.5, 5, 10} {
		if value <= factor*power*(1+1e-9) {
			return factor * power
		}
	}
	return 10 * power
}

// upTo returns the end and marks of an axis of percentages from 0.
func upTo(value float64) (most float64, ticks []tick) {
	step := nice(value / 4)
	n := max(1, int(math.Ceil(value/step-1e-9)))
	for i := 0; i <= n; i++ {
		ticks = append(ticks, tick{float64(i) * step, shortPercent(float64(i) * step)})
	}
	return float64(n) * step, ticks
}

type chart struct {
	figure
	x, y axis
}

// margins is the space around the plot for the axes.
type margins struct{ top, right, bottom, left float64 }

// newChart draws the axes and sets their places. xLabel names the horizontal axis.
func newChart(f figure, m margins, x, y axis, xLabel string) *chart {
	c := &chart{figure: f, x: x, y: y}
	c.x.from, c.x.to = m.left, f.Width-m.right
	c.y.from, c.y.to = f.Height-m.bottom, m.top
	for _, t := range y.ticks {
		at := c.y.at(t.value)
		c.add(shape{Kind: line, Class: "grid", X: c.x.from, Y: at, W: c.x.to - c.x.from})
		c.label("tick", c.x.from-6, at+3.5, "end", t.label)
	}
	for _, t := range x.ticks {
		at := c.x.at(t.value)
		c.add(shape{Kind: line, Class: "mark", X: at, Y: c.y.from, H: 4})
		c.label("tick", at, c.y.from+16, "middle", t.label)
	}
	c.add(shape{Kind: line, Class: "axis", X: c.x.from, Y: c.y.from, W: c.x.to - c.x.from})
	if xLabel != "" {
		c.label("unit", (c.x.from+c.x.to)/2, f.Height-4, "middle", xLabel)
	}
	return c
}

// empty is a drawing that says why nothing is drawn.
func empty(f figure, why string) figure {
	f.Title += ": " + why
	f.add(shape{Kind: rect, Class: "nothing", X: 1, Y: 1, W: f.Width - 2, H: f.Height - 2, Round: 6})
	f.label("unit", f.Width/2, f.Height/2+4, "middle", why)
	return f
}

type ids struct{ last int }

func (i *ids) next() string {
	i.last++
	return "figure-" + strconv.Itoa(i.last)
}

// EndX returns the end of a line.
func (s shape) EndX() float64 { return s.X + s.W }

// EndY returns the end of a line.
func (s shape) EndY() float64 { return s.Y + s.H }
