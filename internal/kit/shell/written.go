package shell

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TrustFor is how long a write counts although the cache does not show it. A cache is behind for seconds at most. After that the write
// was undone, or etcd was restored from a backup with lower resource versions.
const TrustFor = 30 * time.Second

// Trust tracks how long the last write still counts.
type Trust struct{ at time.Time }

// Renew notes a write.
func (t *Trust) Renew(now time.Time) { t.at = now }

// Left returns how long the last write still counts.
func (t Trust) Left(now time.Time) time.Duration { return max(0, t.at.Add(TrustFor).Sub(now)) }

// AtLeast reports whether a version equals another one or is later. Any version is later than none.
func AtLeast(version, than string) bool {
	if than == "" {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order >= 0
}

// HasReached reports whether the API server has reached a version of pods. It has not if the version is meaningless, as in a status that
// was copied from another cluster or edited.
func HasReached(ctx context.Context, live client.Reader, namespace, version string) (bool, error) {
	if _, err := resourceversion.CompareResourceVersion(version, version); err != nil {
		return false, nil
	}
	var page corev1.PodList
	if err := live.List(ctx, &page, client.InNamespace(namespace), client.Limit(1)); err != nil {
		return false, fmt.Errorf("reading the version of pods: %w", err)
	}
	order, err := resourceversion.CompareResourceVersion(page.ResourceVersion, version)
	if err != nil {
		return false, fmt.Errorf("comparing versions of pods: %w", err)
	}
	return order >= 0, nil
}

// Behind reports whether a cached object is older than a write that made the given resource version.
func Behind(object client.Object, written string) bool {
	if written == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), written)
	return err == nil && order < 0
}

// Written is the last write to one object.
type Written struct {
	version string
	trust   Trust
}

// Note records the object that a write stored.
func (w *Written) Note(object client.Object, now time.Time) {
	w.version = object.GetResourceVersion()
	w.trust.Renew(now)
}

// Pending reports whether the cached object is older than the write, and the write still counts.
func (w Written) Pending(object client.Object, now time.Time) bool {
	return Behind(object, w.version) && w.trust.Left(now) > 0
}

// Overlay keeps written objects of a namespace until the cache shows them. Otherwise a sync would create an object twice. The zero
// value is empty.
type Overlay[T client.Object] struct {
	trust   Trust
	written map[string]T
	deleted map[types.UID]bool
}

// Wrote records a created or updated object.
func (o *Overlay[T]) Wrote(object T, now time.Time) {
	if o.written == nil {
		o.written = map[string]T{}
	}
	o.trust.Renew(now)
	o.written[object.GetName()] = object
}

// Deleted records a deleted object.
func (o *Overlay[T]) Deleted(object T, now time.Time) {
	if o.deleted == nil {
		o.deleted = map[types.UID]bool{}
	}
	o.trust.Renew(now)
	o.deleted[object.GetUID()] = true
	delete(o.written, object.GetName())
}

// Forget drops an object after a failed write.
func (o *Overlay[T]) Forget(object T) { delete(o.written, object.GetName()) }

// Current merges the cached objects with the recorded writes, sorted by name.
func (o *Overlay[T]) Current(cached []T, now time.Time) []T {
	if o.trust.Left(now) == 0 {
		clear(o.written)
		clear(o.deleted)
	}
	shown := make(map[types.UID]bool, len(cached))
	current := make([]T, 0, len(cached)+len(o.written))
	for _, object := range cached {
		shown[object.GetUID()] = true
		switch written, known := o.written[object.GetName()]; {
		case o.deleted[object.GetUID()]:
		case !known:
			current = append(current, object)
		case written.GetUID() == object.GetUID() && Behind(object, written.GetResourceVersion()):
			current = append(current, written)
		default:
			delete(o.written, object.GetName())
			current = append(current, object)
		}
	}
	for uid := range o.deleted {
		if !shown[uid] {
			delete(o.deleted, uid)
		}
	}
	for name, object := range o.written {
		if !slices.ContainsFunc(current, func(c T) bool { return c.GetName() == name }) {
			current = append(current, object)
		}
	}
	slices.SortFunc(current, func(a, b T) int { return strings.Compare(a.GetName(), b.GetName()) })
	return current
}

// Pending reports whether the cache lacks a recorded write.
func (o *Overlay[T]) Pending() bool { return len(o.written)+len(o.deleted) > 0 }

// Left returns how long the pending writes still count, zero without any. Sync again then: no event tells that the cache will never
// show a write, as when another client deletes a new object.
func (o *Overlay[T]) Left(now time.Time) time.Duration {
	if !o.Pending() {
		return 0
	}
	return o.trust.Left(now)
}

// Notes keeps a note for each key that a controller syncs. A controller syncs a key only once at a time, so a note needs no lock. The
// zero value is empty.
type Notes[K comparable, V any] struct {
	mu sync.Mutex
	of map[K]*V
}

// Of returns the note of a key, and makes it if necessary.
func (n *Notes[K, V]) Of(key K, initial func() *V) *V {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.of == nil {
		n.of = map[K]*V{}
	}
	if n.of[key] == nil {
		n.of[key] = initial()
	}
	return n.of[key]
}

// Get returns the note of a key, or nil.
func (n *Notes[K, V]) Get(key K) *V {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.of[key]
}

// Has reports whether a key has a note.
func (n *Notes[K, V]) Has(key K) bool { return n.Get(key) != nil }

// Forget drops the note of a key.
func (n *Notes[K, V]) Forget(key K) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.of, key)
}

// All returns a copy of the map of notes.
func (n *Notes[K, V]) All() map[K]*V {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.of)
}

// Keys returns the keys with a note, in no order.
func (n *Notes[K, V]) Keys() []K { return slices.Collect(maps.Keys(n.All())) }
