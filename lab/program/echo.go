package program

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"vicinity.dev/vicinity/lab/load"
)

// echo answers with its identity. When it is asked to end, readiness fails at once, but it
// serves for the drain time, and then until nobody has asked for a while, since other nodes
// learn of its end late. An answer in that time is the last one of its connection, so that
// clients with open connections lose nothing.
type echo struct {
	self  load.Endpoint
	state *behaviour
	http  http.Server

	tcp   net.Listener // nil if there is none
	udp   *net.UDPConn // nil if there is none
	grpc  *grpc.Server // nil if there is none
	tasks sync.WaitGroup

	mu      sync.Mutex
	conns   map[net.Conn]bool // those of TCP
	closing bool              // no more are taken
}

// lastCall is how long answers in flight may take after the drain time.
const lastCall = time.Second

// maxDatagrams limits the datagrams that wait for a delayed answer.
const maxDatagrams = 4096

// portNames are the ports of an echo, in the order of their numbers. gRPC answers health
// checks only.
var portNames = [...]string{"http", "tcp", "udp", "grpc"}

func runEcho(ctx context.Context, p *process) (int, error) {
	e := &echo{self: p.endpoint(), state: newBehaviour(), conns: make(map[net.Conn]bool)}
	set := p.flags()
	var ports [len(portNames)]int
	for i, name := range portNames {
		usual := 8080 + i
		if name == "grpc" {
			usual = -1
		}
		set.IntVar(&ports[i], name+"-port", usual, "port for "+name+"; 0 is any that is free, -1 none")
	}
	host := set.String("host", "", "IP address to listen on; empty is all, of both families")
	start := set.Duration("start-delay", 0, "time before it listens")
	drain := set.Duration("drain", 3*time.Second, "time to serve on after being asked to end")
	quiet := set.Duration("drain-quiet", 0, "time without a request after which it ends then; 0 is at once")
	settings := make(map[string]change)
	for _, c := range controls() {
		set.Func(c.name, c.usage, func(value string) error {
			change, err := c.parse(value)
			settings[c.name] = change
			return err
		})
	}
	if err := p.parse(set); err != nil {
		return 0, err
	}
	if *host != "" {
		if _, err := netip.ParseAddr(*host); err != nil {
			return 0, usageError{fmt.Errorf("--host %q is no IP address; it must be one, or empty", *host)}
		}
	}
	for i, name := range portNames {
		if ports[i] < -1 || ports[i] > 65535 {
			return 0, usageError{fmt.Errorf("--%s-port %d is no port; it must be from -1 to 65535", name, ports[i])}
		}
	}

	select {
	case <-time.After(*start):
	case <-ctx.Done():
		return 0, nil
	}
	for _, c := range controls() {
		if change := settings[c.name]; change != nil {
			e.state.apply(change)
		}
	}
	failed, err := e.listen(p, *host, ports)
	defer e.abort()
	if err != nil {
		return 0, err
	}

	var drained <-chan time.Time
	asked := ctx.Done()
	for {
		select {
		case <-asked:
			asked = nil
			e.state.apply(func(b *behaviour) { b.terminating = true })
			p.out.Printf("draining for %s", *drain)
			drained = time.After(*drain)
		case <-drained:
			if rest := *quiet - e.state.quiet(); rest > 0 {
				drained = time.After(rest)
				continue
			}
			e.finish()
			p.out.Print("done")
			return 0, nil
		case <-e.state.crash:
			code := e.state.exitCode()
			p.out.Printf("crashing with exit code %d", code)
			return code, nil
		case err := <-failed:
			return 0, err
		}
	}
}

// listen opens and serves all ports. Later failures are sent to the channel.
func (e *echo) listen(p *process, host string, ports [len(portNames)]int) (failed <-chan error, err error) {
	errs := make(chan error, 2)
	e.http = http.Server{Handler: e.handler(), ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(p.stderr, "", 0)}
	// Not bound to ctx: the sockets must exist until the drain time is over.
	var config net.ListenConfig
	at := func(port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
	var listening []string
	if ports[0] >= 0 {
		listener, err := config.Listen(context.Background(), "tcp", at(ports[0]))
		if err != nil {
			return nil, err
		}
		listening = append(listening, "http="+listener.Addr().String())
		e.tasks.Go(func() {
			if err := e.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				errs <- err
			}
		})
	}
	if ports[1] >= 0 {
		if e.tcp, err = config.Listen(context.Background(), "tcp", at(ports[1])); err != nil {
			return nil, err
		}
		listening = append(listening, "tcp="+e.tcp.Addr().String())
		e.tasks.Go(e.serveTCP)
	}
	if ports[2] >= 0 {
		conn, err := config.ListenPacket(context.Background(), "udp", at(ports[2]))
		if err != nil {
			return nil, err
		}
		e.udp = conn.(*net.UDPConn)
		listening = append(listening, "udp="+e.udp.LocalAddr().String())
		e.tasks.Go(e.serveUDP)
	}
	if ports[3] >= 0 {
		listener, err := config.Listen(context.Background(), "tcp", at(ports[3]))
		if err != nil {
			return nil, err
		}
		listening = append(listening, "grpc="+listener.Addr().String())
		e.grpc = newHealthServer(e.state)
		e.tasks.Go(func() {
			if err := e.grpc.Serve(listener); err != nil {
				errs <- err
			}
		})
	}
	p.out.Printf("listening %s", strings.Join(listening, " "))
	return errs, nil
}

func (e *echo) answer(protocol load.Protocol, client, id string, last bool) load.Answer {
	return load.Answer{Endpoint: e.self, Protocol: protocol, Client: client, ID: id, Last: last}
}

