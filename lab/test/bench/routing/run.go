package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// convergeTime limits the time until the controller is done, generously.
const convergeTime = 20 * time.Minute

// bench is a run of the benchmark.
type bench struct {
	*options
	cluster    *cluster
	observer   *observer
	controller *controller
	figures    figures
	begun      time.Time
}

// run runs the benchmark and prints the figures.
func (o *options) run(ctx context.Context, out io.Writer) (err error) {
	b := &bench{options: o, begun: time.Now()}
	folder, err := os.MkdirTemp("", "bench-routing-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	b.say("a control plane with %d nodes, %d Services", o.nodes, o.services)
	if b.cluster, err = b.bringUp(ctx, folder); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.cluster.takeDown(ctx)) }()
	ctx, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	if b.observer, err = watch(ctx, b.cluster.api); err != nil {
		return err
	}
	b.figures.nodes, b.figures.services = o.nodes, o.services
	b.figures.endpoints, b.figures.slices = b.cluster.endpoints, b.cluster.sliceCount()
	b.say("%d endpoints in %d slices; the controller starts", b.figures.endpoints, b.figures.slices)
	started := time.Now()
	if b.controller, err = o.start(ctx, folder, b.cluster.Kubeconfig(), lost); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.controller.stop()) }()
	if err := b.converge(ctx, started); err != nil {
		return err
	}
	if err := b.change(ctx); err != nil {
		return err
	}
	if b.figures.memory, err = b.controller.memory(); err != nil {
		return err
	}
	if err := b.profile(ctx, "heap", "/debug/pprof/heap"); err != nil {
		return err
	}
	b.say("done")
	_, err = io.WriteString(out, b.figures.String())
	return err
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.log, "%4.0f s  %s\n", time.Since(b.begun).Seconds(), fmt.Sprintf(format, args...))
}

// converge measures how the controller writes all hints.
func (b *bench) converge(ctx context.Context, started time.Time) error {
	ctx, cancel := context.WithTimeoutCause(ctx, convergeTime, errors.New("the controller takes too long"))
	defer cancel()
	profiled := make(chan error, 1)
	go func() { profiled <- b.profile(ctx, "converge", "/debug/pprof/profile?seconds=20") }()
	o, f := b.observer, &b.figures
	err := o.wait(ctx, func() string {
		if o.done < b.services {
			return fmt.Sprintf("%d of %d Services have their hints", o.done, b.services)
		}
		return ""
	})
	if err != nil {
		return err
	}
	if f.hintedCPU, err = b.controller.cpu(); err != nil {
		return err
	}
	b.say("all hints are written")
	err = o.wait(ctx, func() string {
		f.converged, f.hinted = o.last.Sub(started), o.hinted
		if o.reported < b.services {
			return fmt.Sprintf("%d of %d Services have a condition", o.reported, b.services)
		}
		return ""
	})
	if err != nil {
		return err
	}
	if f.convergeWrites, err = b.controller.quiet(ctx); err != nil {
		return err
	}
	f.convergeSliceWrites, f.convergeServiceWrites = o.writes()
	if f.convergeCPU, err = b.controller.cpu(); err != nil {
		return err
	}
	if f.convergeMemory, err = b.controller.memory(); err != nil {
		return err
	}
	return <-profiled
}

// change measures how the controller follows changes of slices.
func (b *bench) change(ctx context.Context) error {
	f := &b.figures
	changes, err := b.cluster.changes(b.observer, b.changes())
	if err != nil {
		return err
	}
	b.say("all is told; %d changes begin", len(changes))
	if err := b.cluster.change(ctx, b.observer, b.rate, changes); err != nil {
		return err
	}
	writes, err := b.controller.quiet(ctx)
	if err != nil {
		return err
	}
	f.changeWrites = writes - f.convergeWrites
	cpu, err := b.controller.cpu()
	if err != nil {
		return err
	}
	f.changeCPU = cpu - f.convergeCPU
	f.rate = b.rate
	b.observer.mu.Lock()
	defer b.observer.mu.Unlock()
	f.measure(changes)
	return nil
}

// profile writes a profile of the controller, if profiles are enabled.
func (b *bench) profile(ctx context.Context, name, path string) error {
	if b.profiles == "" {
		return nil
	}
	if err := os.MkdirAll(b.profiles, 0o755); err != nil {
		return err
	}
	// The controller answers once it has started.
	var body io.ReadCloser
	for body == nil {
		response, err := get(ctx, "http://"+b.controller.pprof+path)
		switch {
		case err == nil:
			body = response.Body
		case ctx.Err() != nil:
			return fmt.Errorf("reading the profile %s: %w", name, err)
		default:
			select {
			case <-ctx.Done():
			case <-time.After(pollPeriod):
			}
		}
	}
	defer body.Close()
	file, err := os.Create(filepath.Join(b.profiles, name+".pprof"))
	if err != nil {
		return err
	}
	_, err = io.Copy(file, body)
	return errors.Join(err, file.Close())
}
