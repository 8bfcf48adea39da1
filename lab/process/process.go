// Package process starts programs that outlive the command that started them, and finds
// them again.
//
// A process of a lab has its own session and log, and a record in the state folder. The record
// has its number and start time, so that a later process with the same number is not mistaken for
// it. A record can be lost when a command is killed, so each process also has a marker in its
// environment. Strays finds processes by the marker, so StopAll ends all processes that a lab
// started.
//
// The package enters namespaces on a thread that ends afterwards.
package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/lab/state"
)

// ErrNotFound means that a lab has no process with a name.
var ErrNotFound = errors.New("there is no such process")

// Spec describes a process to start.
type Spec struct {
	// Name is the name of the process' record and log.
	Name string
	// Args are the program and its arguments.
	Args []string
	// Env is the environment without the marker. Nil means this process' environment.
	Env []string
	// Namespace is the network namespace to run in. Empty means this process' namespace.
	Namespace string
	// Mounts is the path of the mount namespace to run in. Empty means this process' namespace.
	Mounts string
}

// Process is a process of a lab. Its exported fields are its record.
type Process struct {
	Name      string    `json:"name"`
	PID       int       `json:"pid"`
	Args      []string  `json:"args"`
	Namespace string    `json:"namespace,omitempty"`
	Started   time.Time `json:"started"`
	// StartTicks is the start time since the boot with the id Boot. PID, StartTicks and Boot
	// together identify the process.
	StartTicks uint64 `json:"startTicks"`
	Boot       string `json:"boot"`

	dir state.Dir
	// reaped is closed when the process has been reaped. It is nil unless this process started it.
	reaped chan struct{}
}

// Marker is the entry in the environment of each process of a lab.
func Marker(d state.Dir) string { return "VICINITY_LAB=" + d.Path() }

