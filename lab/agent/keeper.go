package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	labprocess "vicinity.dev/vicinity/lab/process"
)

// The files of an attempt's folder.
const (
	specFile  = "spec.json"
	beginFile = "begin.json"
	endFile   = "end.json"
)

// reportDescriptor is where a keeper tells the agent that started it how the start went.
const reportDescriptor = 3

// notFound is the exit code of a container whose program could not be started.
const notFound = 128

// containerSpec tells a keeper what to run.
type containerSpec struct {
	// Image is what the arguments were found by.
	Image string   `json:"image,omitempty"`
	Args  []string `json:"args"`
	Env   []string `json:"env"`
	Dir   string   `json:"dir"`
	// Network is the path of the network namespace, empty: this one.
	Network  string  `json:"network,omitempty"`
	Hostname string  `json:"hostname,omitempty"`
	Mounts   []mount `json:"mounts,omitempty"`
	User     *uint32 `json:"user,omitempty"`
	Group    *uint32 `json:"group,omitempty"`
	// Forbidden are the capabilities that it may not have, by their numbers.
	Forbidden []int  `json:"forbidden,omitempty"`
	Log       string `json:"log"`
	// Input lets others write to what the process reads, Terminal gives it a terminal.
	Input    bool `json:"input,omitempty"`
	Terminal bool `json:"terminal,omitempty"`
}

// begin is what a keeper notes, and reports, when its container started or failed to.
type begin struct {
	Process process `json:"process"`
	Keeper  process `json:"keeper"`
	// Input is the keeper's descriptor of what the container reads; 0: nobody can write.
	Input int       `json:"input,omitempty"`
	At    time.Time `json:"at"`
	Error string    `json:"error,omitempty"`
}

// end is what a keeper notes when its container ended.
type end struct {
	At       time.Time `json:"at"`
	ExitCode int32     `json:"exitCode"`
}

// RunContainer is the keeper of one container: it starts the process that the folder's
// specification describes, writes what it prints to its log, and notes how it ends.
// It is what "vicinity lab internal container FOLDER" runs, in a process of its own.
func RunContainer(folder string) error {
	// The container has no business with it.
	unix.CloseOnExec(reportDescriptor)
	var spec containerSpec
	if err := readJSON(filepath.Join(folder, specFile), &spec); err != nil {
		return fmt.Errorf("reading the container's specification: %w", err)
	}
	// A terminal that closes or an interrupt in it is meant for the agent at most.
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGPIPE)
	log, err := openLog(spec.Log)
	if err != nil {
		return report(folder, begin{At: time.Now(), Error: err.Error()})
	}
	defer log.Close()
	k := keeper{spec: spec, folder: folder, log: log, signals: make(chan os.Signal, 4)}
	signal.Notify(k.signals, unix.SIGTERM, closeInput)
	// On a thread of its own: this one stays with the machine's folders, so that a
	// volume over the state folder hides none of the notes and logs from it.
	if err := labprocess.OnThread(k.start); err != nil {
		return errors.Join(
			writeJSON(filepath.Join(folder, endFile), end{At: time.Now(), ExitCode: notFound}),
			report(folder, begin{At: time.Now(), Error: err.Error()}))
	}
	started, err := findProcess(k.cmd.Process.Pid)
	if err != nil {
		// It ended already; nobody else can have its number before it is waited for.
		started = process{ID: k.cmd.Process.Pid}
	}
	err = report(folder, begin{Process: started, Input: k.input, At: time.Now()})
	if err != nil {
		// Nobody would ever ask for it.
		_ = unix.Kill(-k.cmd.Process.Pid, unix.SIGKILL)
	}
	return errors.Join(err, writeJSON(filepath.Join(folder, endFile), k.wait()))
}

// report notes how the start went, and tells the agent.
func report(folder string, b begin) error {
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
	// An agent that is gone reads the note.
	if _, err := pipe.Write(append(line, '\n')); err != nil && !errors.Is(err, unix.EPIPE) {
		return fmt.Errorf("reporting the start: %w", err)
	}
	return nil
}

type keeper struct {
	spec   containerSpec
	folder string
	log    *logWriter
	cmd    *exec.Cmd
	copied sync.WaitGroup
	// namespace is the container's mount namespace.
	namespace string
	// input is the descriptor of what the process reads, for attempt.openInput.
	input   int
	signals chan os.Signal
}

