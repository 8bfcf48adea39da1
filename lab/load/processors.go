package load

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// DetectStalls observes each processor of this machine until it is stopped. A processor can
// stand still alone, when the host takes it away from a virtual machine: then the programs
// and packets on it wait while others go on.
func DetectStalls() (p *StallDetector, stop func(), err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, nil, fmt.Errorf("asking for the processors of this machine: %w", err)
	}
	p = &StallDetector{last: slices.Repeat([]time.Time{time.Now()}, set.Count())}
	var over atomic.Bool
	var running sync.WaitGroup
	stop = func() {
		over.Store(true)
		running.Wait()
	}
	for cpu, found := 0, 0; found < len(p.last); cpu++ {
		if !set.IsSet(cpu) {
			continue
		}
		of, bound := found, make(chan error)
		running.Go(func() { p.watchProcessor(cpu, of, bound, &over) })
		if err := <-bound; err != nil {
			stop()
			return nil, nil, fmt.Errorf("observing processor %d: %w", cpu, err)
		}
		found++
	}
	return p, stop, nil
}

// watchProcessor ticks on one processor until all are stopped.
func (p *StallDetector) watchProcessor(cpu, of int, bound chan<- error, over *atomic.Bool) {
	// The thread is bound to the processor and ends with the goroutine.
	runtime.LockOSThread()
	var only unix.CPUSet
	only.Set(cpu)
	err := unix.SchedSetaffinity(0, &only)
	bound <- err
	if err != nil {
		return
	}
	pause := unix.NsecToTimespec(tickPeriod.Nanoseconds())
	for !over.Load() {
		// Not a timer of the runtime, which could run on another processor. An interrupted
		// sleep only ticks early.
		_ = unix.Nanosleep(&pause, nil)
		p.tick(of, time.Now())
	}
}
