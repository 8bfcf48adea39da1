package load

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// serve answers each connection on the loopback device.
func serve(t *testing.T, handle func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	acceptAll(t, listener, handle)
	return netip.MustParseAddrPort(listener.Addr().String())
}

// acceptAll accepts connections until the test ends, and closes them then.
func acceptAll(t *testing.T, listener net.Listener, handle func(*net.TCPConn)) {
	var handlers sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	handlers.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, conn)
			mu.Unlock()
			handlers.Go(func() {
				defer conn.Close()
				handle(conn.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close() // ends Accept
		mu.Lock()
		for _, conn := range open {
			_ = conn.Close() // ends reading
		}
		mu.Unlock()
		handlers.Wait()
	})
}

// serveDatagrams answers each datagram on the loopback device.
func serveDatagrams(t *testing.T, answer func(id string) []byte) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buffer := make([]byte, maxAnswer)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			if text := answer(string(buffer[:n])); text != nil {
				_, _ = conn.WriteToUDPAddrPort(text, from) // the client may be gone
			}
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close() // ends reading
		<-ended
	})
	return netip.MustParseAddrPort(conn.LocalAddr().String())
}

// unusedAddress returns an address without a listener.
func unusedAddress(t *testing.T, network string) netip.AddrPort {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	// A connected socket keeps the port from other programs and accepts nothing.
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}}
	if network == "udp" {
		dialer.LocalAddr = &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}
	}
	conn, err := dialer.DialContext(t.Context(), network, listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return netip.MustParseAddrPort(conn.LocalAddr().String())
}

// readRequest reads a line, or the head of an HTTP request, and returns the id.
func readRequest(reader *bufio.Reader) (string, error) {
	line, err := reader.ReadString('\n')
	if err != nil {
		return "", err
	}
	path, ok := strings.CutPrefix(line, "GET /?id=")
	if !ok {
		id, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		return id, nil
	}
	for line != "\r\n" {
		if line, err = reader.ReadString('\n'); err != nil {
			return "", err
		}
	}
	return strings.Fields(path)[0], nil
}

// responding writes the result of a function for each request.
func responding(text func(id string) string) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		reader := bufio.NewReader(conn)
		for {
			id, err := readRequest(reader)
			if err != nil {
				return
			}
			if _, err := io.WriteString(conn, text(id)); err != nil {
				return
			}
		}
	}
}