// Start starts a process and records it. It fails if a process with the same name runs.
func Start(d state.Dir, spec Spec) (*Process, error) {
	if err := spec.validate(); err != nil {
		return nil, err
	}
	if running, err := Find(d, spec.Name); err == nil && running.Alive() {
		return nil, fmt.Errorf("starting %s: it runs already, as process %d", spec.Name, running.PID)
	}
	log, err := os.OpenFile(d.Log(spec.Name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("starting %s: opening its log: %w", spec.Name, err)
	}
	defer log.Close()

	environment := spec.Env
	if environment == nil {
		environment = os.Environ()
	}
	cmd := exec.Command(spec.Args[0], spec.Args[1:]...)
	cmd.Env = append(slices.Clone(environment), Marker(d))
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := start(cmd, spec); err != nil {
		return nil, fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	p := &Process{
		Name: spec.Name, PID: cmd.Process.Pid, Args: spec.Args, Namespace: spec.Namespace, Started: time.Now().UTC(),
		dir: d, reaped: make(chan struct{}),
	}
	// Before the child is reaped: even if it has ended, its number and start time are still valid.
	err = p.record()
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(p.reaped)
	}()
	if err != nil {
		// Without a record, Find cannot find the process.
		return nil, errors.Join(fmt.Errorf("recording %s: %w", spec.Name, err), p.Kill(context.Background()))
	}
	return p, nil
}

func (s Spec) validate() error {
	if s.Name == "" || s.Name != filepath.Base(s.Name) || strings.HasPrefix(s.Name, ".") {
		return fmt.Errorf("process name %q: write the name of a file, without a slash and not beginning with a dot", s.Name)
	}
	if len(s.Args) == 0 {
		return fmt.Errorf("process %q: it names no program", s.Name)
	}
	return nil
}

func (p *Process) record() error {
	stat, err := ReadStat(p.PID)
	if err != nil {
		return err
	}
	p.StartTicks = stat.StartTicks
	if p.Boot, err = bootID(); err != nil {
		return err
	}
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return state.WriteFile(p.dir.Record(p.Name), append(data, '\n'), 0o600)
}

// Find finds a process by its record. The process may have ended. Without a record the error is
// ErrNotFound.
func Find(d state.Dir, name string) (*Process, error) {
	data, err := os.ReadFile(d.Record(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("process %q of lab %q: %w", name, d.Name(), ErrNotFound)
	} else if err != nil {
		return nil, fmt.Errorf("finding process %q: %w", name, err)
	}
	p := &Process{dir: d}
	if err := json.Unmarshal(data, p); err != nil {
		return nil, fmt.Errorf("finding process %q: reading %s: %w", name, d.Record(name), err)
	}
	return p, nil
}

// Alive reports whether the process runs or is paused.
func (p *Process) Alive() bool {
	if p.reaped != nil {
		select {
		case <-p.reaped:
			return false
		default:
		}
	}
	stat, ok := p.stat()
	return ok && !stat.Ended()
}

// Paused reports whether the process is paused.
func (p *Process) Paused() bool {
	stat, ok := p.stat()
	return ok && stat.State == 'T'
}

// stat reads the state of the process. It reports false if another process has its number.
func (p *Process) stat() (Stat, bool) {
	stat, err := ReadStat(p.PID)
	if err != nil || stat.StartTicks != p.StartTicks {
		return Stat{}, false
	}
	boot, err := bootID()
	return stat, err == nil && boot == p.Boot
}

// open opens a handle on the process, or returns nil if it has ended.
func (p *Process) open() (*handle, error) {
	return openHandle(p.PID, func() bool {
		stat, ok := p.stat()
		return ok && !stat.Ended()
	})
}

const killWait = 10 * time.Second

// Stop terminates the process, and kills it after the grace period or when the context ends. Then
// it kills the other processes of its session, and removes the record, even if the process has
// ended before.
func (p *Process) Stop(ctx context.Context, grace time.Duration) error {
	handle, err := p.open()
	if err != nil {
		return fmt.Errorf("stopping %s: %w", p.Name, err)
	}
	if handle != nil {
		defer handle.close()
		// A paused process handles no SIGTERM.
		if grace > 0 && p.Paused() {
			if err := p.Resume(); err != nil {
				return err
			}
		}
		if err := handle.terminate(ctx, grace); err != nil {
			return fmt.Errorf("stopping %s: %w", p.Name, err)
		}
	}
	return p.cleanUp()
}

// Kill is Stop without grace period.
func (p *Process) Kill(ctx context.Context) error { return p.Stop(ctx, 0) }

func (p *Process) cleanUp() error {
	if p.reaped != nil {
		<-p.reaped
	}
	if err := p.killSession(); err != nil {
		return fmt.Errorf("stopping the session of %s: %w", p.Name, err)
	}
	// A newer process may have the record of this name.
	if found, err := Find(p.dir, p.Name); err == nil && found.PID == p.PID && found.StartTicks == p.StartTicks {
		if err := os.Remove(p.dir.Record(p.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the record of %s: %w", p.Name, err)
		}
	}
	return nil
}

// killSession kills the rest of the process' session. The number of a session is not reused while the
// session lasts: if another process has it now, nothing is left.
func (p *Process) killSession() error {
	if p.PID <= 1 {
		return nil
	}
	boot, err := bootID()
	if err != nil || boot != p.Boot {
		return err
	}
	if stat, err := ReadStat(p.PID); err == nil && stat.StartTicks != p.StartTicks {
		return nil
	}
	return killAll(func(pid int) bool {
		stat, err := ReadStat(pid)
		return err == nil && stat.Session == p.PID && !stat.Ended()
	})
}

// Pause freezes the process and its process group until Resume.
func (p *Process) Pause() error {
	if err := p.pause(); err != nil {
		return fmt.Errorf("pausing %s: %w", p.Name, err)
	}
	return nil
}

// pauseWait is how long a process may take to stop, and pauseTick how often it is checked.
const (
	pauseWait = 2 * time.Second
	pauseTick = time.Millisecond
)

func (p *Process) pause() error {
	handle, err := p.open()
	if err != nil {
		return err
	}
	if handle == nil {
		return p.errEnded()
	}
	defer handle.close()
	if err := handle.signal(unix.SIGSTOP); err != nil {
		return err
	}
	// The process stops before its group: a process that is forking stops only when its child
	// has started its program. If the child were stopped first, it would never start it.
	for deadline := time.Now().Add(pauseWait); !p.Paused(); time.Sleep(pauseTick) {
		if !p.Alive() {
			return p.errEnded()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d has not stopped after %s: it waits for the kernel", p.PID, pauseWait)
		}
	}
	return p.signalGroup(unix.SIGSTOP)
}

// Resume continues a paused process.
func (p *Process) Resume() error {
	err := p.errEnded()
	if p.Alive() {
		err = p.signalGroup(unix.SIGCONT)
	}
	if err != nil {
		return fmt.Errorf("resuming %s: %w", p.Name, err)
	}
	return nil
}

func (p *Process) errEnded() error {
	return fmt.Errorf("process %d has ended; start it again", p.PID)
}

func (p *Process) signalGroup(signal syscall.Signal) error {
	if err := unix.Kill(-p.PID, signal); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}
