package kernel_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"vicinity.dev/vicinity/internal/proxy/kernel"
	"vicinity.dev/vicinity/internal/proxy/namespacetest"
)

// namespace is a network namespace with what tests do in it.
type namespace struct{ *namespacetest.Namespace }

func newNamespace(t testing.TB) *namespace {
	t.Helper()
	return &namespace{namespacetest.New(t)}
}

// setSysctl sets a setting of the namespace of this thread.
func setSysctl(name, value string) error {
	return os.WriteFile("/proc/sys/"+name, []byte(value), 0)
}

// open opens a connection to the namespace's kernel.
func (n *namespace) open(t testing.TB) *kernel.Conn {
	t.Helper()
	var conn *kernel.Conn
	err := n.Do(func() (err error) {
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
	err = n.Do(func() (err error) {
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
	err := n.Do(func() (err error) {
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
	err := n.Do(func() (err error) {
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
	err := n.Do(func() (err error) {
		conn, err = d.Dial(kind, to.String())
		return err
	})
	return conn, err
}
