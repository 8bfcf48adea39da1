package report

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/inspect/doctor"
	"vicinity.dev/vicinity/internal/inspect/gameday"
	"vicinity.dev/vicinity/internal/simulate"
	"vicinity.dev/vicinity/test/golden"
)

var styleSheet = regexp.MustCompile(`(?s)<style>.*</style>`)

// withoutStyle removes the style sheet.
func withoutStyle(page []byte) []byte {
	return styleSheet.ReplaceAll(page, []byte("<style></style>"))
}

func render(t *testing.T, write func(*bytes.Buffer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func renderStatic(t *testing.T, results simulate.Results) []byte {
	t.Helper()
	return render(t, func(b *bytes.Buffer) error { return Static(b, results) })
}

// staticResults returns hand-made results of two algorithms.
func staticResults() simulate.Results {
	zones := []allocate.Zone{{Name: "a", Capacity: 2, Endpoints: 1}, {Name: "b", Capacity: 3, Endpoints: 9}, {Name: "c", Capacity: 5}}
	balanced := simulate.Variant{Name: "balanced", Bound: allocate.Bound{Algorithm: allocate.Balanced, OverloadThreshold: 0.5}}
	local := simulate.Variant{Name: "local", Bound: allocate.Bound{Algorithm: allocate.Local, OverloadThreshold: 0.5, Start: allocate.Start{PerZone: 3}}}
	score := func(total, inZone, overload, deviation float64) simulate.Score {
		return simulate.Score{
			Parts:       simulate.Parts{Total: total, InZone: inZone, Overload: 100 - overload, Deviation: 100 - deviation, Slices: 100},
			MaxOverload: overload, MeanDeviation: deviation,
		}
	}
	example := simulate.Case{Name: "one zone empty", Zones: zones}
	return simulate.Results{
		Dataset: "small", Delivery: allocate.DeliveryGroups, Weights: allocate.DefaultWeights(), SliceSize: 100, Cases: 1234,
		Variants: []simulate.Result{
			{
				Variant: balanced, Cases: 1234, Mean: score(72.4, 38.5, 0, 0).Parts, CasesPerSecond: 4_567_890,
				InZone:   simulate.Histogram{Width: 25, Counts: []int64{200, 1000, 34, 0}},
				Overload: simulate.Histogram{Width: 10, Counts: []int64{1234, 0, 0, 0, 0, 0}},
				Worst:    []simulate.Scored{{Case: example, Score: score(68, 29, 0, 0)}},
			},
			{
				Variant: local, Cases: 1234, Invalid: 1, Mean: score(86.7, 84.3, 1.7, 1.1).Parts, MaxOverload: 48.2, CasesPerSecond: 1_234_567,
				InZone:   simulate.Histogram{Width: 25, Counts: []int64{0, 34, 200, 1000}},
				Overload: simulate.Histogram{Width: 10, Counts: []int64{1000, 200, 30, 3, 0, 1}},
				Worst:    []simulate.Scored{{Case: example, Score: score(50.1, 40, 11.1, 5)}},
			},
		},
	}
}

func TestPagesGolden(t *testing.T) {
	golden.Compare(t, "testdata/static.html", string(withoutStyle(renderStatic(t, staticResults()))))
	golden.Compare(t, "testdata/gameday.html", string(withoutStyle(renderGameDay(t, gameDay("shop/web")))))
}

// gameDay returns a hand-made practice run in which one Service was compared, one has few connections, and one is not counted.
func gameDay(name string) *gameday.Run {
	return &gameday.Run{
		Result: "the practice run ended early: " + name + " yields", From: v1alpha1.ShiftedDomain{Key: "topology.kubernetes.io/zone", Value: name}, Reason: name, Seconds: 90,
		Services: []gameday.Service{{Name: name, Predicted: 50, Measured: new(57.25), Difference: new(7.25)}, {Name: "shop/few", Predicted: 50, Measured: new(0.0)}, {Name: "shop/other"}},
		Yields:   []string{name},
		Samples: []gameday.Sample{
			{Second: 30, InDomain: new(33.3), State: "30s: all is well"}, {Second: 60, InDomain: new(0.0), Busiest: new(57.25), State: "1m: " + name + " yields"},
		},
		Findings:    []doctor.Finding{{ID: "lose-overload", Severity: doctor.Warning, Object: doctor.Object{Kind: "Service", Namespace: "shop", Name: name}, What: "It is full.", Why: "It may fail.", Next: "kubectl get pods"}},
		NotMeasured: []string{name}, Next: []string{"vicinity doctor --lose " + name},
	}
}

func renderGameDay(t *testing.T, run *gameday.Run) []byte {
	t.Helper()
	return render(t, func(b *bytes.Buffer) error { return GameDay(b, run) })
}

func TestPagesLoadNothing(t *testing.T) {
	outside := regexp.MustCompile(`(?i)https?:|src=|url\(|@import|<link[^>]*href="[^d]|<(iframe|object|embed|img)`)
	for name, page := range map[string][]byte{
		"static":  renderStatic(t, staticResults()),
		"gameday": renderGameDay(t, gameDay("shop/web")),
	} {
		if found := outside.Find(page); found != nil {
			t.Errorf("%s: the page has %q", name, found)
		}
	}
}

// hostile would run a script in a page that does not escape it: as text, attribute, title or style.
const hostile = `</title></style></script><script>alert(1)</script><img src=x onerror=alert(1)>"'` + "`" + `{{.}}`

func TestNamesAreEscaped(t *testing.T) {
	results := staticResults()
	results.Dataset = hostile
	for i := range results.Variants {
		results.Variants[i].Name = hostile
		results.Variants[i].Worst[0].Case.Name = hostile
	}

	for name, page := range map[string]string{
		"static":  string(renderStatic(t, results)),
		"gameday": string(renderGameDay(t, gameDay(hostile))),
	} {
		if strings.Contains(page, "<script") {
			t.Errorf("%s: the page runs the script of the name", name)
		}
		if strings.Contains(page, "<img") {
			t.Errorf("%s: the page has an image of the name", name)
		}
		if n := strings.Count(page, "&lt;img src=x onerror=alert(1)&gt;"); n < 3 {
			t.Errorf("%s: the escaped name is in the page %d times, want everywhere", name, n)
		}
	}
}

func TestPagesWithoutResults(t *testing.T) {
	for name, page := range map[string][]byte{
		"No case was scored": renderStatic(t, simulate.Results{}),
		"No load":            renderGameDay(t, &gameday.Run{Result: "no load could be compared"}),
	} {
		if !bytes.Contains(page, []byte(name)) || bytes.Contains(page, []byte("NaN")) || bytes.Contains(page, []byte("Inf")) {
			t.Errorf("the page lacks %q, or has an invalid number", name)
		}
	}
}
