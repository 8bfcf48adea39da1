package cli

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/command"
)

// dynamics runs the command in a program that has no other.
func dynamics(ctx context.Context, stdin string, args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	root := &cobra.Command{Use: "vicinity", SilenceUsage: true, SilenceErrors: true}
	root.SetOut(&out)
	root.SetErr(&err)
	root.AddCommand(newDynamicsCommand(command.Streams{In: strings.NewReader(stdin), Out: &out, Err: &err}))
	code = command.Execute(ctx, root, append([]string{"dynamics"}, args...))
	return code, out.String(), err.String()
}

// sale can be followed by hand: half a minute in which a's three endpoints serve
// everything, twice what is even.
const sale = `scenario sale
0s   nodes     a=1 b=1
0s   endpoints a=6 b=6
30s  traffic   a=1
1m   end
`

var saleArgs = []string{"--file", "-", "--algorithm", "balanced,local", "--without", "none"}

func TestDynamicsTable(t *testing.T) {
	code, out, err := dynamics(t.Context(), sale, saleArgs...)
	if code != 0 || err != "" {
		t.Fatalf("exit code %d: %s", code, err)
	}
	want := `sale: 1 event in 1m0s

algorithm  variant  in-zone %  reallocated  per event  slices written  per event  rerouted %  above threshold s  worst overload %  flips
balanced   full         50.00            0       0.00               0       0.00        0.00                  0               0.0      0
local      full        100.00            0       0.00               0       0.00        0.00                 30             100.0      0

in-zone: traffic that stays`
	if !strings.HasPrefix(out, want) {
		t.Errorf("got\n%s\nwant\n%s …", out, want)
	}
}

func TestDynamicsMarkdown(t *testing.T) {
	_, out, _ := dynamics(t.Context(), sale, append(saleArgs, "-o", "markdown")...)
	want := `sale: 1 event in 1m0s

| algorithm | variant | in-zone % | reallocated | per event | slices written | per event | rerouted % | above threshold s | worst overload % | flips |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| balanced | full | 50.00 | 0 | 0.00 | 0 | 0.00 | 0.00 | 0 | 0.0 | 0 |
| local | full | 100.00 | 0 | 0.00 | 0 | 0.00 | 0.00 | 30 | 100.0 | 0 |
`
	if !strings.HasPrefix(out, want) {
		t.Errorf("got\n%s\nwant\n%s …", out, want)
	}
}

func TestDynamicsCSV(t *testing.T) {
	_, out, _ := dynamics(t.Context(), sale, append(saleArgs, "-o", "csv")...)
	want := `scenario,algorithm,variant,inZone,reallocated,reallocatedPerEvent,slicesWritten,slicesWrittenPerEvent,reroutedPerEvent,secondsAboveThreshold,worstOverload,flips
sale,balanced,full,50,0,0,0,0,0,0,0,0
sale,local,full,100,0,0,0,0,0,30,100,0
`
	if out != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
}

func TestDynamicsJSON(t *testing.T) {
	_, out, _ := dynamics(t.Context(), sale, "--file", "-", "--algorithm", "local", "--without", "none", "-o", "json")
	want := `[
  {
    "scenario": "sale",
    "events": 1,
    "seconds": 60,
    "runs": [
      {
        "algorithm": "local",
        "variant": "full",
        "inZone": 100,
        "reallocated": 0,
        "reallocatedPerEvent": 0,
        "slicesWritten": 0,
        "slicesWrittenPerEvent": 0,
        "reroutedPerEvent": 0,
        "secondsAboveThreshold": 30,
        "worstOverload": 100,
        "flips": 0,
        "series": [
          {
            "second": 0,
            "endpoints": 12,
            "allocated": true,
            "inZone": 100,
            "overload": 0,
            "reallocated": 0,
            "slicesWritten": 0,
            "rerouted": 0
          },
          {
            "second": 30,
            "endpoints": 12,
            "allocated": true,
            "inZone": 100,
            "overload": 100,
            "reallocated": 0,
            "slicesWritten": 0,
            "rerouted": 0
          }
        ]
      }
    ]
  }
]
`
	if out != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
}

