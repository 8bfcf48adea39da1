package meter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"vicinity.dev/vicinity/lab/fabric"
)

// Program is a process of a benchmark.
type Program struct {
	name    string
	command *exec.Cmd
	log     *os.File
	// Began is the time of its start.
	Began time.Time
	ended chan struct{}
	// isStopping means that it was asked to end.
	isStopping atomic.Bool
}

// Start starts a program, in a network namespace unless that is empty. If the program ends by itself,
// the context ends too.
func Start(name, namespace, folder string, lost context.CancelCauseFunc, args ...string) (*Program, error) {
	p := &Program{name: name, ended: make(chan struct{})}
	var err error
	if p.log, err = os.OpenFile(filepath.Join(folder, name+".log"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600); err != nil {
		return nil, err
	}
	p.command = exec.Command(args[0], args[1:]...)
	p.command.Stdout, p.command.Stderr = p.log, p.log
	// An interrupt of this program is not for the others.
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	begin := func() error {
		p.Began = time.Now()
		return p.command.Start()
	}
	if namespace == "" {
		err = begin()
	} else {
		err = fabric.InNamespace(namespace, begin)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", name, err), p.log.Close())
	}
	go func() {
		defer close(p.ended)
		if err := p.command.Wait(); !p.isStopping.Load() {
			lost(fmt.Errorf("%s ended (%w): %s", name, err, p.logEnd()))
		}
	}()
	return p, nil
}

// stopTime is how long a program may take to end.
const stopTime = 10 * time.Second

// Stop ends a program and waits for its end. It must be called once. It kills a program that does not
// end in time, and returns an error.
func (p *Program) Stop() error {
	p.isStopping.Store(true)
	err := p.signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(stopTime):
		err = errors.Join(err, fmt.Errorf("%s did not end within %s: %s", p.name, stopTime, p.logEnd()), p.signal(syscall.SIGKILL))
		<-p.ended
	}
	return errors.Join(err, p.log.Close())
}

func (p *Program) signal(signal syscall.Signal) error {
	if err := p.command.Process.Signal(signal); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

func (p *Program) logEnd() string {
	data, err := os.ReadFile(p.log.Name())
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(data[max(0, len(data)-1000):]))
}

// CPU returns the CPU time of a program and of its ended children. Its own time is exact, the
// children's is in the kernel's ticks.
func (p *Program) CPU() (time.Duration, error) {
	pid := p.command.Process.Pid
	total, err := childrenCPU(pid)
	if err != nil {
		return 0, err
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if err != nil {
			continue // it ended
		}
		var nanoseconds int64
		if _, err := fmt.Sscan(string(text), &nanoseconds); err != nil {
			return 0, fmt.Errorf("reading %s: %w", thread, err)
		}
		total += time.Duration(nanoseconds)
	}
	return total, nil
}

// childrenCPU returns the user and kernel time of a process' ended children. The second field of
// /proc/PID/stat is a name in parentheses that may hold anything, so fields are counted from its end.
func childrenCPU(pid int) (time.Duration, error) {
	const field, afterName, ticksPerSecond = 16, 3, 100 // the same on all Linux platforms
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var user, kernel int64
	if _, err := fmt.Sscan(strings.Join(fields[field-afterName:][:2], " "), &user, &kernel); err != nil {
		return 0, fmt.Errorf("process status %q: %w", stat, err)
	}
	return time.Duration(user+kernel) * time.Second / ticksPerSecond, nil
}

// Memory returns the resident bytes of a program.
func (p *Program) Memory() (int64, error) { return p.memory("status", "VmRSS") }

// Peak returns the most resident bytes that a program had.
func (p *Program) Peak() (int64, error) { return p.memory("status", "VmHWM") }

// Share returns the bytes of a program, with its part of shared memory.
func (p *Program) Share() (int64, error) { return p.memory("smaps_rollup", "Pss") }

func (p *Program) memory(file, field string) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.command.Process.Pid, file))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, field+":"); found {
			var kib int64
			if _, err := fmt.Sscan(value, &kib); err != nil {
				return 0, fmt.Errorf("memory %q: %w", line, err)
			}
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("the kernel does not report %s of the process", field)
}
