package reservation

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// nodeTrust is how long a live read of a node counts.
const nodeTrust = 5 * time.Second

// lostNodes reads nodes live that have pods and that the cache lacks. A node that is newer than the cache has healthy
// pods, and only its labels tell their domain. A deleted node has none: its pods are not protected until they are
// deleted.
type lostNodes struct {
	client client.Reader // live
	recent *expiring[string, *corev1.Node]
}

func newLostNodes(c client.Reader, now clock.Clock) *lostNodes {
	return &lostNodes{client: c, recent: newExpiring[string, *corev1.Node](now, nodeTrust)}
}

// of has those of some nodes that exist. It fails unless each is known to exist or not.
func (l *lostNodes) of(ctx context.Context, names []string) (map[string]*corev1.Node, error) {
	var mu sync.Mutex
	found := map[string]*corev1.Node{}
	var reads errgroup.Group
	reads.SetLimit(mostReads)
	for _, name := range names {
		reads.Go(func() error {
			node, err := l.recent.getOrRead(name, func() (*corev1.Node, error) { return l.read(ctx, name) })
			if err != nil {
				return fmt.Errorf("node %s has pods of the budget, and is not known to vicinity-controller yet: %w", name, err)
			}
			if node != nil {
				mu.Lock()
				defer mu.Unlock()
				found[name] = node
			}
			return nil
		})
	}
	return found, reads.Wait()
}

// read reads a node live, nil if it does not exist.
func (l *lostNodes) read(ctx context.Context, name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	if err := l.client.Get(ctx, types.NamespacedName{Name: name}, node); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return node, nil
}
