package commands

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
	"vicinity.dev/vicinity/test/help"
)

// pretendUp writes the state of labs that are up, without processes.
func pretendUp(t *testing.T, names ...string) (root string) {
	t.Helper()
	root = t.TempDir()
	t.Setenv("VICINITY_LAB_DIR", root)
	t.Setenv("VICINITY_KUBERNETES", "/bin/sh")
	for _, name := range names {
		dir, err := state.Create(root, name)
		if err != nil {
			t.Fatal(err)
		}
		s := shape.Default()
		s.Name = name
		if err := dir.Save(state.Lab{Shape: s, Up: true}); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// An error names the flag. An empty value must not stand for the default.
func TestErrorsNameFlags(t *testing.T) {
	pretendUp(t, "default")
	file := filepath.Join(t.TempDir(), "shape.yaml")
	if err := os.WriteFile(file, []byte("zones: []"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args     []string
		variable string
		code     int
		want     string
	}{
		{args: []string{"down", "--name", ""}, code: command.ExitUsage, want: "--name is empty"},
		{args: []string{"status", "--name", ""}, code: command.ExitUsage, want: "--name is empty"},
		{args: []string{"up", "--name", "other", "--zones", ""}, code: command.ExitUsage, want: "--zones is empty"},
		{args: []string{"down", "--name", "No!"}, code: command.ExitUsage, want: `--name "No!": a lowercase RFC 1123 label must`},
		{args: []string{"down"}, variable: "No!", code: command.ExitUsage, want: `VICINITY_LAB_NAME "No!": a lowercase RFC 1123 label must`},
		{args: []string{"up", "--zones", "a,a"}, code: command.ExitUsage, want: `--zones "a": another zone has this name`},
		{args: []string{"up", "--proxy", "mine"}, code: command.ExitUsage, want: `--proxy "mine": write one of`},
		{args: []string{"zone", "impair", "zone-a", "--loss", "101"}, code: command.ExitUsage, want: "--loss 101: write a percentage from 0 to 100"},
		{args: []string{"zone", "impair", "zone-a", "--delay", "11s"}, code: command.ExitUsage, want: "--delay 11s: write a time from 0s to 10s"},
		{args: []string{"zone", "impair", "zone-a"}, code: command.ExitUsage, want: "--loss is 0 and so is the delay: write at least one of them"},
		{args: []string{"up", "--images", file}, code: command.ExitFailure, want: `unknown field "zones"`},
	} {
		t.Setenv("VICINITY_LAB_NAME", test.variable)
		var out, err bytes.Buffer
		code := Main(t.Context(), test.args, strings.NewReader(""), &out, &err)
		if code != test.code || !strings.Contains(err.String(), test.want) {
			t.Errorf("lab %q: exit code %d, %q, want %d and %q", test.args, code, &err, test.code, test.want)
		}
	}
}

// Every command says its exit codes, and prints JSON unless there is a reason.
func TestCommandsAreAlike(t *testing.T) {
	const changes = "it changes the lab, which status -o json shows"
	const figures = "its table is for people, and programs use the packages lab and load"
	help.Check(t, newRootCommand, map[string]help.Without{"output": {
		"apply": "kubectl get -o json prints what it applied", "component kill": changes, "component pause": changes, "component resume": changes,
		"component start": changes, "component stop": changes, "demo": "it tells a story", "dns": changes, "down": changes,
		"kubeconfig": "it prints one path for a shell", "load": figures, "logs": "it prints the logs as they are",
		"manifests": "it prints manifests for kubectl", "node add": changes, "node remove": changes, "node start": changes, "node stop": changes,
		"traffic": figures, "up": changes, "vicinity": changes, "zone cut": changes, "zone heal": changes, "zone impair": changes, "zone repair": changes,
	}})
}
