package kernel_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/kernel"
)

// namespace is a network namespace that lives as long as the test that made it.
type namespace struct {
	file *os.File
}

// newNamespace makes a network namespace. Without root the test skips.
func newNamespace(t testing.TB) *namespace {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	n := &namespace{}
	err := onThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("making a network namespace: %w", err)
		}
		if n.file, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			return err
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.file.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// setSysctl sets a setting of the namespace of this thread.
func setSysctl(name, value string) error {
	return os.WriteFile("/proc/sys/"+name, []byte(value), 0)
}

// onThread calls a function on a thread of its own that ends with it. It is not the main
// one, which stands for the whole process.
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

// do calls a function on a thread in the namespace. Sockets that it makes stay there.
func (n *namespace) do(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering a network namespace: %w", err)
		}
		return f()
	})
}

// open opens a connection to the namespace's kernel.
func (n *namespace) open(t testing.TB) *kernel.Conn {
	t.Helper()
	var conn *kernel.Conn
	err := n.do(func() (err error) {
		conn, err = kernel.Open()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// nft runs the program of this name in the namespace.
func (n *namespace) nft(t testing.TB, arguments ...string) string {
	t.Helper()
	out, err := n.output("nft", arguments...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// output runs a program in the namespace.
func (n *namespace) output(program string, arguments ...string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("these tests need a program called %s: %w", program, err)
	}
	var out []byte
	err = n.do(func() (err error) {
		out, err = exec.Command(path, arguments...).CombinedOutput()
		return err
	})
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(arguments, " "), err, out)
	}
	return string(out), nil
}

// listen makes a listening socket in the namespace.
func (n *namespace) listen(t testing.TB, at netip.AddrPort) net.Listener {
	t.Helper()
	var listener net.Listener
	err := n.do(func() (err error) {
		listener, err = net.Listen("tcp", at.String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	return listener
}

// packets makes a socket for UDP in the namespace.
func (n *namespace) packets(t testing.TB, at netip.AddrPort) net.PacketConn {
	t.Helper()
	var conn net.PacketConn
	err := n.do(func() (err error) {
		conn, err = net.ListenPacket("udp", at.String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	return conn
}

// dial connects from the namespace.
func (n *namespace) dial(d net.Dialer, kind string, to netip.AddrPort) (net.Conn, error) {
	var conn net.Conn
	err := n.do(func() (err error) {
		conn, err = d.Dial(kind, to.String())
		return err
	})
	return conn, err
}
