package reservation

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/internal/disruption/coverage"
	"vicinity.dev/vicinity/internal/kit/shell"
)

// nodeTrust is how long a live read of a node counts.
const nodeTrust = 5 * time.Second

// lostNodes reads live the nodes that have pods and that the cache lacks. A node that is newer than the cache has healthy pods, and only
// its labels tell their domain. A deleted node has no healthy pods: its pods are not protected.
type lostNodes struct {
	client client.Reader // live
	recent *expiring[string, *corev1.Node]
}

func newLostNodes(c client.Reader, now clock.Clock) *lostNodes {
	return &lostNodes{client: c, recent: newExpiring[string, *corev1.Node](now, nodeTrust)}
}

// of returns those of the named nodes that exist. It fails if one cannot be read.
func (l *lostNodes) of(ctx context.Context, names []string) (map[string]*corev1.Node, error) {
	var mu sync.Mutex
	found := map[string]*corev1.Node{}
	var reads errgroup.Group
	reads.SetLimit(mostReads)
	for _, name := range names {
		reads.Go(func() error {
			node, err := l.recent.getOrRead(name, func() (*corev1.Node, error) { return l.read(ctx, name) })
			if err != nil {
				return fmt.Errorf("node %s has pods of the budget, but vicinity-controller has not seen it yet: %w", name, err)
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

// read reads a node live. It returns nil if the node does not exist.
func (l *lostNodes) read(ctx context.Context, name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	if err := l.client.Get(ctx, types.NamespacedName{Name: name}, node); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return node, nil
}

// scaleTrust is how long a read of an owner's replicas counts.
//
// Built-in kinds come from the cache, which may be late as well. A late number judges an eviction as if it had come earlier: new pods of
// a scaled-up workload are not expected yet, and removed pods of a scale-down count as missing. It never makes a pod that is down
// count as healthy.
const scaleTrust = 5 * time.Second

// scales reads the replicas of owners of any kind by their subresource scale. It needs only the right to get that subresource.
type scales struct {
	client client.SubResourceClientConstructor
	recent *expiring[scaleKey, coverage.Workload]
}

// scaleKey has everything that a pod says of its owner, since the creator of the pod chooses it.
type scaleKey struct {
	namespace string
	coverage.Ref
}

func newScales(c client.SubResourceClientConstructor, now clock.Clock) *scales {
	return &scales{client: c, recent: newExpiring[scaleKey, coverage.Workload](now, scaleTrust)}
}

// of reads an owner with its replicas.
func (s *scales) of(ctx context.Context, namespace string, ref coverage.Ref) (coverage.Workload, error) {
	workload, err := s.recent.getOrRead(scaleKey{namespace, ref}, func() (coverage.Workload, error) { return s.read(ctx, namespace, ref) })
	if err != nil {
		return coverage.Workload{}, fmt.Errorf("reading the scale of %s: %w", ref.ID(), err)
	}
	return workload, nil
}

func (s *scales) read(ctx context.Context, namespace string, ref coverage.Ref) (coverage.Workload, error) {
	if len(content.IsPathSegmentName(ref.Name)) > 0 {
		return coverage.WithoutScale(ref), nil // no object can have such a name
	}
	owner := &unstructured.Unstructured{}
	owner.SetAPIVersion(ref.APIVersion)
	owner.SetKind(ref.Kind)
	owner.SetNamespace(namespace)
	owner.SetName(ref.Name)
	scale, err := shell.Scale(ctx, s.client, owner)
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err), apierrors.IsMethodNotSupported(err):
		// The owner is gone, or its kind has no such subresource.
		return coverage.WithoutScale(ref), nil
	case err != nil:
		return coverage.Workload{}, err
	case scale.UID != "" && scale.UID != ref.UID:
		return coverage.WithoutScale(ref), nil // another object has the name
	}
	return coverage.OfScale(ref, scale.Spec.Replicas), nil
}

// expiring keeps each value for a time.
type expiring[K comparable, V any] struct {
	clock clock.PassiveClock
	lasts time.Duration
	kept  *cache.Expiring
}

func newExpiring[K comparable, V any](now clock.Clock, lasts time.Duration) *expiring[K, V] {
	return &expiring[K, V]{clock: now, lasts: lasts, kept: cache.NewExpiringWithClock(now)}
}

func (e *expiring[K, V]) set(key K, value V) { e.kept.Set(key, value, e.lasts) }

func (e *expiring[K, V]) get(key K) (value V, found bool) {
	kept, found := e.kept.Get(key)
	if found {
		value = kept.(V)
	}
	return value, found
}

// getOrRead returns the kept value of a key, or reads a new one. The time of a new value starts before the read. Errors are not kept.
func (e *expiring[K, V]) getOrRead(key K, read func() (V, error)) (V, error) {
	if value, found := e.get(key); found {
		return value, nil
	}
	begin := e.clock.Now()
	value, err := read()
	if err == nil {
		e.kept.Set(key, value, e.lasts-e.clock.Since(begin))
	}
	return value, err
}