// start puts the thread into the container's namespaces and starts the process from it.
func (k *keeper) start() error {
	if err := k.enter(); err != nil {
		return err
	}
	if len(k.spec.Args) == 0 {
		return errors.New("the container has no program")
	}
	path, err := lookPath(k.spec.Args[0], k.spec.Env)
	if err != nil {
		return err
	}
	k.cmd = &exec.Cmd{
		Path:        path,
		Args:        k.spec.Args,
		Env:         k.spec.Env,
		Dir:         k.spec.Dir,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Credential: credential(k.spec.User, k.spec.Group)},
	}
	ends, err := k.connect()
	if err == nil {
		err = forbid(k.spec.Forbidden)
	}
	if err == nil {
		err = k.cmd.Start()
	}
	closeAll(ends)
	return err
}

// connect gives the process its streams. It returns the ends of them that are the
// process's alone.
func (k *keeper) connect() (ends []*os.File, err error) {
	if k.spec.Terminal {
		terminal, end, err := openTerminal()
		if err != nil {
			return nil, err
		}
		k.cmd.Stdin, k.cmd.Stdout, k.cmd.Stderr = end, end, end
		k.cmd.SysProcAttr.Setctty = true
		ends = append(ends, end)
		if k.spec.Input {
			// A number of its own, which stays when the copy below ends.
			if k.input, err = unix.FcntlInt(terminal.Fd(), unix.F_DUPFD_CLOEXEC, 0); err != nil {
				return ends, err
			}
		}
		k.copy("stdout", terminal)
		return ends, nil
	}
	if k.spec.Input {
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
			return nil, err
		}
		end := os.NewFile(uintptr(pipe[0]), "stdin")
		ends = append(ends, end)
		k.cmd.Stdin, k.input = end, pipe[1]
	}
	for stream, to := range map[string]*io.Writer{"stdout": &k.cmd.Stdout, "stderr": &k.cmd.Stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			return ends, err
		}
		ends = append(ends, w)
		*to = w
		k.copy(stream, r)
	}
	return ends, nil
}

// copy writes a stream to the log until it ends.
func (k *keeper) copy(stream string, from *os.File) {
	k.copied.Go(func() {
		defer from.Close()
		k.log.copy(stream, from, k.spec.Input || k.spec.Terminal)
	})
}

// enter puts the thread into the container's namespaces.
func (k *keeper) enter() error {
	if k.spec.Network != "" {
		if err := labprocess.Enter(k.spec.Network, unix.CLONE_NEWNET); err != nil {
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
	return makeRoot(filepath.Join(k.folder, "root"), k.spec.Mounts)
}

// wait waits for the process, ends what it left behind, and returns how it ended.
func (k *keeper) wait() end {
	pid := k.cmd.Process.Pid
	go func() {
		for s := range k.signals {
			if s == closeInput {
				k.endInput()
				continue
			}
			// The lab goes down: nobody will read the log or ask for the exit code.
			_ = unix.Kill(-pid, unix.SIGKILL)
		}
	}()
	awaitEnd(pid)
	e := end{At: time.Now()}
	_ = unix.Kill(-pid, unix.SIGKILL)
	endRemains(k.namespace)
	copied := make(chan struct{})
	go func() { k.copied.Wait(); close(copied) }()
	select {
	case <-copied:
	case <-time.After(time.Second):
		// One that left the container's namespaces holds the other end.
	}
	// Now that nobody signals it any more: from here on the number may be another's.
	// The error says less than the state does.
	_ = k.cmd.Wait()
	e.ExitCode = exitCode(k.cmd.ProcessState)
	return e
}

// awaitEnd waits until a child ended, and leaves it its number.
func awaitEnd(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// exitCode is a process's exit code, or as shells have it 128 and the signal.
func exitCode(s *os.ProcessState) int32 {
	if status, ok := s.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int32(status.Signal())
	}
	return int32(s.ExitCode())
}

func credential(user, group *uint32) *syscall.Credential {
	if user == nil && group == nil {
		return nil
	}
	c := &syscall.Credential{}
	if user != nil {
		c.Uid = *user
	}
	if group != nil {
		c.Gid = *group
	}
	return c
}
