// Package program holds what runs in the containers of a lab whose images are lab/echo,
// lab/client and lab/sleep.
//
// An echo answers requests over HTTP, TCP and UDP with who it is and where, and health
// checks over gRPC if it is given a port for them. It can be told to be slow, to fail its
// probes or to crash: what a Service is tested with. A sleep does
// nothing, well. A client is the same by another name: package load sends from its pod.
//
// Programs are set up by flags, or by variables of the environment with the same names:
// the flag --http-port of echo is ECHO_HTTP_PORT. The name of the program stands before
// them because Kubernetes gives containers variables like HTTP_PORT for a Service called
// http. Flags win. Who a pod is it learns from POD_NAME (else HOSTNAME), POD_NAMESPACE,
// NODE_NAME, ZONE and SERVICE, which the downward API can give.
//
// The package knows neither Kubernetes nor the rest of the lab.
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

// Exit codes of every program. An echo that is told to crash has the one it is told.
const (
	exitFailure = 1
	exitUsage   = 2
)

// Names are the names of the programs.
func Names() []string { return []string{"client", "echo", "sleep"} }

// Call is how a program is run.
type Call struct {
	Name string
	Args []string // without the name
	Env  []string // name=value
	// Stdout has a line for whatever people should know, Stderr what went wrong.
	Stdout, Stderr io.Writer
}

// Run runs a program until it ends, and returns its exit code. SIGTERM, SIGINT and the
// end of ctx ask it to end; a second signal ends the process at once.
func Run(ctx context.Context, c Call) int {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop)

	var program func(context.Context, *process) (int, error)
	switch c.Name {
	case "echo":
		program = runEcho
	case "client", "sleep":
		program = runSleep
	default:
		fmt.Fprintf(c.Stderr, "program %q is unknown; it must be one of %s\n", c.Name, strings.Join(Names(), ", "))
		return exitUsage
	}
	code, err := program(ctx, &process{name: c.Name, args: c.Args, env: variables(c.Env), out: log.New(c.Stdout, "", 0), stderr: c.Stderr})
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return code
	}
	fmt.Fprintf(c.Stderr, "%s: %v\n", c.Name, err)
	if _, usage := errors.AsType[usageError](err); usage {
		return exitUsage
	}
	return exitFailure
}

// process is a program's surroundings.
type process struct {
	name   string
	args   []string
	env    map[string]string
	out    *log.Logger // what people read in the pod's log
	stderr io.Writer
}

// usageError says that a program was started wrongly.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// variables is the environment by name. Of several the last counts, as in a shell.
func variables(env []string) map[string]string {
	byName := make(map[string]string, len(env))
	for _, variable := range env {
		name, value, _ := strings.Cut(variable, "=")
		byName[name] = value
	}
	return byName
}

// flags is a set to be defined, then read with parse.
func (p *process) flags() *flag.FlagSet {
	set := flag.NewFlagSet(p.name, flag.ContinueOnError)
	set.SetOutput(io.Discard) // errors are returned, and printed once
	return set
}

// parse reads the environment, then the arguments.
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

// endpoint is who the pod is.
func (p *process) endpoint() load.Endpoint {
	return load.Endpoint{
		Pod:       cmp.Or(p.env["POD_NAME"], p.env["HOSTNAME"], "unknown"),
		Namespace: p.env["POD_NAMESPACE"],
		Node:      p.env["NODE_NAME"],
		Zone:      p.env["ZONE"],
		Service:   p.env["SERVICE"],
	}
}
