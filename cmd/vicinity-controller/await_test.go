package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/rest"
)

func briefAPIWait() apiWait {
	return apiWait{limit: 300 * time.Millisecond, attempt: 100 * time.Millisecond, period: 10 * time.Millisecond}
}

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

func TestAwaitAPIGivesUp(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if err := awaitAPI(t.Context(), &rest.Config{Host: silent.Addr().String()}, logr.Discard(), briefAPIWait()); err == nil || !strings.Contains(err.Error(), "reaching the API server for 300ms") {
		t.Errorf("a server that does not answer: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := awaitAPI(ended, &rest.Config{Host: silent.Addr().String()}, logr.Discard(), usualAPIWait()); !errors.Is(err, context.Canceled) {
		t.Errorf("it does not end with the program: %v", err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := "{clusters: [{name: a, cluster: {server: 'http://" + silent.Addr().String() + "'}}], contexts: [{name: a, context: {cluster: a}}], current-context: a}"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	command := newCommand()
	command.SetArgs([]string{"--kubeconfig", file, "--namespace", "vicinity"})
	if err := command.ExecuteContext(ended); err != nil {
		t.Errorf("a program that is asked to end while it waits fails: %v", err)
	}
}

// A load balancer answers for API servers that are away.
func TestAwaitAPIDoesNotTakeErrorsForAnswers(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	defer server.Close()
	if err := awaitAPI(t.Context(), &rest.Config{Host: server.URL}, logr.Discard(), briefAPIWait()); err == nil || !strings.Contains(err.Error(), "reaching the API server for 300ms") {
		t.Errorf("a server that is away: %v", err)
	}
}

// What no wait mends is said at once.
func TestAwaitAPIDoesNotWaitForTrust(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	err := awaitAPI(t.Context(), &rest.Config{Host: server.URL}, logr.Discard(), usualAPIWait())
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate that is not trusted: %v", err)
	}
	if err := awaitAPI(t.Context(), &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAFile: "/nowhere"}}, logr.Discard(), usualAPIWait()); err == nil {
		t.Error("a file that is not there is waited for")
	}
}
