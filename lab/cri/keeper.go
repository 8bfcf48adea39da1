package cri

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/lab/process"
)

// The files of a container's folder.
const (
	specFile  = "spec.json"
	beginFile = "begin.json"
	endFile   = "end.json"
)

// reportDescriptor is the pipe by which a keeper reports the start to the runtime.
const reportDescriptor = 3

// startFailed is the exit code of a container whose program could not be started.
const startFailed = 128

type containerSpec struct {
	// Image is the image that Args run.
	Image string   `json:"image,omitempty"`
	Args  []string `json:"args"`
	Env   []string `json:"env"`
	// Network is the path of the network namespace; empty means that of the keeper.
	Network string `json:"network,omitempty"`
	// MountSpace is the path of the mount namespace to copy; empty means that of the keeper.
	MountSpace string  `json:"mountSpace,omitempty"`
	Hostname   string  `json:"hostname,omitempty"`
	Mounts     []mount `json:"mounts,omitempty"`
	// Root is a folder to copy over the machine's files, or, with Alone, in place of them.
	Root  string `json:"root,omitempty"`
	Alone bool   `json:"alone,omitempty"`
	Log   string `json:"log"`
	// Input gives the process a standard input that never ends.
	Input bool `json:"input,omitempty"`
	// Starter is the command that runs BecomeProgram.
	Starter []string `json:"starter"`
	programSpec
}

// startReport is the keeper's record of the start, which it also sends to the runtime.
type startReport struct {
	Process processID `json:"process"`
	Keeper  processID `json:"keeper"`
	At      time.Time `json:"at"`
	Error   string    `json:"error,omitempty"`
}

// exitReport is the keeper's record of the end.
type exitReport struct {
	At       time.Time `json:"at"`
	ExitCode int32     `json:"exitCode"`
}

// RunContainer is the keeper of one container: it starts the process that the spec in the
// folder describes, writes its output to a log, and records how it ended. "vicinity-lab internal
// container FOLDER" runs it.
func RunContainer(folder string) error {
	unix.CloseOnExec(reportDescriptor)
	var spec containerSpec
	if err := readJSON(filepath.Join(folder, specFile), &spec); err != nil {
		return fmt.Errorf("reading the container's specification: %w", err)
	}
	// A terminal's hangup or interrupt is for the runtime, not for its containers.
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGPIPE)
	log, err := openLog(spec.Log)
	if err != nil {
		return report(folder, startReport{At: time.Now(), Error: err.Error()})
	}
	defer log.Close()
	k := keeper{spec: spec, folder: folder, log: log, signals: make(chan os.Signal, 4)}
	signal.Notify(k.signals, unix.SIGTERM, reopenLog)
	// On another thread: this one keeps the machine's mounts, which it needs to write to the
	// state folder. In the container's, a volume may cover it.
	if err := process.OnThread(k.start); err != nil {
		return errors.Join(
			writeJSON(filepath.Join(folder, endFile), exitReport{At: time.Now(), ExitCode: startFailed}),
			report(folder, startReport{At: time.Now(), Error: err.Error()}))
	}
	started, err := findProcess(k.cmd.Process.Pid)
	if err != nil {
		// The process has ended already. It keeps its process ID until it is reaped.
		started = processID{ID: k.cmd.Process.Pid}
	}
	err = report(folder, startReport{Process: started, At: time.Now()})
	if err != nil {
		// Without a record no runtime can find the process.
		_ = unix.Kill(-k.cmd.Process.Pid, unix.SIGKILL)
	}
	return errors.Join(err, writeJSON(filepath.Join(folder, endFile), k.wait()))
}

// report records the result of the start, and sends it to the runtime.
func report(folder string, b startReport) error {
	var err error
	if b.Keeper, err = findProcess(os.Getpid()); err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(folder, beginFile), b); err != nil {
		return err
	}
	line, err := json.Marshal(b)
	if err != nil {
		return err
	}
	pipe := os.NewFile(reportDescriptor, "report")
	defer pipe.Close()
	// If the runtime has ended, the next one reads the record.
	if _, err := pipe.Write(append(line, '\n')); err != nil && !errors.Is(err, unix.EPIPE) {
		return fmt.Errorf("reporting the start: %w", err)
	}
	return nil
}

type keeper struct {
	spec      containerSpec
	folder    string
	log       *logWriter
	cmd       *exec.Cmd
	namespace string
	signals   chan os.Signal
}

func (k *keeper) start() error {
	if err := k.enterNamespaces(); err != nil {
		return err
	}
	var err error
	if k.cmd, err = k.command(); err != nil {
		return err
	}
	k.cmd.Stdout, k.cmd.Stderr = logStream{k.log, "stdout"}, logStream{k.log, "stderr"}
	// A process that left the container's namespaces may hold the streams open.
	k.cmd.WaitDelay = time.Second
	if k.spec.Input {
		if _, err := k.cmd.StdinPipe(); err != nil {
			return err
		}
	}
	return k.startProgram()
}

func (k *keeper) enterNamespaces() error {
	if k.spec.Network != "" {
		if err := process.Enter(k.spec.Network, unix.CLONE_NEWNET); err != nil {
			return err
		}
	}
	if k.spec.MountSpace != "" {
		if err := process.EnterMounts(k.spec.MountSpace); err != nil {
			return err
		}
	}
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWUTS); err != nil {
		return fmt.Errorf("making namespaces: %w", err)
	}
	var err error
	if k.namespace, err = mountNamespace("thread-self"); err != nil {
		return err
	}
	if k.spec.Hostname != "" {
		if err := unix.Sethostname([]byte(k.spec.Hostname)); err != nil {
			return fmt.Errorf("setting the host name: %w", err)
		}
	}
	return makeRoot(filepath.Join(k.folder, "root"), rootImage{k.spec.Root, k.spec.Alone}, k.spec.Mounts)
}

// wait waits for the process, kills the processes that it left behind, and returns how it ended.
func (k *keeper) wait() exitReport {
	pid := k.cmd.Process.Pid
	go func() {
		for s := range k.signals {
			switch s {
			case reopenLog:
				k.log.reopen()
			default:
				// The lab goes down: the log and the exit code have no use any more.
				_ = unix.Kill(-pid, unix.SIGKILL)
			}
		}
	}()
	awaitEnd(pid)
	e := exitReport{At: time.Now()}
	// When the first process of a PID namespace ends, all others end.
	if k.spec.HostProcesses {
		_ = unix.Kill(-pid, unix.SIGKILL)
		killRemains(k.namespace)
	}
	// Only now, since the process ID may be reused from here on. The state has more detail than the
	// error.
	_ = k.cmd.Wait()
	e.ExitCode = exitCode(k.cmd.ProcessState)
	return e
}

// awaitEnd waits until a child has ended, without reaping it.
func awaitEnd(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// exitCode returns the exit code, or 128 plus the number of the signal that killed the process,
// as a shell does.
func exitCode(s *os.ProcessState) int32 {
	if status, ok := s.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int32(status.Signal())
	}
	return int32(s.ExitCode())
}
