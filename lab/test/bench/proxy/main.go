// Command proxy measures what a node's proxy costs and how fast it is: kube-proxy and
// vicinity-proxy take turns on a node of a lab with thousands of Services, as objects of a
// real API server, and one Service whose endpoint really listens.
//
// Both clocks start when the change of an EndpointSlice is sent, and stop when a new
// connection from the node reaches the new endpoint. With vicinity-proxy the change goes
// through vicinity-controller and an EndpointGroup; how long it takes from the group's own
// write is measured too, which kube-proxy knows nothing of.
//
// Each has the flags that it has by default, but for what is the kernel's as a whole. CPU
// is that of the proxy and of the programs it starts, from before the first of many changes
// to after the last. Memory is what is resident after all changes. Each connection through
// the cluster IP is followed by one to the endpoint itself, as a control; each has a source
// port of its own, and the kernel remembers none when they begin. At last both proxies run at
// the same time, each on a node of its own, and connections by the rules of either alternate. Beside the figures
// stands the load of the machine during them, of which this benchmark is a part.
//
// "make bench-proxy" runs it. The lab is its own and is removed at the end.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// options are what flags say.
type options struct {
	sizes  []int
	rounds int
	// changes is how often the endpoints of a Service change under vicinity-proxy, and
	// peerChanges under kube-proxy, which takes seconds for each. costly is how often they
	// do under vicinity-proxy once more while its CPU is measured.
	changes, peerChanges, costly int
	// connects is how many connections are opened to see how long that takes.
	connects int
	// races is how often both proxies are measured at the same time, for that alone.
	races int
	// endpoints is how many one Service gets in the end, 0 for none.
	endpoints int
	// subsets says whether traffic that stays in its zone is measured too.
	subsets bool
	// peer says whether kube-proxy is measured too.
	peer bool
	// weights says whether Services whose endpoints have weights are measured too.
	weights bool
	// bin is the folder of the programs.
	bin string
	// flags are more flags for vicinity-proxy.
	flags []string
	// log is told what is being done.
	log io.Writer
}

// maxServices is how many there are addresses for.
const maxServices = 50000

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program
	o, err := parse(os.Args[1:])
	if err == nil {
		err = o.run(ctx, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-proxy:", err)
		os.Exit(1)
	}
}

func parse(args []string) (*options, error) {
	o := &options{log: os.Stderr}
	flags := flag.NewFlagSet("bench-proxy", flag.ContinueOnError)
	sizes := flags.String("sizes", "1000,5000,10000", "`numbers` of Services, each with 10 endpoints, in ascending order")
	flags.IntVar(&o.rounds, "rounds", 2, "how often the two proxies take turns with each number of Services")
	flags.IntVar(&o.changes, "changes", 200, "changes of endpoints under vicinity-proxy, in each round")
	flags.IntVar(&o.peerChanges, "peer-changes", 10, "changes of endpoints under kube-proxy, in each round")
	flags.IntVar(&o.costly, "cost-changes", 100, "more changes under vicinity-proxy, in each round, while its CPU is measured")
	flags.IntVar(&o.connects, "connects", 5000, "connections to see how long one takes, in each round")
	flags.IntVar(&o.races, "races", 3, "how often such connections are measured with both proxies at the same time, each on a node of its own; 0 for never")
	flags.IntVar(&o.endpoints, "endpoints", 100000, "endpoints that one Service gets in the end; 0 for none")
	flags.BoolVar(&o.peer, "peer", true, "measure kube-proxy, too, which takes minutes to start with tens of thousands of Services")
	flags.BoolVar(&o.weights, "weights", true, "measure, with the greatest number of Services, vicinity-proxy while zones share their traffic by weights")
	flags.BoolVar(&o.subsets, "subsets", true, "measure, with the greatest number of Services, what a node receives whose zone sees only its own endpoints")
	flags.StringVar(&o.bin, "bin", "bin", "`folder` of the programs vicinity, vicinity-controller, vicinity-proxy and vicinity-kubernetes")
	more := flags.String("proxy-flags", "", "more `flags` for vicinity-proxy")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("argument %q: there are only flags", flags.Arg(0))
	}
	o.flags = strings.Fields(*more)
	var err error
	if o.bin, err = filepath.Abs(o.bin); err != nil {
		return nil, err
	}
	last := 0
	for text := range strings.SplitSeq(*sizes, ",") {
		size, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || size <= last || size > maxServices {
			return nil, fmt.Errorf("-sizes: %q is not allowed; write numbers from 1 to %d in ascending order, with commas between", text, maxServices)
		}
		o.sizes, last = append(o.sizes, size), size
	}
	for _, number := range []struct {
		flag  string
		value int
		least int
	}{{"rounds", o.rounds, 1}, {"changes", o.changes, 2}, {"peer-changes", o.peerChanges, 2}, {"cost-changes", o.costly, 1}, {"connects", o.connects, 1}, {"races", o.races, 0}, {"endpoints", o.endpoints, 0}} {
		if number.value < number.least {
			return nil, fmt.Errorf("-%s: %d is not allowed; it must be %d or more", number.flag, number.value, number.least)
		}
	}
	return o, nil
}
