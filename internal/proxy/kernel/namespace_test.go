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
	n.Must(t, func() (err error) {
		conn, err = kernel.Open()
		return err
	})
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// nft runs the program of this name in the namespace.
func (n *namespace) nft(t testing.TB, arguments ...string) (out string) {
	t.Helper()
	path, err := exec.LookPath("nft")
	if err != nil {
		t.Fatalf("these tests need a program called nft: %v", err)
	}
	n.Must(t, func() error {
		text, err := exec.Command(path, arguments...).CombinedOutput()
		if out = string(text); err != nil {
			return fmt.Errorf("nft %s: %w: %s", strings.Join(arguments, " "), err, out)
		}
		return nil
	})
	return out
}

// listen makes a listening socket in the namespace.
func (n *namespace) listen(t testing.TB, at netip.AddrPort) net.Listener {
	t.Helper()
	var listener net.Listener
	n.Must(t, func() (err error) {
		listener, err = net.Listen("tcp", at.String())
		return err
	})
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
	n.Must(t, func() (err error) {
		conn, err = net.ListenPacket("udp", at.String())
		return err
	})
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
