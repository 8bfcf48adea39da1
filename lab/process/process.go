// Package process starts programs that outlive the command that started them, and
// finds them again.
//
// A process of a lab runs in a session of its own, writes to a log, and is known by a
// record in the state folder: its number and when it started, so that another process
// which got the same number later is not taken for it. A record can be lost, if the
// command is killed at the wrong moment; so each process also carries a marker in its
// environment, and Strays finds all that carry it. StopAll therefore ends everything
// that a lab ever started, whatever happened in between.
//
// A process can be put into a network namespace, on a thread that ends
// afterwards, by system calls alone; no helper program stands between.
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

// ErrNotFound says that a lab has no record of a process of a name.
var ErrNotFound = errors.New("there is no such process")

// Spec is what to start.
type Spec struct {
	// Name is the process' in the lab: that of its record and its log.
	Name string
	// Args are the program and its arguments.
	Args []string
	// Env is the environment, without the marker. Nil is that of this process.
	Env []string
	// Namespace names the network namespace to run in; empty is that of this process.
	Namespace string
}

// Process is a process of a lab. What is exported is its record.
type Process struct {
	Name      string    `json:"name"`
	PID       int       `json:"pid"`
	Args      []string  `json:"args"`
	Namespace string    `json:"namespace,omitempty"`
	Started   time.Time `json:"started"`
	// StartTicks is when the kernel says that the process started, since the boot
	// with the id Boot. With the number it is the process' identity.
	StartTicks uint64 `json:"startTicks"`
	Boot       string `json:"boot"`

	dir state.Dir
	// reaped is closed when a child of this process has ended; nil if it is no child.
	reaped chan struct{}
}

// Marker is the entry in the environment of each process of a lab.
func Marker(d state.Dir) string { return "VICINITY_LAB=" + d.Path() }

// Start starts a process and records it. A name stands for one process at a time.
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
	if err := start(cmd, spec.Namespace); err != nil {
		return nil, fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	p := &Process{
		Name: spec.Name, PID: cmd.Process.Pid, Args: spec.Args, Namespace: spec.Namespace, Started: time.Now().UTC(),
		dir: d, reaped: make(chan struct{}),
	}
	// Until somebody waits for the child its number and its times stay, even if it
	// has ended by now.
	err = p.record()
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(p.reaped)
	}()
	if err != nil {
		// A process that cannot be found again must not stay.
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

// record writes the record of a process that has just been started.
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

// Find finds a process by its record; it may have ended. Without a record the error
// is ErrNotFound.
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

// List finds all processes that have a record, by name.
func List(d state.Dir) ([]*Process, error) {
	entries, err := os.ReadDir(d.Run())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var processes []*Process
	for _, entry := range entries {
		name, isRecord := strings.CutSuffix(entry.Name(), ".json")
		if !isRecord || strings.HasPrefix(name, ".") {
			continue
		}
		p, err := Find(d, name)
		if errors.Is(err, ErrNotFound) {
			continue // stopped since the folder was read
		} else if err != nil {
			return nil, err
		}
		processes = append(processes, p)
	}
	return processes, nil
}

// Alive reports whether the process still runs, or is paused.
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

// Paused reports whether the process is stopped by Pause.
func (p *Process) Paused() bool {
	stat, ok := p.stat()
	return ok && stat.State == 'T'
}

// stat reads the state of the process, if the number is still its own.
func (p *Process) stat() (Stat, bool) {
	stat, err := ReadStat(p.PID)
	if err != nil || stat.StartTicks != p.StartTicks {
		return Stat{}, false
	}
	boot, err := bootID()
	return stat, err == nil && boot == p.Boot
}

// Wait waits until the process has ended.
func (p *Process) Wait(ctx context.Context) error {
	if p.reaped != nil {
		select {
		case <-p.reaped:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	handle, err := p.open()
	if err != nil || handle == nil {
		return err
	}
	defer handle.close()
	return handle.wait(ctx)
}

// open opens a handle on the process, or returns nil when it has ended.
func (p *Process) open() (*handle, error) {
	return openHandle(p.PID, func() bool {
		stat, ok := p.stat()
		return ok && !stat.Ended()
	})
}

// killWait is how long a process may take to end that was killed. Only the kernel
// delays it.
const killWait = 10 * time.Second

// Stop asks the process to end and kills it when it has not after the grace, or when
// the context ends. What it started and left behind in its session is killed, and its
// record is removed. A process that has ended is stopped the same.
func (p *Process) Stop(ctx context.Context, grace time.Duration) error {
	handle, err := p.open()
	if err != nil {
		return fmt.Errorf("stopping %s: %w", p.Name, err)
	}
	if handle != nil {
		defer handle.close()
		// A paused process does not hear that it should end, nor do those it waits for.
		if grace > 0 && p.Paused() {
			if err := p.Resume(); err != nil {
				return err
			}
		}
		if err := handle.end(ctx, grace); err != nil {
			return fmt.Errorf("stopping %s: %w", p.Name, err)
		}
	}
	return p.clear()
}

// Kill ends the process at once, and is like Stop in all else.
func (p *Process) Kill(ctx context.Context) error { return p.Stop(ctx, 0) }

// clear removes what an ended process left behind.
func (p *Process) clear() error {
	if p.reaped != nil {
		<-p.reaped
	}
	if err := p.killSession(); err != nil {
		return fmt.Errorf("stopping what %s started: %w", p.Name, err)
	}
	// Another process may have been started under the name since.
	if found, err := Find(p.dir, p.Name); err == nil && found.PID == p.PID && found.StartTicks == p.StartTicks {
		if err := os.Remove(p.dir.Record(p.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the record of %s: %w", p.Name, err)
		}
	}
	return nil
}

// killSession kills what is left of the session that the process led. The number of a
// session is not given to a new process while the session lasts, so a process that
// has it now, and is not the leader, means that nothing is left.
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

// Pause freezes the process, and all in its group, until Resume.
func (p *Process) Pause() error {
	if err := p.pause(); err != nil {
		return fmt.Errorf("pausing %s: %w", p.Name, err)
	}
	return nil
}

// pauseWait is how long a process may take to stop for a pause, and pauseTick how often
// it is looked at.
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
		return p.ended()
	}
	defer handle.close()
	if err := handle.signal(unix.SIGSTOP); err != nil {
		return err
	}
	// A process that is just starting another does not stop before that has begun its
	// program, and never would if that were stopped first.
	for deadline := time.Now().Add(pauseWait); !p.Paused(); time.Sleep(pauseTick) {
		if !p.Alive() {
			return p.ended()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d has not stopped after %s: it waits for the kernel", p.PID, pauseWait)
		}
	}
	return p.signalGroup(unix.SIGSTOP)
}

// Resume lets a paused process go on.
func (p *Process) Resume() error {
	err := p.ended()
	if p.Alive() {
		err = p.signalGroup(unix.SIGCONT)
	}
	if err != nil {
		return fmt.Errorf("resuming %s: %w", p.Name, err)
	}
	return nil
}

func (p *Process) ended() error {
	return fmt.Errorf("process %d has ended; start it again", p.PID)
}

// signalGroup sends a signal to a process that is alive, and to its group.
func (p *Process) signalGroup(signal syscall.Signal) error {
	if err := unix.Kill(-p.PID, signal); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}
