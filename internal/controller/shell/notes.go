package shell

import (
	"maps"
	"slices"
	"sync"
)

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

// Has reports whether there is a note of a thing.
func (n *Notes[K, V]) Has(key K) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.of[key] != nil
}

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
