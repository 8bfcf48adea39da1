// Package namespacetest provides network namespaces for tests that talk to the kernel.
package namespacetest

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Namespace is a network namespace that lives as long as the test that made it.
type Namespace struct{ file *os.File }

// New returns a namespace whose interface lo is up. Without root it skips the test.
func New(t testing.TB) *Namespace {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	n := &Namespace{}
	err := onThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("making a network namespace: %w", err)
		}
		n.file, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.file.Close(); err != nil {
			t.Error(err)
		}
	})
	n.Must(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
	return n
}

// Fd returns a file descriptor of the namespace.
func (n *Namespace) Fd() int { return int(n.file.Fd()) }

// Do calls a function on a thread in the namespace. Sockets of the function stay in the namespace.
func (n *Namespace) Do(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(n.Fd(), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering a network namespace: %w", err)
		}
		return f()
	})
}

// Must is Do, and fails the test on an error.
func (n *Namespace) Must(t testing.TB, f func() error) {
	t.Helper()
	if err := n.Do(f); err != nil {
		t.Fatal(err)
	}
}

// onThread calls a function on a thread that ends with the function, so that nothing else runs in the namespace. It never uses
// the main thread, which represents the whole process.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			done <- onThread(f)
			return
		}
		done <- f()
	}()
	return <-done
}
