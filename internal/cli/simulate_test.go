package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// simulateMain runs "vicinity simulate" as a user does.
func simulateMain(ctx context.Context, stdin io.Reader, args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = Main(ctx, append([]string{"simulate"}, args...), stdin, &out, &err)
	return code, out.String(), err.String()
}

// halves can be scored by hand. Zones have the same traffic, so balanced keeps half of it in its zone.
// Local keeps all, and in the last case three quarters, since b gets two of a's endpoints.
const halves = `name,a,b
one,1 4,1 4
two,1 5,1 5
three,2 6,2 6
"short, in b",3 6,3 2
`

var (
	halvesArgs = []string{"--dataset", "-", "--algorithm", "balanced,local"}
	// The speeds vary, and with them the width of their column.
	speeds = regexp.MustCompile(`(?m) +(cases/s|[0-9,]+)$`)
)

func TestSimulateTable(t *testing.T) {
	code, out, err := simulateMain(t.Context(), strings.NewReader(halves), halvesArgs...)
	want := `4 cases of the data set "standard input", delivered as hints
local keeps 93.8 % of traffic in its zone, against 50.0 % when all zones use all endpoints alike.

algorithm  total  in-zone  overload  slices  max overload  invalid SPEED
balanced   77.50    50.00    100.00  100.00          0.00        0 SPEED
local      97.19    93.75    100.00  100.00          0.00        0 SPEED

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
	_, out, _ := simulateMain(t.Context(), strings.NewReader(halves), append(halvesArgs, "-o", "json")...)
	want := `[
  {
    "algorithm": "balanced",
    "cases": 4,
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
    "cases": 4,
    "invalid": 0,
    "total": 97.1875,
    "inZone": 93.75,
    "overload": 100,
    "slices": 100,
    "maxOverload": 0,
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
	const one = "name,a,b\none,1 4,1 4\n"
	for _, test := range []struct {
		args string
		want []sweepRow
	}{
		{
			"--starting-threshold 4x,5x --overload-threshold 20%,50%",
			[]sweepRow{{"balanced", "", "", 50}, {"local", "4x", "20%", 100}, {"local", "4x", "50%", 100}, {"local", "5x", "20%", 50}, {"local", "5x", "50%", 50}},
		},
	} {
		_, out, err := simulateMain(t.Context(), strings.NewReader(one), append(append(halvesArgs, "-o", "json"), strings.Fields(test.args)...)...)
		var got []sweepRow
		if jsonErr := json.Unmarshal([]byte(out), &got); jsonErr != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %s\n%+v, want\n%+v", test.args, err, got, test.want)
		}
	}
}

func TestSimulateHTML(t *testing.T) {
	code, page, err := simulateMain(t.Context(), strings.NewReader(halves), append(halvesArgs, "-o", "html")...)
	if code != 0 || err != "" || !strings.Contains(page, "short, in b") || !strings.Contains(page, "<svg") {
		t.Errorf("exit code %d, %q, a page of %d bytes", code, err, len(page))
	}
}

func TestSimulateErrors(t *testing.T) {
	for _, test := range []struct {
		args, stdin string
		code        int
		message     string
	}{
		{"--dataset publshed", "", 2, `--dataset "publshed" is unknown; allowed are published, small, medium, representative, grid, a CSV file that exists, and - (see "vicinity simulate --help")`},
		{"--dataset small --zones 4", "", 2, `--zones is only for --dataset grid (see "vicinity simulate --help")`},
		{"--dataset grid --nodes x", "", 2, `--nodes: range "x" begins with no number; allowed are a number, FROM..TO, and FROM..TO/STEP (see "vicinity simulate --help")`},
		{"--algorithm fastest", "", 2, `--algorithm "fastest" is unknown; allowed are all, balanced, local, local-shared, local-weighted, local-opt, auto, optimal, flow (see "vicinity simulate --help")`},
		{"--delivery post", "", 2, `--delivery "post" is unknown; allowed are hints, groups (see "vicinity simulate --help")`},
		{"--delivery hints --algorithm local,local-opt", "", 2, `--algorithm local-opt needs --delivery groups: hints cannot carry its weights (see "vicinity simulate --help")`},
		{"--starting-threshold 3y", "", 2, `--starting-threshold "3y" is not allowed; it must be a number of endpoints such as 12, or one for each zone such as 3x (see "vicinity simulate --help")`},
		{"--overload-threshold 0.5", "", 2, `--overload-threshold "0.5" is not allowed; it must be a percentage above 0 such as 50% (see "vicinity simulate --help")`},
		{"--weight-slices -1", "", 2, `weight of slices: -1 is not allowed; it must be from 0 to 1000000 (see "vicinity simulate --help")`},
		{"--weight-in-zone 0 --weight-overload 0 --weight-deviation 0 --weight-slices 0", "", 2, `--weight-in-zone and the other weights are all 0; at least one must be greater (see "vicinity simulate --help")`},
		{"--slice-size 0", "", 2, `--slice-size 0 is not allowed; it must be 1 or more (see "vicinity simulate --help")`},
		{"-o xml", "", 2, `invalid argument "xml" for "-o, --output" flag: it must be table, json or html (see "vicinity simulate --help")`},
		{"--dataset -", "name,a\nx,1\n", 1, `reading standard input: line 2, column "a": cell "1" must be two numbers, nodes and endpoints, such as "3 12", or empty`},
		{"--dataset -", "", 1, `reading standard input: it is empty; it must begin with a header such as "name,zone-a,zone-b"`},
		{"--dataset -", "name,a\n", 1, "the data set standard input has no cases"},
	} {
		code, out, err := simulateMain(t.Context(), strings.NewReader(test.stdin), append(strings.Fields(test.args), "--algorithm", "balanced")...)
		if strings.Contains(test.args, "--algorithm") {
			code, out, err = simulateMain(t.Context(), strings.NewReader(test.stdin), strings.Fields(test.args)...)
		}
		if want := "vicinity: " + test.message + "\n"; code != test.code || err != want || out != "" {
			t.Errorf("%s: exit code %d, said\n%swant exit code %d,\n%s", test.args, code, err, test.code, want)
		}
	}
}

func TestSimulateInterruptedWhileItWaits(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stdin, keyboard := io.Pipe()
	go func() {
		if _, err := io.WriteString(keyboard, halves); err != nil {
			t.Error(err)
		}
		cancel()
	}()
	code, _, err := simulateMain(ctx, stdin, halvesArgs...)
	if code != 130 || !strings.HasSuffix(err, "vicinity: interrupted\n") {
		t.Errorf("exit code %d, said %q", code, err)
	}
}
