package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	labprocess "vicinity.dev/vicinity/lab/process"
)

// inContainer calls f in all namespaces of a container's process.
func inContainer(p process, f func() error) error {
	return labprocess.OnThread(func() error {
		if !p.alive() {
			return fmt.Errorf("process %d: it ended", p.ID)
		}
		// The file system's root is the thread's own only after this.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return err
		}
		for _, ns := range []struct {
			name string
			kind int
		}{{"net", unix.CLONE_NEWNET}, {"uts", unix.CLONE_NEWUTS}, {"mnt", unix.CLONE_NEWNS}} {
			if err := labprocess.Enter(fmt.Sprintf("/proc/%d/ns/%s", p.ID, ns.name), ns.kind); err != nil {
				return err
			}
		}
		return f()
	})
}

// mountNamespace names the mount namespace of a process, or of "thread-self". Each
// container has its own, so what is in it is of the container: what the container's
// process started, wherever it went, and what was started beside it by exec.
func mountNamespace(of string) (string, error) {
	return os.Readlink(filepath.Join("/proc", of, "ns/mnt"))
}

// remainsTimeout is how long the kernel may take to end what was killed.
const remainsTimeout = time.Second

// endRemains kills all that is in a container's mount namespace, until nothing is.
func endRemains(namespace string) {
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
			killWithin(path, namespace)
		}
		if none {
			return
		}
	}
}

// killWithin kills the process whose namespace a path is, if it is still that one.
func killWithin(path, namespace string) {
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

// endContainer kills the process of a container that has no keeper, and all else that
// is in the container.
func endContainer(pid int) error {
	own, err := mountNamespace("self")
	if err != nil {
		return err
	}
	namespace, inside := mountNamespace(strconv.Itoa(pid))
	if err = unix.Kill(-pid, unix.SIGKILL); errors.Is(err, unix.ESRCH) {
		err = unix.Kill(pid, unix.SIGKILL) // it leads no group yet
	}
	if inside == nil && namespace != own {
		endRemains(namespace)
	}
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}