// column is one column of the output as CSV, by algorithm and variant.
func column(t *testing.T, out, name string) map[string]string {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if err != nil || len(rows) < 2 {
		t.Fatalf("%d rows, %v:\n%s", len(rows), err, out)
	}
	cells := map[string]string{}
	for i, header := range rows[0] {
		if header == name {
			for _, row := range rows[1:] {
				cells[row[1]+" "+row[2]] = row[i]
			}
		}
	}
	return cells
}

func TestDynamicsFlagsReachTheRun(t *testing.T) {
	run := func(args ...string) string {
		t.Helper()
		code, out, err := dynamics(t.Context(), "", append([]string{"--scenario", "wavering", "--algorithm", "local", "-o", "csv"}, args...)...)
		if code != 0 {
			t.Fatalf("exit code %d: %s", code, err)
		}
		return out
	}
	flips := func(out, variant string) string { return column(t, out, "flips")["local "+variant] }
	if out := run(); flips(out, "full") != "0" || flips(out, "no-padding") == "0" {
		t.Errorf("padding makes no difference:\n%s", out)
	}
	if out := run("--padding", "0"); flips(out, "full") == "0" || flips(out, "no-padding") != "" {
		t.Errorf("--padding 0 makes no difference:\n%s", out)
	}
	// The size wavers around whatever the threshold is.
	if out := run("--starting-threshold", "20", "--padding", "0"); flips(out, "full") == "0" {
		t.Errorf("--starting-threshold 20 is not what the size wavers around:\n%s", out)
	}
	if out := run("--overload-threshold", "20%"); column(t, out, "worstOverload")["local full"] == column(t, run(), "worstOverload")["local full"] {
		t.Errorf("--overload-threshold makes no difference:\n%s", out)
	}
	for _, args := range [][]string{
		{"--seed", "2"},
		{"--zones", "4"},
		{"--nodes-per-zone", "20,1"},
		{"--scenario", "churn", "--endpoints", "31"},
	} {
		if run(args...) == run() {
			t.Errorf("%q makes no difference", args)
		}
	}
	churn := []string{"--scenario", "churn", "--without", "none"}
	hints, groups := run(churn...), run(append(churn, "--delivery", "groups")...)
	if column(t, hints, "slicesWritten")["local full"] == column(t, groups, "slicesWritten")["local full"] {
		t.Error("--delivery makes no difference")
	}
	if hints == run(append(churn, "--slice-size", "5")...) {
		t.Error("--slice-size makes no difference")
	}
}

func TestDynamicsAllAlgorithms(t *testing.T) {
	code, out, err := dynamics(t.Context(), sale, "--file", "-", "--without", "none", "-o", "csv")
	cells := column(t, out, "inZone")
	if code != 0 || len(cells) != 6 || cells["upstream-auto full"] == "" {
		t.Errorf("exit code %d, rows %v", code, cells)
	}
	if want := "left out local-weighted, local-opt, flow: hints cannot carry weights; see --delivery groups\n"; err != want {
		t.Errorf("note %q, want %q", err, want)
	}
	_, out, err = dynamics(t.Context(), sale, "--file", "-", "--without", "none", "-o", "csv", "--delivery", "groups")
	if cells := column(t, out, "inZone"); len(cells) != 9 || err != "" {
		t.Errorf("rows %v, note %q", cells, err)
	}
	if _, out, _ := dynamics(t.Context(), sale, "--file", "-", "--algorithm", "local-opt", "-o", "csv"); column(t, out, "inZone")["local-opt full"] == "" {
		t.Errorf("an algorithm that needs groups does not get them:\n%s", out)
	}
}

func TestDynamicsPrintsWhatItReads(t *testing.T) {
	_, all, _ := dynamics(t.Context(), "", "--print")
	code, again, err := dynamics(t.Context(), all, "--file", "-", "--print")
	if code != 0 || all == "" || again != all {
		t.Errorf("exit code %d, %s: printed\n%s", code, err, again)
	}
	_, both, _ := dynamics(t.Context(), sale, "--file", "-", "--scenario", "churn", "--print")
	if strings.Count(both, "scenario ") != 2 || !strings.Contains(both, "scenario churn\n") {
		t.Errorf("--scenario beside --file printed\n%s", both)
	}
}

