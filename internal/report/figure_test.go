package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"vicinity.dev/vicinity/internal/simulate"
)

func TestAxisPlacesValues(t *testing.T) {
	plain := axis{least: 0, most: 50, from: 100, to: 200}
	down := axis{least: 0, most: 100, from: 90, to: 10, bend: math.Sqrt}
	for _, test := range []struct {
		axis  axis
		value float64
		want  float64
	}{
		{plain, 0, 100},
		{plain, 25, 150},
		{plain, 50, 200},
		{plain, 70, 200},
		{plain, -1, 100},
		{plain, math.NaN(), 100},
		{plain, math.Inf(1), 200},
		{down, 25, 50},
		{down, 100, 10},
		{axis{from: 7, to: 9}, 3, 7},
	} {
		if got := test.axis.at(test.value); math.Abs(got-test.want) > 1e-9 {
			t.Errorf("%v at %+v: got %g, want %g", test.value, test.axis, got, test.want)
		}
	}
}

func TestUpToMakesRoomForTheValue(t *testing.T) {
	for value, want := range map[float64]string{
		0:   "0 1",
		1:   "0 0.25 0.5 0.75 1",
		48:  "0 20 40 60",
		50:  "0 20 40 60",
		100: "0 25 50 75 100",
		275: "0 100 200 300",
	} {
		most, ticks := upTo(value)
		var got []string
		for _, t := range ticks {
			got = append(got, strings.TrimSuffix(t.label, "\u202f%"))
		}
		if most < value || strings.Join(got, " ") != want {
			t.Errorf("%g: got marks %q up to %g, want %q", value, got, most, want)
		}
	}
}

func TestTimeScale(t *testing.T) {
	for end, want := range map[time.Duration]string{
		0:                    "0 seconds",
		30 * time.Second:     "0 5 10 15 20 25 30 seconds",
		time.Second / 2:      "0 0.1 0.2 0.3 0.4 0.5 seconds",
		40 * time.Minute:     "0 10 20 30 40 minutes",
		time.Hour:            "0 10 20 30 40 50 60 minutes",
		24 * time.Hour:       "0 6 12 18 24 hours",
		14 * 24 * time.Hour:  "0 5 10 days",
		500 * 24 * time.Hour: "0 100 200 300 400 500 days",
	} {
		ticks, unit := timeScale(end)
		got := ""
		for _, t := range ticks {
			got += t.label + " "
		}
		if got += unit; got != want {
			t.Errorf("%s: got %q, want %q", end, got, want)
		}
	}
}

// square is a chart whose places are its values, from the bottom left.
func square() *chart {
	return &chart{x: axis{most: 100, to: 100}, y: axis{most: 100, from: 100}}
}

func TestTraceIsStepsWithGaps(t *testing.T) {
	var o outline
	track{
		at:     []time.Duration{0, 10, 20, 40},
		values: []float64{50, 80, math.NaN(), 100},
	}.trace(square(), &o)
	if got, want := o.String(), "M0 50H10V20H20M40 0H100"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTraceOfALongHistoryIsShort(t *testing.T) {
	var long track
	for i := range 100_000 {
		long.at = append(long.at, time.Duration(i))
		long.values = append(long.values, float64(i%7)*10)
	}
	c := square()
	c.x.most = 100_000
	var o outline
	long.trace(c, &o)
	if got := len(o.String()); got > 10_000 {
		t.Errorf("the path has %d characters", got)
	}
	// What the points cover is still there: from 0 to 60 %.
	if !strings.Contains(o.String(), "V40V100") {
		t.Errorf("the path lacks the range of its points: %.100s", o.String())
	}
}

func TestSharedScalesOfHistograms(t *testing.T) {
	results := staticResults()
	cards := newDistributions(new(ids), results.Variants)
	marks := func(f figure) string {
		var words []string
		for _, s := range f.Shapes {
			if s.Class == "tick" {
				words = append(words, fmt.Sprintf("%s@%s,%s", s.Text, px(s.X), px(s.Y)))
			}
		}
		return strings.Join(words, " ")
	}
	for _, card := range cards[1:] {
		if got, want := marks(card.InZone), marks(cards[0].InZone); got != want {
			t.Errorf("in-zone axes of %s: got %q, want %q", card.Name, got, want)
		}
		if got, want := marks(card.Overload), marks(cards[0].Overload); got != want {
			t.Errorf("overload axes of %s: got %q, want %q", card.Name, got, want)
		}
	}
}

func TestRareCasesStayVisible(t *testing.T) {
	f := distribution{id: "x", most: 100, tallest: 100}.draw(simulate.Histogram{Width: 50, Counts: []int64{39_273_144, 1}})
	var bars []shape
	for _, s := range f.Shapes {
		if strings.HasPrefix(s.Class, "bar") {
			bars = append(bars, s)
		}
	}
	if len(bars) != 2 || bars[1].H < 1 {
		t.Errorf("one case in millions has no bar: %+v", bars)
	}
}

// TestFiguresAreWellFormed reads the primitives as XML and compares them with their
// golden files, which open in a browser.
func TestFiguresAreWellFormed(t *testing.T) {
	moves := []bar{
		{label: "full", first: true, group: "local", value: 12, shown: "12", class: "fill-1"},
		{label: "no laziness", group: "local", value: 1200, shown: "1,200", class: "fill-soft"},
		{label: "full", first: true, group: "optimal", shown: "0", class: "fill-1"},
	}
	static := newStatic(staticResults())
	for name, f := range map[string]figure{
		"histogram": static.Cards[1].Overload,
		"stacks":    static.Scores,
		"flows":     static.Picture.Plans[1].Flows,
		"sketch":    static.Worst[0].Cases[0].Sketch,
		"bars":      bars(figure{ID: "bars", Title: "Bars"}, moves, "endpoints"),
		"history":   newDynamics(dynamicsResults(t)).Scenarios[0].Cards[1].Overload,
		"empty":     empty(figure{ID: "empty", Title: "Nothing", Width: 200, Height: 60}, `"nothing" & <less>`),
	} {
		t.Run(name, func(t *testing.T) {
			svg := renderFigure(t, f)
			decoder := xml.NewDecoder(bytes.NewReader(svg))
			for {
				if _, err := decoder.Token(); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatalf("not well-formed: %v\n%s", err, svg)
				}
			}
			for _, s := range f.Shapes {
				checkInside(t, f, s)
			}
			golden(t, name+".svg", svg)
		})
	}
}

func renderFigure(t *testing.T, f figure) []byte {
	t.Helper()
	page, err := template.New("figure").Funcs(functions()).ParseFS(pageFiles, "page/*.tmpl")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := page.ExecuteTemplate(&b, "figure", f); err != nil {
		t.Fatal(err)
	}
	return bytes.Replace(b.Bytes(), []byte("<svg "), []byte(`<svg xmlns="http://www.w3.org/2000/svg" `), 1)
}

// checkInside finds shapes that stick out of the drawing.
func checkInside(t *testing.T, f figure, s shape) {
	t.Helper()
	const slack = 1
	right, bottom := s.X, s.Y
	if slices.Contains([]kind{rect, line}, s.Kind) {
		right, bottom = s.X+s.W, s.Y+s.H
	}
	if s.X < -slack || s.Y < -slack || right > f.Width+slack || bottom > f.Height+slack || s.W < 0 || s.H < 0 {
		t.Errorf("%+v is not inside of %g by %g", s, f.Width, f.Height)
	}
}
