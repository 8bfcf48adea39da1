package cli

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	kitcommand "vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/test/help"
)

// probe is a program with additional commands of a test.
func probe(out, err *bytes.Buffer, commands ...*cobra.Command) *cobra.Command {
	root := newRootCommand(kitcommand.Streams{In: strings.NewReader(""), Out: out, Err: err})
	root.AddCommand(commands...)
	return root
}

func TestExecute(t *testing.T) {
	failing := func(err error) *cobra.Command {
		return &cobra.Command{Use: "probe", RunE: func(*cobra.Command, []string) error { return err }}
	}
	for _, test := range []struct {
		name    string
		command *cobra.Command
		args    string
		code    int
		message string
	}{
		{
			name:    "success",
			command: failing(nil),
			args:    "probe",
		},
		{
			name:    "failure",
			command: failing(errors.New("reading nodes: no such file")),
			args:    "probe",
			code:    1,
			message: "vicinity: reading nodes: no such file\n",
		},
		{
			name:    "several errors are one line",
			command: failing(errors.Join(errors.New("one"), errors.New("two\n\ttab"))),
			args:    "probe",
			code:    1,
			message: "vicinity: one; two; tab\n",
		},
		{
			name:    "a command chooses its code",
			command: failing(fmt.Errorf("counting: %w", &kitcommand.ExitError{Code: 7, Err: errors.New("seven")})),
			args:    "probe",
			code:    7,
			message: "vicinity: counting: seven\n",
		},
		{
			name:    "a command finds a usage error",
			command: failing(kitcommand.UsageErrorf("--zones %d is too few; it must be 1 or more", 0)),
			args:    "probe",
			code:    2,
			message: "vicinity: --zones 0 is too few; it must be 1 or more (see \"vicinity probe --help\")\n",
		},
		{
			name:    "unknown command",
			command: failing(nil),
			args:    "probbe",
			code:    2,
			message: "vicinity: unknown command \"probbe\" for \"vicinity\"; did you mean \"probe\"? (see \"vicinity --help\")\n",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := kitcommand.Execute(t.Context(), probe(&stdout, &stderr, test.command), strings.Fields(test.args))
			if code != test.code || stderr.String() != test.message {
				t.Errorf("exit code %d, message %q; want %d, %q", code, stderr.String(), test.code, test.message)
			}
			if stdout.Len() > 0 {
				t.Errorf("standard output: %q", stdout.String())
			}
		})
	}
}

// Every command says its exit codes, prints JSON, and chooses a cluster as kubectl does. Other commands have a reason.
func TestCommandsAreAlike(t *testing.T) {
	const (
		manifest = "it reads files"
		streams  = "it prints its steps while it takes them"
	)
	noCluster := help.Without{
		"convert": manifest, "plan": manifest, "simulate": "it needs no cluster", "simulate dynamics": "it needs no cluster", "version": "it is about the program",
	}
	help.Check(t, newRootCommand, map[string]help.Without{
		"output": {
			"dns enable": streams, "dns disable": streams, "shift back": streams, "rollout adopt": "it prints manifests for kubectl",
			"console": "its server has JSON below /api/v1",
		},
		"kubeconfig": noCluster, "context": noCluster,
	})
}
