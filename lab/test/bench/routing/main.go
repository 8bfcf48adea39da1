// Command routing measures the routing controller at scale, against a real API server with
// thousands of nodes, Services and slices as objects: how long it takes to write all hints,
// what that costs, and how long a change of a slice waits for its hints.
//
// "make bench-routing" runs it in a lab of its own.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// options are set by flags.
type options struct {
	nodes, services int
	// rate is the number of changes per second, duration how long they are made.
	rate     int
	duration time.Duration
	// bin is the folder of the programs.
	bin string
	// flags are additional flags of the controller.
	flags []string
	// profiles is the folder for profiles; empty means none.
	profiles string
	log      io.Writer
}

// maxServices is the number of addresses for Services.
const maxServices = 50000

type scale struct{ nodes, services int }

var scales = map[string]scale{
	"short": {500, 1000},
	"full":  {5000, 10000},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program
	o, err := parse(os.Args[1:])
	if err == nil {
		err = o.run(ctx, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-routing:", err)
		os.Exit(1)
	}
}

func parse(args []string) (*options, error) {
	o := &options{log: os.Stderr}
	flags := flag.NewFlagSet("bench-routing", flag.ContinueOnError)
	size := flags.String("size", "short", "how much of everything: short or full")
	flags.IntVar(&o.nodes, "nodes", 0, "`number` of nodes, if not that of the size")
	flags.IntVar(&o.services, "services", 0, "`number` of Services, with 10 endpoints on average, if not that of the size")
	flags.IntVar(&o.rate, "rate", 20, "changes of slices a second")
	flags.DurationVar(&o.duration, "duration", 30*time.Second, "how long slices change")
	flags.StringVar(&o.bin, "bin", "bin", "`folder` of the programs vicinity, vicinity-controller and vicinity-kubernetes")
	flags.StringVar(&o.profiles, "profiles", "", "`folder` for profiles of the controller; without it there are none")
	more := flags.String("controller-flags", "", "more `flags` for the controller, which otherwise has those of the chart")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	o.flags = strings.Fields(*more)
	var err error
	if o.bin, err = filepath.Abs(o.bin); err != nil {
		return nil, err
	}
	named, found := scales[*size]
	switch {
	case flags.NArg() > 0:
		return nil, fmt.Errorf("argument %q: there are only flags", flags.Arg(0))
	case !found:
		return nil, fmt.Errorf("-size: %q is unknown; it must be short or full", *size)
	}
	if o.nodes == 0 {
		o.nodes = named.nodes
	}
	if o.services == 0 {
		o.services = named.services
	}
	switch {
	case o.nodes < 1:
		return nil, fmt.Errorf("-nodes: %d is not allowed; it must be 1 or more", o.nodes)
	case o.services < 1 || o.services > maxServices:
		return nil, fmt.Errorf("-services: %d is not allowed; it must be from 1 to %d", o.services, maxServices)
	case o.rate < 1 || o.rate > 1000:
		return nil, fmt.Errorf("-rate: %d is not allowed; it must be from 1 to 1000", o.rate)
	case o.changes() < 1 || o.changes() > o.services:
		return nil, fmt.Errorf("-duration: %s at a rate of %d makes %d changes; there must be some, and no more than the %d Services, each of which changes once",
			o.duration, o.rate, o.changes(), o.services)
	}
	return o, nil
}

// changes is the number of changes.
func (o *options) changes() int { return int(o.duration * time.Duration(o.rate) / time.Second) }
