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

// Machine is the pulse of all processors of this machine, until it is stopped. One of them
// can stand still alone, as when a host takes it away from a virtual machine: what runs on
// it stays there, and so do the packets that are in its queue, while programs on the others
// go on.
func Machine() (p *Pulse, stop func(), err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, nil, fmt.Errorf("asking for the processors of this machine: %w", err)
	}
	p = &Pulse{last: slices.Repeat([]time.Time{time.Now()}, set.Count())}
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
		running.Go(func() { p.processor(cpu, of, bound, &over) })
		if err := <-bound; err != nil {
			stop()
			return nil, nil, fmt.Errorf("feeling the pulse of processor %d: %w", cpu, err)
		}
		found++
	}
	return p, stop, nil
}

// processor beats on one processor until all is over.
func (p *Pulse) processor(cpu, of int, bound chan<- error, over *atomic.Bool) {
	// The thread is bound to the processor, and ends with the goroutine.
	runtime.LockOSThread()
	var only unix.CPUSet
	only.Set(cpu)
	err := unix.SchedSetaffinity(0, &only)
	bound <- err
	if err != nil {
		return
	}
	pause := unix.NsecToTimespec(beat.Nanoseconds())
	for !over.Load() {
		// Interrupted, it beats early. A timer of the runtime could be that of another
		// processor.
		_ = unix.Nanosleep(&pause, nil)
		p.beat(of, time.Now())
	}
}
