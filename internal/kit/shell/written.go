package shell

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TrustFor is how long a write counts that the cache does not show. A cache is behind for
// seconds at most. What it does not show for longer it never will: somebody else undid it,
// or etcd was restored from a copy, after which resource versions are lower than before.
const TrustFor = 30 * time.Second

// Trust is how long what was written last still counts.
type Trust struct{ at time.Time }

// Renew notes a write.
func (t *Trust) Renew(now time.Time) { t.at = now }

// Left is how long the last write still counts.
func (t Trust) Left(now time.Time) time.Duration { return max(0, t.at.Add(TrustFor).Sub(now)) }

// Behind reports whether an object in a cache is older than a write, by the resource
// version that the write made.
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

// Note notes the object as a write has left it.
func (w *Written) Note(object client.Object, now time.Time) {
	w.version = object.GetResourceVersion()
	w.trust.Renew(now)
}

// Pending reports whether the object in the cache is still to become what was written.
func (w Written) Pending(object client.Object, now time.Time) bool {
	return Behind(object, w.version) && w.trust.Left(now) > 0
}

// Overlay is what was written of some objects of a namespace as long as the cache may not
// show it. Without it an object that the cache does not show would be created twice. The
// zero value is empty.
type Overlay[T client.Object] struct {
	trust   Trust
	written map[string]T
	deleted map[types.UID]bool
}

// Wrote notes an object as it was created or updated.
func (o *Overlay[T]) Wrote(object T, now time.Time) {
	if o.written == nil {
		o.written = map[string]T{}
	}
	o.trust.Renew(now)
	o.written[object.GetName()] = object
}

// Deleted notes an object that was deleted.
func (o *Overlay[T]) Deleted(object T, now time.Time) {
	if o.deleted == nil {
		o.deleted = map[types.UID]bool{}
	}
	o.trust.Renew(now)
	o.deleted[object.GetUID()] = true
	delete(o.written, object.GetName())
}

// Forget drops what was known of an object, because a write to it failed.
func (o *Overlay[T]) Forget(object T) { delete(o.written, object.GetName()) }

// Current are the objects as they are by now, in the order of their names, by those that
// the cache shows.
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

// Pending reports whether the cache does not show all that was written.
func (o *Overlay[T]) Pending() bool { return len(o.written)+len(o.deleted) > 0 }

// Left is how long what the cache does not show still counts, zero if there is no such
// thing. No event tells that the cache will never show it, as when somebody deletes an
// object that has just been made.
func (o *Overlay[T]) Left(now time.Time) time.Duration {
	if !o.Pending() {
		return 0
	}
	return o.trust.Left(now)
}

// Notes keep what a controller remembers of each thing that it syncs. The controller syncs a thing once at a time, so a note needs
// no lock of its own. The zero value is empty.
type Notes[K comparable, V any] struct {
	mu sync.Mutex
	of map[K]*V
}

// Of returns the note of a thing, which is made if there is none.
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

// Get returns the note of a thing, nil if there is none.
func (n *Notes[K, V]) Get(key K) *V {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.of[key]
}

// Has reports whether there is a note of a thing.
func (n *Notes[K, V]) Has(key K) bool { return n.Get(key) != nil }

// Forget drops the note of a thing.
func (n *Notes[K, V]) Forget(key K) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.of, key)
}

// All are the notes that there are.
func (n *Notes[K, V]) All() map[K]*V {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.of)
}

// Keys are the things with a note, in no order.
func (n *Notes[K, V]) Keys() []K { return slices.Collect(maps.Keys(n.All())) }
