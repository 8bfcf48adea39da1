package cri

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/lab/process"
)

// inContainer calls a function on a thread in the namespaces of a container's process. Processes that
// it starts are in its PID namespace, too.
func inContainer(p processID, f func() error) error {
	return process.OnThread(func() error {
		if err := enterProcesses(p); err != nil {
			return err
		}
		for _, ns := range []struct {
			name string
			kind int
		}{{"net", unix.CLONE_NEWNET}, {"uts", unix.CLONE_NEWUTS}} {
			if err := process.Enter(fmt.Sprintf("/proc/%d/ns/%s", p.ID, ns.name), ns.kind); err != nil {
				return err
			}
		}
		if err := process.EnterMounts(fmt.Sprintf("/proc/%d/ns/mnt", p.ID)); err != nil {
			return err
		}
		return f()
	})
}

// enterProcesses makes this thread start processes in the PID namespace of another process.
func enterProcesses(p processID) error {
	err := process.Enter(fmt.Sprintf("/proc/%d/ns/pid", p.ID), unix.CLONE_NEWPID)
	// Checked after the namespace was opened: so it is this process' namespace, not that of another
	// process with the same number.
	if !p.isAlive() {
		return p.exitedError()
	}
	return err
}

// mountNamespace identifies the mount namespace of a process, or of "thread-self". All processes of a
// container are in its own mount namespace.
func mountNamespace(of string) (string, error) {
	return os.Readlink(filepath.Join("/proc", of, "ns/mnt"))
}

// remainsTimeout is how long killed processes may take to end.
const remainsTimeout = time.Second

// killRemains kills the processes in a mount namespace until none is left or remainsTimeout is over.
func killRemains(namespace string) {
	for deadline := time.Now().Add(remainsTimeout); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		found, err := filepath.Glob("/proc/[0-9]*/ns/mnt")
		if err != nil {
			return
		}
		none := true
		for _, path := range found {
			if link, err := os.Readlink(path); err != nil || link != namespace {
				continue
			}
			none = false
			killIfInside(path, namespace)
		}
		if none {
			return
		}
	}
}

// killIfInside kills the process of a path in /proc if it is in the namespace. It checks that
// again after it has opened the process, since the process ID may have been reused.
func killIfInside(path, namespace string) {
	pid, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	if err != nil {
		return
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	if link, err := os.Readlink(path); err == nil && link == namespace {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}

// killContainer kills all processes of a container that has no keeper, given its main process.
func killContainer(pid int) error {
	own, err := mountNamespace("self")
	if err != nil {
		return err
	}
	namespace, inside := mountNamespace(strconv.Itoa(pid))
	if err = unix.Kill(-pid, unix.SIGKILL); errors.Is(err, unix.ESRCH) {
		err = unix.Kill(pid, unix.SIGKILL) // it is not a group leader yet
	}
	if inside == nil && namespace != own {
		killRemains(namespace)
	}
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}
