package main

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// farewellTime is how long a process serves webhooks after it was asked to end, so that no eviction
// fails: API servers need the time to use other replicas and to close their connections.
const farewellTime = 4 * time.Second

// farewell serves webhooks while the process ends or stands by. A request fails if its kept
// connection closes at the same moment. So while the process is leaving, each answer makes the API
// server close the connection.
type farewell struct {
	webhook.Server
	leaving atomic.Bool
}

// Register adds a webhook.
func (f *farewell) Register(path string, hook http.Handler) {
	f.Server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.leaving.Load() {
			w.Header().Set("Connection", "close")
		}
		hook.ServeHTTP(w, r)
	}))
}

// take returns a context that ends a while after ctx. In between the process is leaving.
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
