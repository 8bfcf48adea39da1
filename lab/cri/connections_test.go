package cri

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	cristreams "k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// streamTest is a server whose handler takes each connection over, and tells when what
// was asked on it is over.
type streamTest struct {
	*httptest.Server
	connections *connections
	begun, over chan struct{}
	// answer is what a stream says at its end, and stuck keeps it from ending.
	answer string
	stuck  chan struct{}
}

func newStreamTest(t *testing.T) *streamTest {
	s := &streamTest{begun: make(chan struct{}), over: make(chan struct{})}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		answer, stuck := s.answer, s.stuck
		s.begun <- struct{}{}
		go func() { _, _ = io.Copy(conn, conn) }()
		<-r.Context().Done()
		s.over <- struct{}{}
		if stuck != nil {
			<-stuck
		}
		_, _ = io.WriteString(conn, answer)
	}))
	s.connections = newConnections(s.Listener)
	s.Listener, s.Config.ConnContext = s.connections, withConnection
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// ask begins a stream.
func (s *streamTest) ask(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	s.await(t, s.begun, "the stream does not begin")
	return conn
}

func (s *streamTest) await(t *testing.T, event chan struct{}, otherwise string) {
	t.Helper()
	select {
	case <-event:
	case <-time.After(time.Minute):
		t.Fatal(otherwise)
	}
}

func TestStreamsEndWithWhoAsks(t *testing.T) {
	s := newStreamTest(t)
	conn := s.ask(t)
	for range 10 {
		if _, err := io.WriteString(conn, "x"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Fatalf("it is over too soon: %v", err)
		}
	}
	select {
	case <-s.over:
		t.Fatal("it is over as soon as the connection is handed over")
	default:
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	s.await(t, s.over, "it lasts although nobody listens")
}

func TestStreamsEndWithTheServer(t *testing.T) {
	s := newStreamTest(t)
	conn := s.ask(t)
	ended := make(chan struct{})
	go func() {
		s.connections.end(time.Minute)
		close(ended)
	}()
	s.await(t, s.over, "it lasts although its connection is closed")
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("who asked reads on: %v", err)
	}
	s.await(t, ended, "it waits although all connections are closed")
}

// Who asked hears how a stream ended that the server ends, and one that does not end is cut.
func TestStreamsEndWithAnAnswer(t *testing.T) {
	s := newStreamTest(t)
	s.answer = "failed"
	answered := s.ask(t)
	s.answer, s.stuck = "", make(chan struct{})
	stuck := s.ask(t)
	defer close(s.stuck)
	go func() {
		for range 2 {
			<-s.over
		}
	}()
	s.connections.end(3 * time.Second)
	for conn, want := range map[net.Conn]string{answered: "failed", stuck: ""} {
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(conn); err != nil || string(got) != want {
			t.Errorf("who asked reads %q, %v; want %q", got, err, want)
		}
	}
	if conn, err := net.Dial("tcp", s.Listener.Addr().String()); err == nil {
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("a connection that comes after the end is served: %v", err)
		}
	}
}

// endlessStreams executes what only the end of the context ends.
type endlessStreams struct {
	streaming.Runtime
	begun chan struct{}
}

func (e endlessStreams) Exec(ctx context.Context, _ string, _ []string, _ io.Reader, _, _ io.WriteCloser, _ bool, _ <-chan cristreams.TerminalSize) error {
	e.begun <- struct{}{}
	<-ctx.Done()
	return ctx.Err()
}

// A command that the end of the runtime cuts has not succeeded.
func TestExecFailsWhenTheServerEnds(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: listener.Addr().String()}
	program := endlessStreams{begun: make(chan struct{})}
	handler, err := streaming.NewServer(config, program)
	if err != nil {
		t.Fatal(err)
	}
	connections := newConnections(listener)
	server := &http.Server{Handler: handler, ConnContext: withConnection}
	go func() { _ = server.Serve(connections) }()
	defer server.Close()
	answer, err := handler.GetExec(&runtimeapi.ExecRequest{ContainerId: "one", Cmd: []string{"sleep"}, Stdout: true, Stderr: true})
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(answer.Url)
	if err != nil {
		t.Fatal(err)
	}
	executor, err := remotecommand.NewSPDYExecutor(&rest.Config{}, http.MethodPost, at)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard, Stderr: io.Discard})
	}()
	<-program.begun
	connections.end(time.Minute)
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("the command ended with %v", err)
	}
}