func respond(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

func line(id, service string) string {
	a := Answer{Endpoint: Endpoint{Pod: "echo-1", Namespace: "default", Zone: "zone-a", Service: service}, ID: id}
	return string(a.Line())
}

func TestFailureKinds(t *testing.T) {
	silent := func(conn *net.TCPConn) { _, _ = io.Copy(io.Discard, conn) }
	closing := func(conn *net.TCPConn) { _, _ = readRequest(bufio.NewReader(conn)) }
	resetting := func(conn *net.TCPConn) {
		_, _ = readRequest(bufio.NewReader(conn))
		_ = conn.SetLinger(0) // a failure shows in the count
	}
	var dialer net.Dialer
	failing := func(err error) DialFunc {
		return func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", err)}
		}
	}

	for _, test := range []struct {
		name     string
		protocol Protocol
		target   netip.AddrPort
		dial     DialFunc
		want     Kind
		error    string // part of the kept error
		known    bool   // the endpoint is
	}{
		{name: "http refused", protocol: HTTP, target: unusedAddress(t, "tcp"), want: Refused, error: "connection refused"},
		{name: "udp refused", protocol: UDP, target: unusedAddress(t, "udp"), want: Refused, error: "connection refused"},
		{name: "tcp reset", protocol: TCP, target: serve(t, resetting), want: Reset, error: "reset"},
		{name: "http timed out", protocol: HTTP, target: serve(t, silent), want: TimedOut, error: "timeout"},
		{name: "udp timed out", protocol: UDP, target: serveDatagrams(t, func(string) []byte { return nil }), want: TimedOut, error: "timeout"},
		{
			name: "connecting timed out", protocol: HTTP, target: somewhere, want: TimedOut, error: "deadline",
			dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			},
		},
		{name: "tcp closed", protocol: TCP, target: serve(t, closing), want: Closed, error: "EOF"},
		{name: "http closed in the answer", protocol: HTTP, want: Closed, error: "EOF", target: serve(t, func(conn *net.TCPConn) {
			id, _ := readRequest(bufio.NewReader(conn))
			text := respond(line(id, "echo"))
			_, _ = io.WriteString(conn, text[:len(text)-3])
		})},
		{name: "unreachable", protocol: HTTP, target: somewhere, dial: failing(syscall.EHOSTUNREACH), want: Unreachable, error: "no route"},
		{name: "not allowed", protocol: HTTP, target: somewhere, dial: failing(syscall.EPERM), want: Other, error: "not permitted"},
		{name: "http status", protocol: HTTP, want: WrongAnswer, error: "503", target: serve(t, responding(func(string) string {
			return "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
		}))},
		{name: "not an echo", protocol: HTTP, want: WrongAnswer, error: "not that of an echo", target: serve(t, responding(func(string) string { return respond("<html>") }))},
		{
			name: "http to another request", protocol: HTTP, want: WrongAnswer, error: `to request "other"`, known: true,
			target: serve(t, responding(func(string) string { return respond(line("other", "echo")) })),
		},
		{
			name: "http from another Service", protocol: HTTP, want: WrongService, error: "from Service default/other, not from default/echo", known: true,
			target: serve(t, responding(func(id string) string { return respond(line(id, "other")) })),
		},
		{
			name: "tcp from another Service", protocol: TCP, want: WrongService, error: "default/other", known: true,
			target: serve(t, responding(func(id string) string { return line(id, "other") })),
		},
		{
			name: "udp from another Service", protocol: UDP, want: WrongService, error: "default/other", known: true,
			target: serveDatagrams(t, func(id string) []byte { return []byte(line(id, "other")) }),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dial := test.dial
			if dial == nil {
				dial = dialer.DialContext
			}
			timeout := 10 * time.Second
			if test.want == TimedOut {
				timeout = 500 * time.Millisecond
			}
			plan := Plan{
				Targets: []netip.AddrPort{test.target}, Protocol: test.protocol, Service: "default/echo",
				Rate: 100, Duration: 50 * time.Millisecond, Timeout: timeout,
			}
			r, err := Run(t.Context(), plan, zones(dial, "zone-a"), Watch{})
			if err != nil {
				t.Fatal(err)
			}
			checkSums(t, r)
			if got := r.FailedAs(test.want); got == 0 || got != r.Due-r.Unsent.Total() || r.Answered != 0 {
				t.Fatalf("%d of %d %s: %+v", got, r.Due, test.want, r.Failures)
			}
			if int64(len(r.Examples)) != r.Failed() {
				t.Fatalf("%d examples of %d failures", len(r.Examples), r.Failed())
			}
			f := r.Examples[0]
			if f.Kind != test.want || !strings.Contains(f.Error, test.error) || f.Target != test.target.String() {
				t.Errorf("the first failure is %+v, want an error with %q", f, test.error)
			}
			if (f.To != nil) != test.known {
				t.Errorf("the endpoint is %+v, want it known: %t", f.To, test.known)
			}
		})
	}
}

// A lack of resources on this side is not a failure of the Service.
func TestWithoutAPortNothingIsSent(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EADDRNOTAVAIL, syscall.EMFILE} {
		dial := func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", errno)}
		}
		plan := Plan{Targets: []netip.AddrPort{somewhere}, Rate: 1000, Duration: 10 * time.Millisecond}
		r, err := Run(t.Context(), plan, zones(dial, "zone-a"), Watch{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Unsent.Local == 0 || r.Unsent.Total() != r.Due || r.Failed() != 0 {
			t.Errorf("%v: %+v unsent of %d, failures %+v", errno, r.Unsent, r.Due, r.Failures)
		}
	}
}
