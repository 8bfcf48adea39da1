package cri

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

// streamTest is a server whose handler takes each connection over, and tells when what
// was asked on it is over.
type streamTest struct {
	*httptest.Server
	connections *connections
	begun, over chan struct{}
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
		s.begun <- struct{}{}
		go func() { _, _ = io.Copy(conn, conn) }()
		<-r.Context().Done()
		s.over <- struct{}{}
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
	s.connections.closeAll()
	s.await(t, s.over, "it lasts although its connection is closed")
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("who asked reads on: %v", err)
	}
}
