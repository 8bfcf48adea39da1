package budget

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"vicinity.dev/vicinity/internal/controller/shell"
)

// wakes has one controller sync what another one has news about, by namespaces.
type wakes struct {
	gathered *shell.Gatherer

	mu    sync.Mutex
	names map[string]bool
}

func newWakes(delay time.Duration) *wakes {
	return &wakes{gathered: shell.NewGatherer(delay), names: map[string]bool{}}
}

// wake notes a namespace.
func (w *wakes) wake(name string) {
	w.mu.Lock()
	w.names[name] = true
	w.mu.Unlock()
	w.gathered.Notice()
}

func (w *wakes) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := slices.Sorted(maps.Keys(w.names))
	clear(w.names)
	return names
}

// source is a source of the requests of each namespace.
func (w *wakes) source(what string, requests func(context.Context, string) ([]reconcile.Request, error)) source.Source {
	return w.gathered.Source(what, func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		var failed error
		for _, name := range w.take() {
			list, err := requests(ctx, name)
			if err != nil {
				failed = err
				w.wake(name)
			}
			for _, request := range list {
				q.Add(request)
			}
		}
		return failed
	})
}
