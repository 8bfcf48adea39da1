package locator

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/controller/shell"
)

// written has what was written of PodLocators as long as the cache does not show it. Without it
// a pod and its node that change one after the other would cost a write that fails.
type written struct {
	mu    sync.Mutex
	notes map[types.NamespacedName]note
}

type note struct {
	uid     types.UID
	version string
	trust   shell.Trust
}

// wrote notes a PodLocator as it was created or updated.
func (w *written) wrote(locator *v1alpha1.PodLocator, now time.Time) {
	n := note{uid: locator.UID, version: locator.ResourceVersion}
	n.trust.Renew(now)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes[client.ObjectKeyFromObject(locator)] = n
}

// gone notes that the cache has seen a PodLocator deleted.
func (w *written) gone(locator client.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := client.ObjectKeyFromObject(locator)
	if n, found := w.notes[key]; found && n.uid == locator.GetUID() {
		delete(w.notes, key)
	}
}

// pending reports whether the cache, which shows a PodLocator or none, is behind a write.
func (w *written) pending(key types.NamespacedName, cached *v1alpha1.PodLocator, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, found := w.notes[key]
	if !found {
		return false
	}
	if n.trust.Left(now) > 0 && (cached == nil || shell.Behind(cached, n.version)) {
		return true
	}
	delete(w.notes, key)
	return false
}
