package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// batchSize is the number of tests of a process. Starting a process takes seconds, but all
// processes should end at about the same time.
const batchSize = 4

const logFile = "log"

// batch has the tests of one process.
type batch struct {
	tests  []string
	folder string
}

// runAll runs the tests of a plan. Tests that skip themselves run again after grow has enlarged the
// lab: some need two nodes in each zone, but more nodes slow most others down.
func (o *options) runAll(ctx context.Context, kubeconfig string, p plan, grow func(context.Context) error) ([]result, error) {
	results, err := o.runTests(ctx, kubeconfig, o.reports, p)
	if err != nil {
		return nil, err
	}
	var again []string
	for _, r := range results {
		if r.state == skipped && !r.allowed {
			again = append(again, r.name)
		}
	}
	if len(again) == 0 {
		return results, nil
	}
	fmt.Fprintf(o.log, "%d tests skipped themselves; they run again with more nodes\n", len(again))
	if err := grow(ctx); err != nil {
		return nil, fmt.Errorf("adding nodes: %w", err)
	}
	later, err := o.runTests(ctx, kubeconfig, filepath.Join(o.reports, moreNodesFolder), order(again))
	if err != nil {
		return nil, err
	}
	return replace(results, later), nil
}

// moreNodesFolder has the reports of tests that ran with more nodes.
const moreNodesFolder = "more-nodes"

// replace replaces results of tests by later ones.
func replace(results, later []result) []result {
	results = slices.DeleteFunc(results, func(r result) bool {
		return slices.ContainsFunc(later, func(l result) bool { return l.name == r.name })
	})
	return append(results, later...)
}

func (o *options) runTests(ctx context.Context, kubeconfig, reports string, p plan) ([]result, error) {
	var batches []batch
	add := func(tests []string) batch {
		b := batch{tests: tests, folder: filepath.Join(reports, fmt.Sprintf("%03d", len(batches)+1))}
		batches = append(batches, b)
		return b
	}
	for tests := range slices.Chunk(p.parallel, batchSize) {
		add(tests)
	}
	workqueue.ParallelizeUntil(ctx, o.parallel, len(batches), func(i int) { o.runBatch(ctx, kubeconfig, batches[i]) })
	if len(p.serial) > 0 {
		o.runBatch(ctx, kubeconfig, add(p.serial))
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var results []result
	for _, b := range batches {
		found, err := readReports(b.folder, b.tests)
		if err != nil {
			return nil, err
		}
		results = append(results, found...)
	}
	return results, nil
}

// runBatch runs tests in one process. Its reports show whether they passed.
func (o *options) runBatch(ctx context.Context, kubeconfig string, b batch) {
	if ctx.Err() != nil {
		return
	}
	begun := time.Now()
	err := o.execute(ctx, kubeconfig, b)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Fprintf(o.log, "tests in %s: %v\n", b.folder, err)
		return
	}
	results, err := readReports(b.folder, b.tests)
	if err != nil {
		fmt.Fprintf(o.log, "tests in %s: %v\n", b.folder, err)
		return
	}
	failures := 0
	for _, r := range results {
		if r.state == failed {
			failures++
		}
	}
	fmt.Fprintf(o.log, "%s: %d tests in %s, %d failed\n", filepath.Base(b.folder), len(b.tests), time.Since(begun).Round(time.Second), failures)
}

// stopGrace is how long a process may take to remove the objects of its tests.
const stopGrace = 20 * time.Second

func (o *options) execute(ctx context.Context, kubeconfig string, b batch) error {
	if err := os.MkdirAll(b.folder, 0o755); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(b.folder, logFile))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, o.program(),
		"--kubeconfig="+kubeconfig, "--kubectl-path="+filepath.Join(o.bin, "kubectl"),
		"--provider=skeleton", "--node-os-distro=custom", "--allowed-not-ready-nodes=0",
		"--dump-logs-on-failure=false", "--disable-log-dump",
		"--report-dir="+b.folder, "--e2e-output-dir="+b.folder,
		"--ginkgo.focus="+focusOn(b.tests), "--ginkgo.timeout=2h", "--ginkgo.v", "--ginkgo.silence-skips", "--ginkgo.no-color",
	)
	cmd.Dir, cmd.Stdout, cmd.Stderr = b.folder, log, log
	// In a session of its own the process does not get the terminal's interrupt: the context passes
	// it on, once.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = stopGrace
	return cmd.Run()
}
