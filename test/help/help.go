// Package help renders the help of a program, and checks what it says about each command.
package help

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/kit/command"
)

// Without has the commands that lack a flag, each with the reason.
type Without map[string]string

// Check fails for a command whose help names no exit codes, and for one that lacks a flag without a reason. newRoot makes the
// program.
func Check(t *testing.T, newRoot func(command.Streams) *cobra.Command, flags map[string]Without) {
	t.Helper()
	var out bytes.Buffer
	streams := command.Streams{In: strings.NewReader(""), Out: &out, Err: &out}
	var paths [][]string
	root := newRoot(streams)
	command.Walk(root, func(cmd *cobra.Command) {
		path := strings.Fields(strings.TrimPrefix(cmd.CommandPath(), root.DisplayName()))
		if cmd.DisableFlagParsing || cmd.Hidden || cmd.HasParent() && cmd.Parent().Hidden || len(path) == 0 {
			return
		}
		paths = append(paths, path)
		for name, without := range flags {
			has, reason := cmd.Flags().Lookup(name) != nil, without[strings.Join(path, " ")]
			if cmd.Runnable() && has == (reason != "") {
				t.Errorf("%q: the flag --%s exists: %v; reason why not: %q", cmd.CommandPath(), name, has, reason)
			}
		}
	})
	if len(paths) < 5 {
		t.Errorf("the program has the commands %q, want at least 5", paths)
	}
	for _, path := range paths {
		out.Reset()
		code := command.Execute(t.Context(), newRoot(streams), append(slices.Clone(path), "--help"))
		if text := out.String(); code != 0 || !strings.Contains(text, "Exit codes: 0 ") {
			t.Errorf("%q --help: exit code %d, and its text names no exit codes:\n%s", path, code, text)
		}
	}
}
