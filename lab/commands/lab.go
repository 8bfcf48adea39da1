// Package commands holds the commands of labs, one per file.
//
// A command reads its flags, calls package lab, and prints the result. Streams and the context are
// injected, so a test runs a command through Main as a user does.
package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/shape"
)

type labFlags struct {
	name       string
	kubernetes string
}

// Main runs the command in args, without the program's name, and returns the exit code. It stops when
// ctx ends.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return command.Execute(ctx, newRootCommand(command.Streams{In: stdin, Out: stdout, Err: stderr}), args)
}

// newRootCommand is the program with all its commands. Users call it by "vicinity lab".
func newRootCommand(s command.Streams) *cobra.Command {
	f := &labFlags{}
	cmd := &cobra.Command{
		Use:           "vicinity-lab",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "vicinity lab"},
		SilenceUsage:  true,
		SilenceErrors: true,
		Short:         "Run a real multi-zone Kubernetes on this machine",
		Long: `Lab runs a real Kubernetes of several zones on this machine, without containers or a cloud.
Nodes are network namespaces, and pods are processes. It needs Linux and root. docs/lab.md
explains it.`,
		Example: `  vicinity lab up
  export KUBECONFIG=$(vicinity lab kubeconfig)
  kubectl get nodes -L topology.kubernetes.io/zone
  vicinity lab down`,
	}
	// An empty variable must not make a command take down another lab.
	cmd.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("name") && f.name == "" {
			return command.UsageErrorf("--name is empty; write the name of a lab, or leave it out")
		}
		return nil
	}
	cmd.SetIn(s.In)
	cmd.SetOut(s.Out)
	cmd.SetErr(s.Err)
	flags := cmd.PersistentFlags()
	flags.StringVar(&f.name, "name", "", "`NAME` of the lab; several labs can run (default $VICINITY_LAB_NAME, or \"default\")")
	flags.StringVar(&f.kubernetes, "kubernetes", "", "`FILE` with the Kubernetes program (default vicinity-kubernetes beside this program, or $VICINITY_KUBERNETES)")
	cmd.AddCommand(
		newLabUpCommand(s, f),
		newLabDownCommand(s, f),
		newLabStatusCommand(s, f),
		newLabKubeconfigCommand(s, f),
		newLabLogsCommand(s, f),
		newLabLoadCommand(s, f),
		newLabTrafficCommand(s, f),
		newLabNodeCommand(s, f),
		newLabZoneCommand(s, f),
		newLabComponentCommand(s, f),
		newLabDemoCommand(s, f),
		newLabManifestsCommand(s),
		newLabApplyCommand(s, f),
		newLabVicinityCommand(s, f),
		newLabDNSCommand(s, f),
		newLabInternalCommand(),
		newLabProgramCommand(s),
	)
	return cmd
}

// nameVariable names a lab if --name does not.
const nameVariable = "VICINITY_LAB_NAME"

func (f *labFlags) lab() (string, error) {
	var wrong *shape.FieldError
	for _, source := range []struct{ by, name string }{{"--name", f.name}, {nameVariable, os.Getenv(nameVariable)}} {
		if source.name == "" {
			continue
		}
		if err := shape.ValidateName(source.name); errors.As(err, &wrong) {
			return "", command.UsageErrorf("%s%s", source.by, wrong.Problem)
		}
		return source.name, nil
	}
	return shape.DefaultName, nil
}

// byFlag names the flag of a field in an error about the field of a shape, if there is one.
func byFlag(err error, flags map[string]string) error {
	var wrong *shape.FieldError
	if errors.As(err, &wrong) && flags[wrong.Field] != "" {
		return command.UsageErrorf("%s%s", flags[wrong.Field], wrong.Problem)
	}
	return err
}

// options are for the package lab.
func (f *labFlags) options(log io.Writer) lab.Options {
	return lab.Options{Kubernetes: f.kubernetes, Log: log}
}

func (f *labFlags) open(s command.Streams) (*lab.Cluster, error) {
	name, err := f.lab()
	if err != nil {
		return nil, err
	}
	return lab.Open(name, f.options(s.Err))
}

func table(w io.Writer, headings []string, rows [][]string) error {
	t := plaintext.NewTable(headings...)
	t.Rows = rows
	return t.Text(w, "")
}

// oneName requires one argument.
func oneName(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%q takes one argument, the name of a %s; there are %d", cmd.CommandPath(), what, len(args))
		}
		return nil
	}
}

// labVerb is a command for one named part of a lab.
type labVerb struct {
	name, short string
	what        string // the argument
	do          func(ctx context.Context, c *lab.Cluster, name string) error
	done        string // printed after the name
}

func (v labVerb) command(s command.Streams, f *labFlags) *cobra.Command {
	return &cobra.Command{
		Use:   v.name + " " + strings.ToUpper(v.what),
		Short: v.short,
		Args:  oneName(v.what),
		RunE: func(cmd *cobra.Command, args []string) error {
			cluster, err := f.open(s)
			if err != nil {
				return err
			}
			if err := v.do(cmd.Context(), cluster, args[0]); err != nil {
				return err
			}
			_, err = fmt.Fprintf(s.Out, "%s %s %s\n", v.what, args[0], v.done)
			return err
		},
	}
}
