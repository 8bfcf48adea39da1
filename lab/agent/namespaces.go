package agent

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// setNamespace puts the thread into the namespace that a file stands for.
func setNamespace(path string, kind int) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening a namespace: %w", err)
	}
	defer file.Close()
	if err := unix.Setns(int(file.Fd()), kind); err != nil {
		return fmt.Errorf("entering the namespace %s: %w", path, err)
	}
	return nil
}

// onThread calls f on a thread of its own that ends with it, after setup changed the
// thread in ways that cannot be undone.
func onThread(setup, f func() error) error {
	result := make(chan error, 1)
	go func() {
		// Never unlocked, so that the thread dies with the goroutine.
		runtime.LockOSThread()
		if err := setup(); err != nil {
			result <- err
			return
		}
		result <- f()
	}()
	return <-result
}

// inContainer calls f in all namespaces of a container's process.
func inContainer(p process, f func() error) error {
	return onThread(func() error {
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
			if err := setNamespace(fmt.Sprintf("/proc/%d/ns/%s", p.ID, ns.name), ns.kind); err != nil {
				return err
			}
		}
		return nil
	}, f)
}
