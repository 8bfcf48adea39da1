// Package program implements the images lab/echo, lab/client and lab/sleep.
//
// An echo answers requests over HTTP, TCP and UDP with its identity and location. A sleep does
// nothing. A client is a sleep too: package load sends requests from its pod.
//
// An echo is configured by environment variables, such as ECHO_DRAIN. A pod's identity comes from
// POD_NAME (else HOSTNAME), POD_NAMESPACE, NODE_NAME, ZONE and SERVICE, which the downward API
// can set.
//
// The package does not depend on Kubernetes or on the rest of the lab.
package program

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"vicinity.dev/vicinity/lab/load"
)

// Names returns the names of the programs.
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

	p := &process{env: variables(c.Env), out: log.New(c.Stdout, "", 0), stderr: c.Stderr}
	var err error
	switch {
	case !slices.Contains(Names(), c.Name):
		err = fmt.Errorf("it is not a program; it must be one of %s", strings.Join(Names(), ", "))
	case len(c.Args) > 0:
		err = fmt.Errorf("argument %q: the program takes none", c.Args[0])
	case c.Name == "echo":
		err = runEcho(ctx, p)
	default:
		<-ctx.Done()
	}
	if err != nil {
		fmt.Fprintf(c.Stderr, "%s: %v\n", c.Name, err)
		return 1
	}
	return 0
}

type process struct {
	env    map[string]string
	out    *log.Logger // for readers of the pod's log
	stderr io.Writer
}

// variables returns the environment by name. If a name occurs twice, the last value counts, as in
// a shell.
func variables(env []string) map[string]string {
	byName := make(map[string]string, len(env))
	for _, variable := range env {
		name, value, _ := strings.Cut(variable, "=")
		byName[name] = value
	}
	return byName
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
