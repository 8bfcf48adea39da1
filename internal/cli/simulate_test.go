package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// simulateMain runs "vicinity simulate" as a user does.
func simulateMain(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = Main(ctx, append([]string{"simulate"}, args...), strings.NewReader(""), &out, &err)
	return code, out.String(), err.String()
}

// halves has three cases that can be scored by hand: two zones with the same traffic, and with 4 and 4, 4 and 5, or 5 and 5
// endpoints. Balanced keeps half of the traffic in its zone, and local all.
var (
	halves = strings.Fields("--dataset grid --zones 2 --nodes 1 --endpoints 4..5 --algorithm balanced,local")
	// The speeds vary, and with them the width of their column.
	speeds = regexp.MustCompile(`(?m) +(cases/s|[0-9,]+)$`)
)

func TestSimulateTable(t *testing.T) {
	code, out, err := simulateMain(t.Context(), halves...)
	want := `3 cases of the data set "grid", delivered as hints
local keeps 100.0 % of traffic in its zone, against 50.0 % when all zones use all endpoints alike.

algorithm  total  in-zone  overload  slices  max overload  invalid SPEED
balanced   77.50    50.00    100.00  100.00          0.00        0 SPEED
local      98.43   100.00     95.83  100.00         12.50        0 SPEED

total: the score, 100 is best: 45% in-zone, 20% overload, 20% evenness of loads, 15% slices.
in-zone: percent of the traffic that stays in its zone. overload: 100 less the percent by which
the busiest endpoint gets more than an even share; max overload is that percent in the worst case.
slices: fewest EndpointSlices possible, in percent of the EndpointSlices of the plan.
invalid: plans that leave a zone with nothing.
`
	if out = speeds.ReplaceAllString(out, " SPEED"); code != 0 || err != "" || out != want {
		t.Errorf("exit code %d, %q\n%s\nwant\n%s", code, err, out, want)
	}
}

func TestSimulateJSON(t *testing.T) {
	speed := regexp.MustCompile(`"casesPerSecond": [0-9]+`)
	_, out, _ := simulateMain(t.Context(), append(halves, "-o", "json")...)
	want := `[
  {
    "algorithm": "balanced",
    "cases": 3,
    "invalid": 0,
    "total": 77.5,
    "inZone": 50,
    "overload": 100,
    "slices": 100,
    "maxOverload": 0,
    "casesPerSecond": SPEED
  },
  {
    "algorithm": "local",
    "startingThreshold": "3x",
    "overloadThreshold": "50%",
    "cases": 3,
    "invalid": 0,
    "total": 98.425926,
    "inZone": 100,
    "overload": 95.833333,
    "slices": 100,
    "maxOverload": 12.5,
    "casesPerSecond": SPEED
  }
]
`
	if out = speed.ReplaceAllString(out, `"casesPerSecond": SPEED`); out != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
}

// sweepRow has the algorithm, thresholds and in-zone share of a row of JSON.
type sweepRow struct {
	Algorithm         string
	StartingThreshold string
	OverloadThreshold string
	InZone            float64
}

func TestSimulateSweeps(t *testing.T) {
	for _, test := range []struct {
		args string
		want []sweepRow
	}{
		{
			"--starting-threshold 4x,5x --overload-threshold 20%,50%",
			[]sweepRow{{"balanced", "", "", 50}, {"local", "4x", "20%", 100}, {"local", "4x", "50%", 100}, {"local", "5x", "20%", 50}, {"local", "5x", "50%", 50}},
		},
	} {
		_, out, err := simulateMain(t.Context(), append(append(halves, "-o", "json", "--endpoints", "4"), strings.Fields(test.args)...)...)
		var got []sweepRow
		if jsonErr := json.Unmarshal([]byte(out), &got); jsonErr != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %s\n%+v, want\n%+v", test.args, err, got, test.want)
		}
	}
}

func TestSimulateHTML(t *testing.T) {
	code, page, err := simulateMain(t.Context(), append(halves, "-o", "html")...)
	if code != 0 || err != "" || !strings.Contains(page, "1-1/4-5") || !strings.Contains(page, "<svg") {
		t.Errorf("exit code %d, %q, a page of %d bytes", code, err, len(page))
	}
}

func TestSimulateErrors(t *testing.T) {
	for _, test := range []struct {
		args, message string
	}{
		{"--dataset publshed", `--dataset "publshed" is unknown; allowed are published, small, medium, representative and grid (see "vicinity simulate --help")`},
		{"--dataset small --zones 4", `--zones is only for --dataset grid (see "vicinity simulate --help")`},
		{"--dataset grid --nodes x", `--nodes: range "x" begins with no number; allowed are a number, FROM..TO, and FROM..TO/STEP (see "vicinity simulate --help")`},
		{"--algorithm fastest", `--algorithm "fastest" is unknown; allowed are all, balanced, local, local-shared, local-weighted, local-opt, auto, optimal, flow (see "vicinity simulate --help")`},
		{"--delivery post", `--delivery "post" is unknown; allowed are hints, groups (see "vicinity simulate --help")`},
		{"--delivery hints --algorithm local,local-opt", `--algorithm local-opt needs --delivery groups: hints cannot carry its weights (see "vicinity simulate --help")`},
		{"--starting-threshold 3y", `--starting-threshold "3y" is not allowed; it must be a number of endpoints such as 12, or one for each zone such as 3x (see "vicinity simulate --help")`},
		{"--overload-threshold 0.5", `--overload-threshold "0.5" is not allowed; it must be a percentage above 0 such as 50% (see "vicinity simulate --help")`},
		{"--weight-slices -1", `weight of slices: -1 is not allowed; it must be from 0 to 1000000 (see "vicinity simulate --help")`},
		{"--weight-in-zone 0 --weight-overload 0 --weight-deviation 0 --weight-slices 0", `--weight-in-zone and the other weights are all 0; at least one must be greater (see "vicinity simulate --help")`},
		{"--slice-size 0", `--slice-size 0 is not allowed; it must be 1 or more (see "vicinity simulate --help")`},
		{"-o xml", `invalid argument "xml" for "-o, --output" flag: it must be table, json or html (see "vicinity simulate --help")`},
	} {
		code, out, err := simulateMain(t.Context(), append(strings.Fields(test.args), "--algorithm", "balanced")...)
		if strings.Contains(test.args, "--algorithm") {
			code, out, err = simulateMain(t.Context(), strings.Fields(test.args)...)
		}
		if want := "vicinity: " + test.message + "\n"; code != 2 || err != want || out != "" {
			t.Errorf("%s: exit code %d, said\n%swant exit code 2,\n%s", test.args, code, err, want)
		}
	}
}

func TestSimulateInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	code, _, err := simulateMain(ctx, "--algorithm", "local")
	if code != 130 || err != "partial: interrupted after 0 of 39,273,145 cases\nvicinity: interrupted\n" {
		t.Errorf("exit code %d, said %q", code, err)
	}
}