func TestDynamicsReport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.html")
	code, _, err := dynamics(t.Context(), sale, append(saleArgs, "--report", file)...)
	page, readErr := os.ReadFile(file)
	if code != 0 || readErr != nil || !bytes.Contains(page, []byte("</html>")) || !bytes.Contains(page, []byte("sale")) {
		t.Errorf("exit code %d, %s, %v: a page of %d bytes", code, err, readErr, len(page))
	}
}

func TestDynamicsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	code, out, err := dynamics(ctx, "", "--scenario", "churn", "-o", "json")
	var shown []any
	if jsonErr := json.Unmarshal([]byte(out), &shown); code != 130 || jsonErr != nil || len(shown) != 0 {
		t.Errorf("exit code %d, output %q", code, out)
	}
	if !strings.Contains(err, "partial: interrupted after 0 runs\n") {
		t.Errorf("said %q", err)
	}
}

func TestDynamicsErrors(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for _, test := range []struct {
		args, stdin string
		code        int
		want        string
	}{
		{"--scenario flood", "", 2, `--scenario "flood" is unknown; allowed are all, or a list of rolling-update,`},
		{"--scenario churn,churn", "", 2, `--scenario "churn" is given twice`},
		{"--algorithm fast", "", 2, `--algorithm "fast" is unknown; allowed are all, balanced,`},
		{"--algorithm local,local", "", 2, `--algorithm "local" is given twice`},
		{"--algorithm upstream-auto,upstream-auto", "", 2, `--algorithm "upstream-auto" is given twice`},
		{"--algorithm local-opt --delivery hints", "", 2, `--algorithm local-opt needs --delivery groups: hints cannot carry its weights`},
		{"--delivery mail", "", 2, `--delivery "mail" is unknown; allowed are hints, groups`},
		{"--without fear", "", 2, `--without "fear" is not allowed; it must be all, none, or a list of padding, laziness, minimal-moves, savings`},
		{"--without padding,padding", "", 2, `--without "padding" is given twice`},
		{"--starting-threshold x", "", 2, `--starting-threshold "x" is not allowed; it must be a number of endpoints such as 12, or one for each zone such as 3x`},
		{"--overload-threshold 50", "", 2, `--overload-threshold "50" is not allowed; it must be a percentage above 0 such as 50%`},
		{"--padding -1", "", 2, `--padding "-1" is not allowed; it must be 0 or more endpoints`},
		{"--slice-size 0", "", 2, `--slice-size 0 is not allowed; it must be 1 or more endpoints`},
		{"-o yaml", "", 2, `--output "yaml" is unknown; it must be table, json, csv or markdown`},
		{"--zones 1", "", 2, `zones: 1 is not allowed; it must be from 2 to 100`},
		{"--file - --zones 4", sale, 2, `--zones is for the scenarios that --scenario names; those of --file say it themselves`},
		{"--file -", "0s nodes a=1\n", 1, `reading scenarios of standard input: line 1: "0s" is outside of a scenario`},
		{"--file - --scenario churn --algorithm local", "scenario churn\n0s nodes a=1\n1s end\n", 1, `scenario: the name "churn" is given twice`},
		{"--file " + missing, "", 1, `no such file`},
		{"--scenario churn --report " + missing + "/r.html", "", 1, `no such file`},
		{"now", "", 2, `unexpected argument "now"`},
	} {
		t.Run(test.args, func(t *testing.T) {
			code, out, err := dynamics(t.Context(), test.stdin, strings.Fields(test.args)...)
			if code != test.code || out != "" || !strings.Contains(err, test.want) || strings.Count(err, "\n") != 1 {
				t.Errorf("exit code %d, want %d; printed %q; said %q, want %q", code, test.code, out, err, test.want)
			}
		})
	}
}
