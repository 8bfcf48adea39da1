// Package program implements the images lab/echo, lab/client and lab/sleep.
//
// An echo answers requests over HTTP, TCP and UDP with its identity and location. A sleep does
// nothing. A client is a sleep too: package load sends requests from its pod.
//
// Programs are configured by flags, or by environment variables: --http-port of echo is
// ECHO_HTTP_PORT. The program's name is part of the variable because Kubernetes sets
// variables like HTTP_PORT for a Service called http. Flags take precedence. A pod's
// identity comes from POD_NAME (else HOSTNAME), POD_NAMESPACE, NODE_NAME, ZONE and SERVICE,
// which the downward API can set.
//
// The package does not depend on Kubernetes or on the rest of the lab.
package program

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os/signal"
	"strings"
	"syscall"

	"vicinity.dev/vicinity/lab/load"
)

// Exit codes of all programs.
const (
	exitFailure = 1
	exitUsage   = 2
)

// Names are the names of the programs.
func Names() []string { return []string{"client", "echo", "sleep"} }

// Call describes a run of a program.
type Call struct {
	Name string
	Args []string // without the name
	Env  []string // name=value
	// Stdout gets information, Stderr errors.
	Stdout, Stderr io.Writer
}

// Run runs a program until it ends, and returns its exit code. SIGTERM, SIGINT and the end
// of ctx ask it to end; a second signal kills the process.
func Run(ctx context.Context, c Call) int {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop)

	var program func(context.Context, *process) error
	switch c.Name {
	case "echo":
		program = runEcho
	case "client", "sleep":
		program = runSleep
	default:
		fmt.Fprintf(c.Stderr, "program %q is unknown; it must be one of %s\n", c.Name, strings.Join(Names(), ", "))
		return exitUsage
	}
	err := program(ctx, &process{name: c.Name, args: c.Args, env: variables(c.Env), out: log.New(c.Stdout, "", 0), stderr: c.Stderr})
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintf(c.Stderr, "%s: %v\n", c.Name, err)
	if _, usage := errors.AsType[usageError](err); usage {
		return exitUsage
	}
	return exitFailure
}

type process struct {
	name   string
	args   []string
	env    map[string]string
	out    *log.Logger // what people read in the pod's log
	stderr io.Writer
}

type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// variables returns the environment by name. The last of several values counts, as in a
// shell.
func variables(env []string) map[string]string {
	byName := make(map[string]string, len(env))
	for _, variable := range env {
		name, value, _ := strings.Cut(variable, "=")
		byName[name] = value
	}
	return byName
}

func (p *process) flags() *flag.FlagSet {
	set := flag.NewFlagSet(p.name, flag.ContinueOnError)
	set.SetOutput(io.Discard) // errors are returned, and printed once
	return set
}

func (p *process) parse(set *flag.FlagSet) error {
	var errs []error
	set.VisitAll(func(f *flag.Flag) {
		name := strings.ToUpper(p.name + "_" + strings.ReplaceAll(f.Name, "-", "_"))
		if value, ok := p.env[name]; ok {
			if err := set.Set(f.Name, value); err != nil {
				errs = append(errs, fmt.Errorf("%s=%q: %w", name, value, err))
			}
		}
	})
	if len(errs) > 0 {
		return usageError{errors.Join(errs...)}
	}
	if err := set.Parse(p.args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			set.SetOutput(p.stderr)
			fmt.Fprintf(p.stderr, "%s has these flags:\n", p.name)
			set.PrintDefaults()
			return err
		}
		return usageError{err}
	}
	if set.NArg() > 0 {
		return usageError{fmt.Errorf("argument %q is not a flag; %s takes flags only", set.Arg(0), p.name)}
	}
	return nil
}

// runSleep returns when it is asked to end.
func runSleep(ctx context.Context, p *process) error {
	if err := p.parse(p.flags()); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func (p *process) endpoint() load.Endpoint {
	return load.Endpoint{
		Pod:       cmp.Or(p.env["POD_NAME"], p.env["HOSTNAME"], "unknown"),
		Namespace: p.env["POD_NAMESPACE"],
		Node:      p.env["NODE_NAME"],
		Zone:      p.env["ZONE"],
		Service:   p.env["SERVICE"],
	}
}
