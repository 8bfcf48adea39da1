// Package acceptance_test runs the program on the data sets of the published study and compares the
// scores with its figures. The whole data set takes a minute or two on all processors, so only "make
// soak" runs it. The small one takes seconds.
package acceptance_test

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"

	"vicinity.dev/vicinity/internal/cli"
)

// row is a row of "vicinity simulate -o json".
type row struct {
	Algorithm         string  `json:"algorithm"`
	StartingThreshold string  `json:"startingThreshold"`
	Cases             int64   `json:"cases"`
	Invalid           int64   `json:"invalid"`
	Total             float64 `json:"total"`
	InZone            float64 `json:"inZone"`
	Overload          float64 `json:"overload"`
	Slices            float64 `json:"slices"`
	MaxOverload       float64 `json:"maxOverload"`
	CasesPerSecond    float64 `json:"casesPerSecond"`
}

// run runs "vicinity simulate".
func run(t *testing.T, args string) []row {
	t.Helper()
	var out, err bytes.Buffer
	if code := cli.Main(t.Context(), append([]string{"simulate", "-o", "json"}, strings.Fields(args)...), nil, &out, &err); code != 0 {
		t.Fatalf("exit code %d: %s", code, &err)
	}
	var rows []row
	if err := json.Unmarshal(out.Bytes(), &rows); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		t.Logf("%-14s %-2s  total %.3f  in-zone %.3f  overload %.3f  slices %.3f  max overload %.2f  invalid %d  %.0f cases/s",
			r.Algorithm, r.StartingThreshold, r.Total, r.InZone, r.Overload, r.Slices, r.MaxOverload, r.Invalid, r.CasesPerSecond)
	}
	return rows
}

// near reports a figure that differs from the published one by more than a tolerance.
func near(t *testing.T, name string, got, published, tolerance float64) {
	t.Helper()
	if math.Abs(got-published) > tolerance {
		t.Errorf("%s is %.3f, want %.2f as published", name, got, published)
	}
}

// whole runs "vicinity simulate" on the whole published data set. Plain test runs skip it.
func whole(t *testing.T, args string) []row {
	t.Helper()
	if os.Getenv("E2E_SOAK") == "" {
		t.Skip("only make soak scores the whole published data set")
	}
	rows := run(t, args)
	for _, r := range rows {
		if r.Cases != 39_273_145 || r.Invalid != 0 {
			t.Errorf("%s has %d cases, %d of them invalid", r.Algorithm, r.Cases, r.Invalid)
		}
	}
	return rows
}

func TestPublishedTable(t *testing.T) {
	rows := whole(t, "--dataset published --algorithm balanced,local,local-shared,local-weighted,local-opt --delivery groups")
	published := []row{
		{Algorithm: "balanced", Total: 72.48, InZone: 38.84, Overload: 100, Slices: 100},
		{Algorithm: "local", Total: 86.69, InZone: 84.27, Overload: 98.26, Slices: 63.1},
		{Algorithm: "local-shared", Total: 86.87, InZone: 83.92, Overload: 98.98, Slices: 63.41},
		{Algorithm: "local-weighted", Total: 84.34, InZone: 83.9, Overload: 100, Slices: 43.88},
		{Algorithm: "local-opt", Total: 84.89, InZone: 83.74, Overload: 99.47, Slices: 49.35},
	}
	if len(rows) != len(published) {
		t.Fatalf("%d algorithms, want %d", len(rows), len(published))
	}
	for i, want := range published {
		got := rows[i]
		if got.Algorithm != want.Algorithm {
			t.Errorf("row %d has the algorithm %s, want %s", i+1, got.Algorithm, want.Algorithm)
		}
		near(t, got.Algorithm+": total", got.Total, want.Total, 0.1)
		near(t, got.Algorithm+": in-zone", got.InZone, want.InZone, 0.3)
		// The published totals are 45 % in-zone, 40 % overload and 15 % slices. The overload column
		// is the mean of greatest overload and evenness.
		overload := (got.Total - 0.45*got.InZone - 0.15*got.Slices) / 0.4
		near(t, got.Algorithm+": overload", overload, want.Overload, 0.3)
		slices := 0.3
		if got.Algorithm == "local-shared" {
			slices = 0.36 // the only mean that its steps do not reproduce: 63.06
		}
		near(t, got.Algorithm+": slices", got.Slices, want.Slices, slices)
	}
}

func TestOptimalOverTheWholeDataSet(t *testing.T) {
	rows := whole(t, "--dataset published --algorithm optimal,local,local-shared --delivery hints")
	optimal, local, shared := rows[0], rows[1], rows[2]
	// An exact search over partitions of the zones reaches 92.517.
	if optimal.Total < 92.51 || optimal.MaxOverload >= 50 {
		t.Errorf("optimal has a total of %.3f, want at least 92.51, and overload up to %.2f", optimal.Total, optimal.MaxOverload)
	}
	near(t, "local: total", local.Total, 92.2, 0.1)
	near(t, "local-shared: total", shared.Total, 92.4, 0.1)
}

func TestFlowOverTheWholeDataSet(t *testing.T) {
	flow := whole(t, "--dataset published --algorithm flow --delivery groups")[0]
	// The best algorithm of the study has 86.87.
	if flow.Total < 87.8 || flow.MaxOverload >= 1 {
		t.Errorf("flow has a total of %.3f, want at least 87.8, and overload up to %.2f", flow.Total, flow.MaxOverload)
	}
}

func TestThreePerZoneIsTheBestStart(t *testing.T) {
	balanced := run(t, "--dataset small --algorithm balanced --delivery groups")[0]
	near(t, "balanced: total", balanced.Total, 72.55, 0.1)
	rows := run(t, "--dataset small --algorithm local --delivery groups --starting-threshold 1x,2x,3x,4x,5x")
	if len(rows) != 5 {
		t.Fatalf("%d thresholds, want 5", len(rows))
	}
	best := rows[0]
	for i, published := range []float64{80.07, 80.09, 80.1, 80.08, 80.01} {
		near(t, "local from "+rows[i].StartingThreshold+": total", rows[i].Total, published, 0.1)
		if rows[i].Total > best.Total {
			best = rows[i]
		}
	}
	if best.StartingThreshold != "3x" {
		t.Errorf("the best starting threshold is %s, want 3x", best.StartingThreshold)
	}
	if !(rows[0].Total < rows[1].Total && rows[1].Total < rows[2].Total && rows[2].Total > rows[3].Total && rows[3].Total > rows[4].Total) {
		t.Errorf("the totals do not rise to 3x and then fall")
	}
}
