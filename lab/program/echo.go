package program

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"vicinity.dev/vicinity/lab/load"
)

// echo answers with its identity. When it is asked to end, readiness fails at once. But it serves for
// the drain time, and then until no request has come for a while, since other nodes learn of its end
// late. An answer in that time is the last one of its connection, so that clients with open
// connections lose nothing.
type echo struct {
	self      load.Endpoint
	draining  atomic.Bool
	lastAsked atomic.Int64 // time of the last request, in nanoseconds since 1970

	http  http.Server
	tcp   net.Listener
	udp   *net.UDPConn
	tasks sync.WaitGroup

	mu      sync.Mutex
	conns   map[net.Conn]bool // TCP only
	closing bool              // new ones are refused
}

// lastCall limits how long answers in flight may take after the drain time.
const lastCall = time.Second

func runEcho(ctx context.Context, p *process) error {
	e := &echo{self: p.endpoint(), conns: make(map[net.Conn]bool)}
	var ports [3]string
	for i, protocol := range []load.Protocol{load.HTTP, load.TCP, load.UDP} {
		ports[i] = cmp.Or(p.env["ECHO_"+strings.ToUpper(string(protocol))+"_PORT"], strconv.Itoa(8080+i))
	}
	// The time to serve after being asked to end, and then the time without a request.
	drain, err := time.ParseDuration(cmp.Or(p.env["ECHO_DRAIN"], "3s"))
	if err != nil {
		return fmt.Errorf("ECHO_DRAIN: %w", err)
	}
	quiet, err := time.ParseDuration(cmp.Or(p.env["ECHO_DRAIN_QUIET"], "0"))
	if err != nil {
		return fmt.Errorf("ECHO_DRAIN_QUIET: %w", err)
	}
	failed, err := e.listen(p, p.env["ECHO_HOST"], ports)
	if err != nil {
		return err
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	e.draining.Store(true)
	p.out.Printf("draining for %s", drain)
	for rest := drain; rest > 0; rest = quiet - time.Since(time.Unix(0, e.lastAsked.Load())) {
		select {
		case err := <-failed:
			return err
		case <-time.After(rest):
		}
	}
	e.finish()
	p.out.Print("done")
	return nil
}

// listen opens and serves all ports. A later failure is sent to the channel.
func (e *echo) listen(p *process, host string, ports [3]string) (failed <-chan error, err error) {
	// Without the run's context: the sockets must stay open during the drain time.
	var config net.ListenConfig
	at := func(port string) string { return net.JoinHostPort(host, port) }
	listener, err := config.Listen(context.Background(), "tcp", at(ports[0]))
	if err != nil {
		return nil, err
	}
	if e.tcp, err = config.Listen(context.Background(), "tcp", at(ports[1])); err != nil {
		return nil, err
	}
	conn, err := config.ListenPacket(context.Background(), "udp", at(ports[2]))
	if err != nil {
		return nil, err
	}
	e.udp = conn.(*net.UDPConn)
	e.http = http.Server{Handler: e.handler(), ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(p.stderr, "", 0)}
	ended := make(chan error, 1)
	e.tasks.Go(func() {
		if err := e.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			ended <- err
		}
	})
	e.tasks.Go(e.serveTCP)
	e.tasks.Go(e.serveUDP)
	p.out.Printf("listening http=%s tcp=%s udp=%s", listener.Addr(), e.tcp.Addr(), e.udp.LocalAddr())
	return ended, nil
}

func (e *echo) answer(protocol load.Protocol, client, id string, last bool) []byte {
	e.lastAsked.Store(time.Now().UnixNano())
	return load.Answer{Endpoint: e.self, Protocol: protocol, Client: client, ID: id, Last: last}.Line()
}

// handler serves readiness at /readyz, and answers any other path.
func (e *echo) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		last := e.draining.Load()
		if last {
			w.Header().Set("Connection", "close")
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(e.answer(load.HTTP, r.RemoteAddr, r.URL.Query().Get("id"), last)) // a client that is gone needs no answer
	})
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if e.draining.Load() {
			http.Error(w, "draining", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

func (e *echo) serveTCP() {
	for {
		conn, err := e.tcp.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// The client has closed the connection, or too many files are open for a moment.
			time.Sleep(5 * time.Millisecond)
			continue
		}
		if !e.trackConn(conn) {
			_ = conn.Close() // accepted too late
			continue
		}
		e.tasks.Go(func() {
			e.serveConn(conn)
			e.mu.Lock()
			delete(e.conns, conn)
			e.mu.Unlock()
			_ = conn.Close() // all answers are written
		})
	}
}

// trackConn keeps a connection for finish to close, and returns false if finish has begun.
func (e *echo) trackConn(conn net.Conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closing {
		e.conns[conn] = true
	}
	return !e.closing
}

func (e *echo) serveConn(conn net.Conn) {
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		id, last := strings.CutSuffix(lines.Text(), " "+load.CloseWord)
		last = last || e.draining.Load()
		if _, err := conn.Write(e.answer(load.TCP, conn.RemoteAddr().String(), id, last)); err != nil || last {
			return
		}
	}
}

func (e *echo) serveUDP() {
	buffer := make([]byte, 64*1024)
	for {
		n, from, err := e.udp.ReadFromUDPAddrPort(buffer)
		if err != nil {
			if e.isClosing() {
				return
			}
			continue // the error is about an earlier answer
		}
		// A socket for both families has IPv4 addresses mapped to IPv6.
		client := netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		_, _ = e.udp.WriteToUDPAddrPort(e.answer(load.UDP, client.String(), string(buffer[:n]), false), client)
	}
}

func (e *echo) isClosing() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closing
}

// finish stops accepting requests, waits for answers in flight, and closes all connections.
func (e *echo) finish() {
	past := time.Unix(1, 0)
	e.mu.Lock()
	e.closing = true
	for conn := range e.conns {
		_ = conn.SetReadDeadline(past) // fails only if it is closed
	}
	e.mu.Unlock()
	_ = e.tcp.Close()
	_ = e.udp.SetReadDeadline(past)
	ctx, cancel := context.WithTimeout(context.Background(), lastCall)
	defer cancel()
	_ = e.http.Shutdown(ctx) // the remaining connections are closed below
	ended := make(chan struct{})
	go func() {
		e.tasks.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	_ = e.http.Close()
	_ = e.udp.Close()
	e.mu.Lock()
	defer e.mu.Unlock()
	for conn := range e.conns {
		_ = conn.Close()
	}
}
