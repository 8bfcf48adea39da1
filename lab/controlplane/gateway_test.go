package controlplane

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// patience is how long a test waits for what should happen at once.
const patience = 10 * time.Second

func listen(t *testing.T, port int) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// server says its name to everyone, and then repeats all it hears until its client
// has no more to say.
func server(t *testing.T, name string) (net.Listener, netip.AddrPort) {
	t.Helper()
	listener := listen(t, 0)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				fmt.Fprintf(conn, "%s\n", name)
				// A client that is gone does not hear the rest, which is its affair.
				if heard, err := io.ReadAll(conn); err == nil {
					_, _ = conn.Write(heard)
				}
			}()
		}
	}()
	return listener, netip.MustParseAddrPort(listener.Addr().String())
}

func dialTCP(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", addr.String())
}

func healthy(context.Context, netip.AddrPort) error { return nil }

// serve runs a balancer and returns where. It ends with the test.
func serve(t *testing.T, b *balancer) string {
	t.Helper()
	b.dial = dialTCP
	if b.probe == nil {
		b.probe = healthy
	}
	return serveOn(t, b, listen(t, 0))
}

// serveOn is serve on a listener of the caller's.
func serveOn(t *testing.T, b *balancer, listener net.Listener) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the balancer ended with %v", err)
		}
	})
	return listener.Addr().String()
}

// ask opens a connection and returns it with the name that the server says.
func ask(t *testing.T, address string) (*net.TCPConn, *bufio.Reader, string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(conn)
	name, err := reader.ReadString('\n')
	if err != nil {
		t.Fatalf("nobody answered: %v", err)
	}
	return conn.(*net.TCPConn), reader, name
}

func TestBalancerTakesTurns(t *testing.T) {
	_, a := server(t, "a")
	_, b := server(t, "b")
	address := serve(t, newBalancer([]netip.AddrPort{a, b}))
	answers := map[string]int{}
	for range 10 {
		_, _, name := ask(t, address)
		answers[name]++
	}
	if answers["a\n"] != 5 || answers["b\n"] != 5 {
		t.Errorf("10 connections went to %v, want 5 to each", answers)
	}
}

func TestBalancerPassesOver(t *testing.T) {
	gone, a := server(t, "a")
	_, b := server(t, "b")
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	address := serve(t, newBalancer([]netip.AddrPort{a, b}))
	for range 4 {
		if _, _, name := ask(t, address); name != "b\n" {
			t.Errorf("%q answered, want the server that is there", name)
		}
	}
}

// TestBalancerHalfClose sends, says that this is all, and still gets the answer.
func TestBalancerHalfClose(t *testing.T) {
	_, a := server(t, "a")
	conn, reader, _ := ask(t, serve(t, newBalancer([]netip.AddrPort{a})))
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(reader)
	if err != nil || string(answer) != "hello" {
		t.Errorf("the answer is %q (%v), want all that was sent", answer, err)
	}
}

func TestBalancerWithoutServers(t *testing.T) {
	gone, a := server(t, "a")
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", serve(t, newBalancer([]netip.AddrPort{a})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("a connection for which there is no server ended with %v, want it closed at once", err)
	}
}

// TestBalancerCuts has a server accept connections and answer nothing, as a paused one
// does: those it has are cut, and new ones go elsewhere until it is back.
func TestBalancerCuts(t *testing.T) {
	_, a := server(t, "a")
	_, b := server(t, "b")
	balancer := newBalancer([]netip.AddrPort{a, b})
	var paused atomic.Bool
	balancer.probe = func(_ context.Context, addr netip.AddrPort) error {
		if paused.Load() && addr == a {
			return errors.New("no answer")
		}
		return nil
	}
	address := serve(t, balancer)

	_, reader, name := ask(t, address)
	if name != "a\n" {
		t.Fatalf("the first connection went to %q", name)
	}
	paused.Store(true)
	if _, err := reader.ReadByte(); err == nil || isTimeout(err) {
		t.Errorf("the connection to the paused server ended with %v, want it cut", err)
	}
	for range 4 {
		if _, _, name := ask(t, address); name != "b\n" {
			t.Errorf("%q answered, want the server that is not paused", name)
		}
	}
	paused.Store(false)
	deadline := time.Now().Add(patience)
	for {
		conn, _, name := ask(t, address)
		if name == "a\n" {
			return
		}
		// There may be thousands before the next probe.
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatal("the server that is back gets no connections")
		}
	}
}

// poorListener has no connection to give for a while.
type poorListener struct {
	net.Listener
	poor atomic.Int32
}

func (l *poorListener) Accept() (net.Conn, error) {
	if l.poor.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

func TestBalancerOutlastsTooManyOpenFiles(t *testing.T) {
	_, a := server(t, "a")
	b := newBalancer([]netip.AddrPort{a})
	b.dial, b.probe = dialTCP, healthy
	listener := &poorListener{Listener: listen(t, 0)}
	listener.poor.Store(3)
	if _, _, name := ask(t, serveOn(t, b, listener)); name != "a\n" {
		t.Errorf("%q answered", name)
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
