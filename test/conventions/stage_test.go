package conventions_test

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
)

// runStage is what hack/stage prints, its standard output and its errors, with the time taken for zero.
func runStage(t *testing.T, stages string, args ...string) (out, errs string, failed error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "hack/stage", args...)
	command.Dir = root
	command.Env = append(command.Environ(), "STAGES="+stages, "STAGES_BEGUN=", "STAGE_FIRST=1")
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	failed = command.Run()
	return stdout.String(), stderr.String(), failed
}

// A stage hides what a command prints until it fails, and then hides nothing.
func TestStages(t *testing.T) {
	prints := func(end string) []string {
		return []string{"second", "the second", "bash", "-c", "echo printed; echo told >&2; exit " + end}
	}
	for _, test := range []struct {
		name, stages, out, errs string
		args                    []string
		failed                  bool
	}{
		{name: "in a series", stages: "first second", args: prints("0"), out: "[2/2 0:0?] the second\n"},
		{name: "by itself", args: prints("0"), out: "[0:0?] the second\nprinted\n"},
		{name: "shown", stages: "first second", args: append([]string{"--show"}, prints("0")...), out: "[2/2 0:0?] the second\nprinted\n", errs: "told\n"},
		{name: "fails", stages: "first second", args: prints("3"), out: "[2/2 0:0?] the second\n", errs: "[2/2 0:0?] the second: failed\nprinted\ntold\n", failed: true},
	} {
		out, errs, err := runStage(t, test.stages, test.args...)
		for _, second := range "0123456789" {
			taken := "0:0" + string(second) + "]"
			out, errs = strings.ReplaceAll(out, taken, "0:0?]"), strings.ReplaceAll(errs, taken, "0:0?]")
		}
		if out != test.out || errs != test.errs || (err != nil) != test.failed {
			t.Errorf("%s: it prints %q and %q, %v; want %q and %q", test.name, out, errs, err, test.out, test.errs)
		}
	}
}

// A package that was compiled says how far it is among all, also if those before it were there.
func TestStagesSayHowFarTheyAre(t *testing.T) {
	if testing.Short() {
		t.Skip("takes four seconds")
	}
	out, _, err := runStage(t, "", "--packages", "printf 'fmt\\nexample.org/a\\nexample.org/b\\n'", "x", "X", "bash", "-c", "echo example.org/a >&2; sleep 4")
	if want := "  package 2 of 3\n"; err != nil || !strings.Contains(out, want) {
		t.Errorf("it prints %q, %v; want %q", out, err, want)
	}
}
