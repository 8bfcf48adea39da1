package httpserver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// testTimeout is longer than any expected wait of these tests.
const testTimeout = time.Minute

// serve runs servers that share a limit, and returns their addresses.
func serve(t *testing.T, limit *Limit, handlers ...http.Handler) []string {
	t.Helper()
	var addresses []string
	for _, handler := range handlers {
		addresses = append(addresses, run(t, New(handler, limit)))
	}
	return addresses
}

// run runs a server until the test ends, and returns its address.
func run(t *testing.T, server *http.Server) string {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// client is a connection to a server.
type client struct {
	net.Conn
	*bufio.Reader
}

func connect(t *testing.T, address string) *client {
	t.Helper()
	conn, err := net.DialTimeout("tcp4", address, testTimeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	return &client{conn, bufio.NewReader(conn)}
}

func (c *client) Read(b []byte) (int, error) { return c.Reader.Read(b) }

// send sends a part of a request, or all of it.
func (c *client) send(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

const request = "GET / HTTP/1.1\r\nHost: node\r\n\r\n"

// ask sends a request and returns the body of the answer.
func (c *client) ask(t *testing.T) string {
	t.Helper()
	c.send(t, request)
	return c.answer(t)
}

func (c *client) answer(t *testing.T) string {
	t.Helper()
	response, err := http.ReadResponse(c.Reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// closed waits until the server has closed the connection. It is an error if it does not.
func (c *client) closed() error {
	_, err := io.Copy(io.Discard, c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return nil
}

// await waits until a condition holds for the connections that a limit knows.
func await(t *testing.T, limit *Limit, what string, condition func([]held) bool) {
	t.Helper()
	deadline := time.Now().Add(testTimeout)
	for {
		limit.mu.Lock()
		done := condition(limit.held)
		number := len(limit.held)
		limit.mu.Unlock()
		if done {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waiting for %s: %d connections are held", what, number)
		}
		time.Sleep(time.Millisecond)
	}
}

// A request, an answer and an idle connection each have a time limit of at most a minute.
func TestTimeouts(t *testing.T) {
	server := New(says(""), NewLimit(1))
	for what, within := range map[string]time.Duration{"a request": server.ReadTimeout, "an answer": server.WriteTimeout, "an idle connection": server.IdleTimeout} {
		if within <= 0 || within > time.Minute {
			t.Errorf("%s may take %s", what, within)
		}
	}
}

func says(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) })
}

// Idle connections are bounded over all servers with one limit, and block no later client.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	const most, many = 8, 100
	for name, begin := range map[string]func(*testing.T, *client){
		"nothing sent":           func(*testing.T, *client) {},
		"half a request":         func(t *testing.T, c *client) { c.send(t, "GET / HT") },
		"kept after a request":   func(t *testing.T, c *client) { c.ask(t) },
		"half a second request":  func(t *testing.T, c *client) { c.ask(t); c.send(t, "GET / HT") },
		"a request and a wait":   func(t *testing.T, c *client) { c.send(t, request) },
		"a head without its end": func(t *testing.T, c *client) { c.send(t, "GET / HTTP/1.1\r\n"+strings.Repeat("A: b\r\n", 9)) },
	} {
		t.Run(name, func(t *testing.T) {
			limit := &Limit{most: most}
			addresses := serve(t, limit, says("one"), says("other"))
			var held []*client
			for i := range many {
				c := connect(t, addresses[i%len(addresses)])
				begin(t, c)
				held = append(held, c)
			}
			closed := make(chan error, many)
			for _, c := range held {
				go func() { closed <- c.closed() }()
			}
			// When this many are closed, the servers have accepted all of them. A connection accepted after the client's
			// below would close it.
			for range many - most {
				if err := <-closed; err != nil {
					t.Fatal(err)
				}
			}
			if got := connect(t, addresses[0]).ask(t); got != "one" {
				t.Errorf("the answer is %q", got)
			}
			limit.mu.Lock()
			defer limit.mu.Unlock()
			if len(limit.held) > most {
				t.Errorf("%d connections are held", len(limit.held))
			}
		})
	}
}

// A long answer is not cut off by idle connections, and does not block other clients.
func TestIdleConnectionsDoNotEndAnswers(t *testing.T) {
	const most = 4
	release := make(chan struct{})
	began := make(chan struct{}, 2*most)
	slow := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		began <- struct{}{}
		<-release
		fmt.Fprint(w, "done")
	})
	limit := &Limit{most: most}
	addresses := serve(t, limit, slow, says("quick"))
	first := connect(t, addresses[0])
	first.send(t, request)
	<-began
	for range 5 * most {
		connect(t, addresses[1])
	}
	if got := connect(t, addresses[1]).ask(t); got != "quick" {
		t.Errorf("the answer is %q", got)
	}
	release <- struct{}{}
	if got := first.answer(t); got != "done" {
		t.Errorf("the slow answer is %q", got)
	}
	// A server notes that it has answered a moment after the client has the answer, which makes
	// that connection the newest.
	await(t, limit, "answers to be noted", func(all []held) bool {
		return !slices.ContainsFunc(all, func(h held) bool { return h.active })
	})
	// Where all that may be held are being answered the oldest makes room.
	var slowest []*client
	for range most {
		c := connect(t, addresses[0])
		c.send(t, request)
		<-began
		slowest = append(slowest, c)
	}
	if got := connect(t, addresses[1]).ask(t); got != "quick" {
		t.Errorf("the answer is %q", got)
	}
	if err := slowest[0].closed(); err != nil {
		t.Error(err)
	}
	close(release)
	if got := slowest[most-1].answer(t); got != "done" {
		t.Errorf("the newest answer is %q", got)
	}
}

// A new connection is not closed before its request is read, as long as fewer than mostYoung connections follow.
func TestYoungConnectionsStay(t *testing.T) {
	const most, many = 8, 200
	limit := NewLimit(most)
	if limit.young != 100*time.Millisecond {
		t.Errorf("a connection is young for %s; docs/threat-model.md says 100 ms", limit.young)
	}
	limit.young = time.Hour
	address := serve(t, limit, says("one"))[0]
	first := connect(t, address)
	for range many {
		connect(t, address)
	}
	hold := func(want int) {
		t.Helper()
		await(t, limit, fmt.Sprintf("%d of them", want), func(all []held) bool { return len(all) == want })
	}
	hold(1 + many)
	if got := first.ask(t); got != "one" {
		t.Errorf("the answer is %q", got)
	}
	for range mostYoung {
		connect(t, address)
	}
	hold(mostYoung)
}

// A flood of short connections does not block requests of others.
func TestFloodOfConnections(t *testing.T) {
	limit := NewLimit(8)
	limit.young = testTimeout // the machine may be slow
	address := serve(t, limit, says("one"))[0]
	stop := make(chan struct{})
	var running sync.WaitGroup
	defer running.Wait()
	defer close(stop)
	for range 4 {
		running.Go(func() {
			var held []net.Conn
			defer func() {
				for _, c := range held {
					_ = c.Close()
				}
			}()
			for {
				select {
				case <-stop:
					return
				default:
				}
				c, err := net.Dial("tcp4", address)
				if err != nil {
					continue
				}
				if held = append(held, c); len(held) > 64 {
					_ = held[0].Close()
					held = held[1:]
				}
			}
		})
	}
	for range 100 {
		if got := connect(t, address).ask(t); got != "one" {
			t.Errorf("the answer is %q", got)
		}
	}
}
