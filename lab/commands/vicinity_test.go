package commands

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"vicinity.dev/vicinity/internal/command"
)

// What makes no sense is refused before anything is made.
func TestInstallingInALabIsRefusedEarly(t *testing.T) {
	for _, test := range []struct {
		args, want string
	}{
		{"up --vicinity=false --set replicas=1", "--set has no effect: Vicinity is not installed, as asked for by --vicinity=false"},
		{"up --control-plane-only --set replicas=1", "--set has no effect: Vicinity is not installed, pods do not run"},
		{"up --vicinity=false --set mistake", "--set has no effect"},
		{"up --vicinity=false --proxy both", "--proxy both has no effect: Vicinity is not installed, as asked for by --vicinity=false"},
		{"up --control-plane-only --proxy vicinity", "--proxy vicinity has no effect: Vicinity is not installed, pods do not run"},
		{"vicinity --set mistake", `--set: "mistake": key "mistake" has no value; write key=value`},
		{"vicinity --set routing.mistake=1", "--set: routing: additional properties 'mistake' not allowed"},
		{"vicinity --set replicas=1 --set replicas=0", "--set: replicas: minimum: got 0, want 1"},
		{"vicinity --remove --set replicas=1", "--remove and --set do not go together"},
		{"vicinity --remove --release bin", "--remove and --release do not go together"},
		{"vicinity --release none", "--release: none has 0 files vicinity-VERSION.tgz, and must have one"},
		{"up --vicinity=false --release none", "--release has no effect: Vicinity is not installed, as asked for by --vicinity=false"},
		{"demo --release none", "--release: none has 0 files"},
		{"vicinity replicas=1", "unexpected argument"},
	} {
		t.Setenv("VICINITY_LAB_DIR", t.TempDir())
		var out, err bytes.Buffer
		code := Main(context.Background(), strings.Fields(test.args), strings.NewReader(""), &out, &err)
		if code != command.ExitUsage || !strings.Contains(err.String(), test.want) {
			t.Errorf("lab %s: exit code %d and %q, want %d and %q", test.args, code, &err, command.ExitUsage, test.want)
		}
	}
}

func TestThereMustBeALabToInstallIn(t *testing.T) {
	t.Setenv("VICINITY_LAB_DIR", t.TempDir())
	for _, args := range [][]string{{"vicinity"}, {"vicinity", "--remove"}} {
		var out, err bytes.Buffer
		if code := Main(context.Background(), args, strings.NewReader(""), &out, &err); code != 1 || !strings.Contains(err.String(), "there is no lab") {
			t.Errorf("%q: exit code %d and %q", args, code, &err)
		}
	}
}
