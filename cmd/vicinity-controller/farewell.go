package main

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// farewellTime is how long a process that is asked to end goes on, so that no eviction fails for
// it: until API servers call other replicas, and have closed their connections to this one.
const farewellTime = 4 * time.Second

// farewell is the server of webhooks of a process that ends in peace. API servers keep
// connections, and a request on one that is closed at that moment fails: while the process takes
// its leave, each answer has its connection closed by the API server instead.
type farewell struct {
	webhook.Server
	leaving atomic.Bool
}

// Register serves a webhook.
func (f *farewell) Register(path string, hook http.Handler) {
	f.Server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.leaving.Load() {
			w.Header().Set("Connection", "close")
		}
		hook.ServeHTTP(w, r)
	}))
}

// take is a context that ends some time after another one has. In between the process takes its
// leave.
func (f *farewell) take(ctx context.Context, lasts time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		f.leaving.Store(true)
		time.AfterFunc(lasts, cancel)
	})
	return longer, func() {
		stop()
		cancel()
	}
}
