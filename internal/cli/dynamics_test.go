package cli

import (
	"bytes"
	"context"
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

func TestDynamicsErrors(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for _, test := range []struct {
		args, stdin string
		code        int
		want        string
	}{
		{"--scenario flood", "", 2, `--scenario "flood" is unknown; allowed are all, or a list of rolling-update,`},
		{"--algorithm fast", "", 2, `--algorithm "fast" is unknown; allowed are all, balanced,`},
		{"--algorithm local-opt --delivery hints", "", 2, `--algorithm local-opt needs --delivery groups: hints cannot carry its weights`},
		{"--delivery mail", "", 2, `--delivery "mail" is unknown; allowed are hints, groups`},
		{"--without fear", "", 2, `--without "fear" is not allowed; it must be all, none, or a list of padding, laziness, minimal-moves, savings`},
		{"--starting-threshold x", "", 2, `--starting-threshold "x" is not allowed; it must be a number of endpoints such as 12, or one for each zone such as 3x`},
		{"--file - --zones 4", sale, 2, `--zones is for the scenarios that --scenario names; those of --file say it themselves`},
		{"--file -", "0s nodes a=1\n", 1, `reading scenarios of standard input: line 1: "0s" is outside of a scenario`},
		{"--file - --scenario churn --algorithm local", "scenario churn\n0s nodes a=1\n1s end\n", 1, `scenario: the name "churn" is given twice`},
		{"--file " + missing, "", 1, `no such file`},
		{"--scenario churn --report " + missing + "/r.html", "", 1, `no such file`},
	} {
		t.Run(test.args, func(t *testing.T) {
			code, out, err := dynamics(t.Context(), test.stdin, strings.Fields(test.args)...)
			if code != test.code || out != "" || !strings.Contains(err, test.want) || strings.Count(err, "\n") != 1 {
				t.Errorf("exit code %d, want %d; printed %q; said %q, want %q", code, test.code, out, err, test.want)
			}
		})
	}
}