// pause waits, and returns false if the echo must crash in the meantime.
func (e *echo) pause(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-e.state.crash:
	case <-ctx.Done():
	}
	return false
}

// handler answers any path except those of the control interface.
func (e *echo) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		answered := e.pause(r.Context(), e.state.begin())
		defer func() { e.state.end(load.HTTP, answered) }()
		if !answered {
			panic(http.ErrAbortHandler) // returning would be an empty answer
		}
		last := e.state.snapshot().Draining
		if last {
			w.Header().Set("Connection", "close")
		}
		w.Header().Set("Content-Type", "application/json")
		answered = writeNow(w, e.answer(load.HTTP, r.RemoteAddr, r.URL.Query().Get("id"), last).Line())
	})
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) { answerProbe(w, e.state.snapshot().Ready, "not ready") })
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) { answerProbe(w, e.state.isLive(), "not live") })
	mux.HandleFunc("/stats", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(e.state.snapshot())
	})
	mux.HandleFunc("/control", e.control)
	return mux
}

// writeNow writes and flushes a whole body, so that a crash does not lose it.
func writeNow(w http.ResponseWriter, body []byte) bool {
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, err := w.Write(body)
	return err == nil && http.NewResponseController(w).Flush() == nil
}

func answerProbe(w http.ResponseWriter, ok bool, why string) {
	if !ok {
		http.Error(w, why, http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// control applies all of its parameters or none.
func (e *echo) control(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "to control it, POST", http.StatusMethodNotAllowed)
		return
	}
	parameters := r.URL.Query()
	var names []string
	var changes []change
	for _, c := range controls() {
		names = append(names, c.name)
		if !parameters.Has(c.name) {
			continue
		}
		change, err := c.parse(parameters.Get(c.name))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		changes = append(changes, change)
	}
	for name := range parameters {
		if !slices.Contains(names, name) {
			http.Error(w, fmt.Sprintf("%q is unknown; it must be one of %s", name, strings.Join(names, ", ")), http.StatusBadRequest)
			return
		}
	}
	if !parameters.Has("crash") {
		e.state.apply(changes...)
		fmt.Fprintln(w, "ok")
		return
	}
	// Confirm before the crash.
	writeNow(w, []byte("ok\n"))
	e.state.apply(changes...)
}

func (e *echo) serveTCP() {
	for {
		conn, err := e.tcp.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// The client has gone, or there are too many open files for a moment.
			e.pause(context.Background(), 5*time.Millisecond)
			continue
		}
		if !e.trackConn(conn) {
			_ = conn.Close() // it came too late
			continue
		}
		e.tasks.Go(func() {
			e.serveConn(conn)
			e.mu.Lock()
			delete(e.conns, conn)
			e.mu.Unlock()
			_ = conn.Close() // everything was written
		})
	}
}

// trackConn keeps a connection to close it in the end, and returns false if that has come.
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
		answered := e.pause(context.Background(), e.state.begin())
		last = last || e.state.snapshot().Draining
		if answered {
			_, err := conn.Write(e.answer(load.TCP, conn.RemoteAddr().String(), id, last).Line())
			answered = err == nil
		}
		e.state.end(load.TCP, answered)
		if last || !answered {
			return
		}
	}
}

func (e *echo) serveUDP() {
	slots := make(chan struct{}, maxDatagrams)
	buffer := make([]byte, 64*1024)
	for {
		n, from, err := e.udp.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			if e.isClosing() {
				return
			}
			continue // an earlier answer could not be delivered
		}
		// On a socket for both families the kernel maps IPv4 to IPv6.
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		line := e.answer(load.UDP, from.String(), string(buffer[:n]), false).Line()
		select {
		case slots <- struct{}{}:
		default:
			e.state.countDropped()
			continue
		}
		reply := func(delay time.Duration) {
			answered := e.pause(context.Background(), delay)
			if answered {
				_, err := e.udp.WriteToUDPAddrPort(line, from)
				answered = err == nil
			}
			e.state.end(load.UDP, answered)
			<-slots
		}
		if delay := e.state.begin(); delay > 0 {
			e.tasks.Go(func() { reply(delay) })
		} else {
			reply(0)
		}
	}
}

func (e *echo) isClosing() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closing
}

// finish stops accepting requests and waits for answers in flight.
func (e *echo) finish() {
	e.mu.Lock()
	e.closing = true
	past := time.Unix(1, 0)
	for conn := range e.conns {
		_ = conn.SetReadDeadline(past) // or it is closed already
	}
	e.mu.Unlock()
	if e.tcp != nil {
		_ = e.tcp.Close() // nothing is lost by a listener
	}
	if e.udp != nil {
		_ = e.udp.SetReadDeadline(past) // writing goes on
	}
	if e.grpc != nil {
		e.grpc.Stop() // a check that is cut short has failed, as it should
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastCall)
	defer cancel()
	_ = e.http.Shutdown(ctx) // what did not end by then is aborted
	ended := make(chan struct{})
	go func() {
		e.tasks.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

func (e *echo) abort() {
	_ = e.http.Close() // there is nothing to be done about what does not close
	if e.tcp != nil {
		_ = e.tcp.Close()
	}
	e.mu.Lock()
	e.closing = true
	for conn := range e.conns {
		_ = conn.Close()
	}
	e.mu.Unlock()
	if e.udp != nil {
		_ = e.udp.Close()
	}
	if e.grpc != nil {
		e.grpc.Stop()
	}
	// Goroutines that wait for a delay end by themselves; the process does not wait.
}
