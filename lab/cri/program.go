package cri

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	"k8s.io/utils/ptr"

	"vicinity.dev/vicinity/lab/process"
)

// programSpec tells the process of a container how to become its program.
type programSpec struct {
	Dir    string   `json:"dir"`
	User   *uint32  `json:"user,omitempty"`
	Group  *uint32  `json:"group,omitempty"`
	Groups []uint32 `json:"groups,omitempty"`
	// Forbidden are the numbers of the capabilities that the program must not have.
	Forbidden []int `json:"forbidden,omitempty"`
	// HostProcesses leaves the program in the machine's PID namespace. Without it, the program is the
	// first process of its own PID namespace.
	HostProcesses bool `json:"hostProcesses,omitempty"`
}

// specDescriptor is the pipe with the programSpec.
const specDescriptor = 4

// execMarker is the last report before the process becomes the program. Anything after it is an error.
const execMarker = "\x00"

// BecomeProgram makes this process the program of a container. "vicinity-lab internal become"
// runs it. The keeper starts it in the container's namespaces, since only a process inside a PID
// namespace can mount its /proc. The keeper reads errors from a pipe.
func BecomeProgram() error {
	unix.CloseOnExec(reportDescriptor)
	pipe := os.NewFile(reportDescriptor, "report")
	defer pipe.Close()
	// Some inherited properties belong to a thread.
	err := process.OnThread(func() error { return becomeProgram(pipe) })
	_, failed := io.WriteString(pipe, err.Error())
	return failed
}

// becomeProgram returns only if it fails.
func becomeProgram(report io.Writer) error {
	var spec containerSpec
	pipe := os.NewFile(specDescriptor, "specification")
	err := json.NewDecoder(pipe).Decode(&spec)
	_ = pipe.Close()
	if err != nil {
		return fmt.Errorf("reading the container's specification: %w", err)
	}
	if !spec.HostProcesses {
		if err := mountProcesses(); err != nil {
			return err
		}
	}
	path, err := lookPath(spec.Args[0], spec.Env)
	if err != nil {
		return err
	}
	// The user may lack the right to enter it.
	if err := os.Chdir(spec.Dir); err != nil {
		return err
	}
	if err := dropCapabilities(spec.Forbidden); err != nil {
		return err
	}
	if err := spec.become(); err != nil {
		return err
	}
	if _, err := io.WriteString(report, execMarker); err != nil {
		return err
	}
	return &fs.PathError{Op: "exec", Path: path, Err: syscall.Exec(path, spec.Args, spec.Env)}
}

// mountProcesses mounts the /proc of this process' PID namespace in place of the machine's.
func mountProcesses() error {
	if err := unix.Unmount("/proc", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leaving the machine's /proc: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	return nil
}

func (s programSpec) become() error {
	c := s.credential()
	if c == nil {
		return nil
	}
	groups := make([]int, len(c.Groups))
	for i, group := range c.Groups {
		groups[i] = int(group)
	}
	if err := syscall.Setgroups(groups); err != nil {
		return fmt.Errorf("setting the groups: %w", err)
	}
	if err := syscall.Setgid(int(c.Gid)); err != nil {
		return fmt.Errorf("setting the group: %w", err)
	}
	if err := syscall.Setuid(int(c.Uid)); err != nil {
		return fmt.Errorf("setting the user: %w", err)
	}
	return nil
}

// credential is nil if the program has the user of the runtime.
func (s programSpec) credential() *syscall.Credential {
	if s.User == nil && s.Group == nil && len(s.Groups) == 0 {
		return nil
	}
	return &syscall.Credential{Uid: ptr.Deref(s.User, 0), Gid: ptr.Deref(s.Group, 0), Groups: s.Groups}
}

// startProgram starts a command that becomes the program, and waits until it has. The thread is in the
// container's other namespaces.
func (k *keeper) startProgram() error {
	report, reported, err := os.Pipe()
	if err != nil {
		return err
	}
	defer report.Close()
	specReader, spec, err := os.Pipe()
	if err != nil {
		_ = reported.Close()
		return err
	}
	defer spec.Close()
	k.cmd.ExtraFiles = []*os.File{reported, specReader}
	err = k.cmd.Start()
	closeAll(k.cmd.ExtraFiles)
	if err != nil {
		return fmt.Errorf("starting the program: %w", err)
	}
	err = json.NewEncoder(spec).Encode(k.spec)
	_ = spec.Close()
	// Ends at the exec: the program does not inherit the pipe.
	text, failed := io.ReadAll(report)
	switch message, begun := strings.CutPrefix(string(text), execMarker); {
	case failed != nil:
		err = failed
	case begun && message == "":
		return nil
	case message != "":
		err = errors.New(message)
	}
	_ = k.cmd.Process.Kill()
	if ended := k.cmd.Wait(); err == nil {
		err = fmt.Errorf("the process ended before it became the program: %w", ended)
	}
	return err
}

func (k *keeper) command() (*exec.Cmd, error) {
	if len(k.spec.Args) == 0 {
		return nil, errors.New("the container has no program")
	}
	attributes := &syscall.SysProcAttr{Setsid: true}
	if !k.spec.HostProcesses {
		attributes.Cloneflags = unix.CLONE_NEWPID
	}
	// This program, which may be missing among the container's files.
	return &exec.Cmd{Path: "/proc/self/exe", Args: k.spec.Starter, Env: os.Environ(), SysProcAttr: attributes}, nil
}
