package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

func TestFarewell(t *testing.T) {
	f := &farewell{Server: webhook.NewServer(webhook.Options{})}
	f.Register("/hook", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	closes := func() bool {
		answer := httptest.NewRecorder()
		f.WebhookMux().ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/hook", nil))
		return answer.Header().Get("Connection") == "close"
	}
	asked, ask := context.WithCancel(t.Context())
	defer ask()
	longer, end := f.take(asked, time.Hour)
	defer end()
	if closes() {
		t.Error("connections are closed before the process is asked to end")
	}
	ask()
	for deadline := time.Now().Add(10 * time.Second); !closes(); {
		if time.Now().After(deadline) {
			t.Fatal("connections are kept while the process ends")
		}
	}
	if longer.Err() != nil {
		t.Error("the process ended at once")
	}
	longer, endSoon := f.take(asked, time.Millisecond)
	defer endSoon()
	select {
	case <-longer.Done():
	case <-time.After(10 * time.Second):
		t.Error("the process does not end")
	}
}
