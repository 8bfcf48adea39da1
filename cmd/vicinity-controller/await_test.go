package main

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/rest"
)

// The API server is waited for, and the log says so once.
func TestAwaitAPI(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	var lines []string
	said := make(chan struct{})
	log := funcr.New(func(_, line string) {
		lines = append(lines, line)
		close(said) // a second line panics
	}, funcr.Options{})
	ended := make(chan error, 1)
	go func() {
		ended <- awaitAPI(t.Context(), &rest.Config{Host: address}, log, apiWait{limit: time.Minute, attempt: time.Second, period: time.Millisecond})
	}()
	select {
	case <-said:
	case err := <-ended:
		t.Fatalf("it does not wait: %v", err)
	}
	if listener, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	if err := <-ended; err != nil {
		t.Errorf("a server that answers: %v", err)
	}
	if !strings.Contains(lines[0], "The API server does not answer yet") || !strings.Contains(lines[0], "refused") {
		t.Errorf("the log says %q", lines)
	}
}
