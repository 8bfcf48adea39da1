package report

// bar is a row of a bar chart.
type bar struct {
	label string
	// first starts a group of rows, whose name is group.
	first bool
	group string
	value float64
	// shown is the value in words.
	shown string
	class string
}

// bars draws rows of bars along one axis from 0.
func bars(f figure, rows []bar, unit string) figure {
	const (
		left, right = 148.0, 62.0
		height, gap = 13.0, 4.0
		heading     = 20.0
	)
	f.Class, f.Width = "chart bars", 480
	most := 0.0
	f.Height = 30
	for _, r := range rows {
		most = max(most, r.value)
		f.Height += height + gap
		if r.first {
			f.Height += heading
		}
	}
	if len(rows) == 0 {
		f.Height = 60
		return empty(f, "nothing to show")
	}
	if most == 0 {
		most = 1
	}
	x := axis{most: most, from: left, to: f.Width - right}
	y := 0.0
	for _, r := range rows {
		if r.first {
			y += heading
			f.label("group", 0, y-5, "start", clip(r.group, 40))
			f.add(shape{Kind: line, Class: "grid", X: 0, Y: y - 0.5, W: f.Width})
			y += 3
		}
		f.label("tick", left-8, y+height-3, "end", clip(r.label, 22))
		width := x.at(r.value) - x.from
		if r.value > 0 {
			width = max(width, 1.5)
		}
		f.add(shape{Kind: rect, Class: "bar " + r.class, X: x.from, Y: y, W: width, H: height, Round: 1.5, Hint: r.group + ", " + r.label + ": " + r.shown})
		f.label("value", x.from+width+6, y+height-3, "start", r.shown)
		y += height + gap
	}
	f.Height = y + 24
	f.add(shape{Kind: line, Class: "axis", X: left, Y: 0, H: y})
	f.label("unit", (x.from+x.to)/2, f.Height-6, "middle", unit)
	return f
}

// part is a section of a stacked bar.
type part struct {
	name, class string
	value       float64
}

// stack is a row of a chart of stacked bars.
type stack struct {
	label, shown string
	parts        []part
}

// stacks draws rows of stacked bars on an axis from 0 to 100 points.
func stacks(f figure, rows []stack) figure {
	const left, right, height, gap = 136.0, 60.0, 20.0, 9.0
	f.Class, f.Width = "chart stacks", 560
	f.Height = float64(len(rows))*(height+gap) + 40
	if len(rows) == 0 {
		return empty(f, "no algorithms")
	}
	c := newChart(f, margins{top: 4, right: right, bottom: 36, left: left},
		axis{most: 100, ticks: []tick{{0, "0"}, {25, "25"}, {50, "50"}, {75, "75"}, {100, "100"}}}, axis{most: 1}, "points")
	for _, t := range []float64{25, 50, 75, 100} {
		c.add(shape{Kind: line, Class: "grid", X: c.x.at(t), Y: 0, H: c.y.from})
	}
	y := 4.0
	for _, r := range rows {
		c.label("name", left-8, y+height-6, "end", clip(r.label, 18))
		sum := 0.0
		for _, p := range r.parts {
			from, to := c.x.at(sum), c.x.at(sum+p.value)
			sum += p.value
			if to <= from {
				continue
			}
			c.add(shape{Kind: rect, Class: "bar " + p.class, X: from, Y: y, W: max(to-from-1, 0.5), H: height, Hint: r.label + ", " + p.name + ": " + points(p.value, 2) + " points"})
			if to-from > 30 {
				c.label("inside "+p.class, (from+to)/2, y+height-6, "middle", points(p.value, 1))
			}
		}
		c.label("value strong", c.x.to+8, y+height-6, "start", r.shown)
		y += height + gap
	}
	return c.figure
}
