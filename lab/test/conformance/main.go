// Command conformance runs Kubernetes' own end-to-end tests against a lab with Vicinity.
//
// A suite has the tests of one or more special interest groups. Each test runs, or is excluded with
// a reason. Tests that may run beside others are run by several processes, a few in each. The
// others follow one by one.
//
// It prints a line for each test that failed or was skipped, and a summary. The exit code is 1 if a
// test failed, or skipped itself and is not excluded. The tests' reports are kept as JUnit files.
//
// "make conformance" runs it in a lab of its own and removes the lab at the end.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"syscall"
	"time"

	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/image"
	"vicinity.dev/vicinity/lab/shape"
)

type options struct {
	suite string
	proxy shape.Proxy
	// prefer makes every Service ask for traffic within zones.
	prefer bool
	// focus selects tests by name.
	focus *regexp.Regexp
	// slow adds tests that take minutes each.
	slow bool
	// parallel is the number of processes that run tests at the same time.
	parallel int
	// bin is the folder of the lab's programs, tests the folder of the suite and its images.
	bin, tests string
	// reports is the folder for the tests' reports.
	reports string
	// lab is the name of the lab, so that others may run beside it.
	lab string
	log io.Writer
}

const proxyNames = "kube-proxy, vicinity, or both with every Service handed over to vicinity-proxy"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program
	o, err := parse(os.Args[1:])
	if err == nil {
		err = o.run(ctx, os.Stdout)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func parse(args []string) (*options, error) {
	o := &options{parallel: 2 * runtime.NumCPU(), bin: "bin", log: os.Stderr}
	flags := flag.NewFlagSet("conformance", flag.ContinueOnError)
	flags.StringVar(&o.suite, "suite", "all", "which tests: "+suiteNames)
	proxy := flags.String("proxy", string(shape.ProxyKubeProxy), "the proxy of Services: "+proxyNames)
	flags.BoolVar(&o.prefer, "prefer", false, "annotate every Service with Prefer for its zone, unless it has such a setting itself")
	focus := flags.String("focus", "", "regular `expression`: only tests whose names match")
	flags.BoolVar(&o.slow, "slow", false, "run tests that take minutes each, too")
	flags.StringVar(&o.tests, "tests", "", "`folder` with e2e.test and images.yaml, which \"make suite\" builds")
	flags.StringVar(&o.reports, "reports", "bin/conformance-reports", "`folder` for JUnit files and logs, replaced by each run")
	flags.StringVar(&o.lab, "lab", "conformance", "the lab's `name`; two runs at once need two")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	o.proxy = shape.Proxy(*proxy)
	var err error
	if o.focus, err = regexp.Compile(*focus); err != nil {
		return nil, fmt.Errorf("-focus %q: %w", *focus, err)
	}
	switch {
	case flags.NArg() > 0:
		return nil, fmt.Errorf("argument %q: only flags are allowed", flags.Arg(0))
	case suites[o.suite] == nil:
		return nil, fmt.Errorf("-suite %q: write one of %s", o.suite, suiteNames)
	case !slices.Contains([]shape.Proxy{shape.ProxyKubeProxy, shape.ProxyVicinity, shape.ProxyBoth}, o.proxy):
		return nil, fmt.Errorf("-proxy %q: write one of %s", o.proxy, proxyNames)
	case o.tests == "":
		return nil, errors.New("-tests is missing: it names the folder that \"make suite\" builds")
	}
	for _, folder := range []*string{&o.bin, &o.tests, &o.reports} {
		if *folder, err = filepath.Abs(*folder); err != nil {
			return nil, err
		}
	}
	return o, nil
}

func (o *options) run(ctx context.Context, out io.Writer) error {
	names, err := listTests(ctx, o.program())
	if err != nil {
		return err
	}
	release, err := releaseOf(ctx, o.program())
	if err != nil {
		return err
	}
	plan := o.choose(release, names)
	if len(plan.parallel)+len(plan.serial) == 0 {
		return fmt.Errorf("-suite %s -focus %q: no test to run matches", o.suite, o.focus)
	}
	if err := os.RemoveAll(o.reports); err != nil {
		return err
	}
	cluster, err := o.bringUp(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err := cluster.Down(context.WithoutCancel(ctx)); err != nil {
			fmt.Fprintln(o.log, "conformance: taking the lab down:", err)
		}
	}()
	services := newAnnotator(o.proxy == shape.ProxyBoth, o.prefer)
	defer func() {
		if err := services.stop(ctx); err != nil {
			fmt.Fprintln(o.log, "conformance: ending the webhook of the tests:", err)
		}
	}()
	if err := prepare(ctx, cluster, services); err != nil {
		return err
	}
	begun := time.Now()
	fmt.Fprintf(o.log, "%d tests run, up to %d at a time, then %d one by one; %d are skipped\n",
		len(plan.parallel), o.parallel, len(plan.serial), len(plan.skipped))
	results, err := o.runAll(ctx, cluster.Kubeconfig(), plan, func(ctx context.Context) error { return grow(ctx, cluster, o.values()) })
	if err != nil {
		return err
	}
	fmt.Fprintf(o.log, "the tests took %s; their reports are in %s\n", time.Since(begun).Round(time.Second), o.reports)
	effect, without := services.effect()
	if effect != "" {
		fmt.Fprintln(o.log, effect)
	}
	lines, passed := judge(o.suite, o.mode(), append(results, plan.skipped...))
	for _, line := range lines {
		fmt.Fprintln(out, line)
	}
	if !passed {
		return errors.Join(errors.New("tests failed, or skipped themselves"), without)
	}
	return without
}

// mode distinguishes runs of a suite.
func (o *options) mode() string {
	mode := "proxy=" + string(o.proxy)
	if o.prefer {
		mode += " prefer=true"
	}
	return mode
}

// bringUp brings up a lab of three zones with one node each. More nodes make many tests longer,
// since they connect each node with each.
func (o *options) bringUp(ctx context.Context) (*lab.Cluster, error) {
	images, err := o.images()
	if err != nil {
		return nil, err
	}
	s, err := shape.FromOptions(shape.Options{
		Name: o.lab, Zones: []string{"a", "b", "c"}, NodesPerZone: []int{1}, Proxy: string(o.proxy), DNS: string(shape.DNSVicinity),
	})
	if err != nil {
		return nil, err
	}
	cluster, err := lab.Up(ctx, s, lab.Options{Program: filepath.Join(o.bin, "vicinity-lab"), Images: images, Log: o.log})
	if err != nil {
		return nil, err
	}
	if err := cluster.InstallVicinity(ctx, o.values()...); err != nil {
		return nil, errors.Join(err, cluster.Down(context.WithoutCancel(ctx)))
	}
	return cluster, nil
}

// values returns values for the chart. When Services are annotated, the cluster's DNS is included,
// although the controller excludes its namespace by default.
func (o *options) values() []string {
	if o.proxy != shape.ProxyBoth && !o.prefer {
		return nil
	}
	return []string{"routing.excludedNamespaces=null"}
}

// prepare installs the cluster's DNS, whose Service is annotated like those of tests.
func prepare(ctx context.Context, cluster *lab.Cluster, services *annotator) error {
	if err := services.start(ctx, cluster); err != nil {
		return err
	}
	if err := cluster.InstallDNS(ctx, shape.DNSVicinity); err != nil {
		return err
	}
	return services.awaitHandOver(ctx)
}

// grow adds a node to each zone, and returns when Vicinity runs there too.
func grow(ctx context.Context, cluster *lab.Cluster, values []string) error {
	for _, zone := range cluster.Shape().Zones {
		if _, err := cluster.AddNode(ctx, shape.Node{Zone: zone.Name}); err != nil {
			return err
		}
	}
	return cluster.InstallVicinity(ctx, values...)
}

func (o *options) images() (image.Map, error) {
	file, err := os.Open(filepath.Join(o.tests, "images.yaml"))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	images, err := image.Read(file, o.tests)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file.Name(), err)
	}
	return images, nil
}

func (o *options) program() string { return filepath.Join(o.tests, "e2e.test") }
