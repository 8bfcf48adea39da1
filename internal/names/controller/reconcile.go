package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/shell"
)

// Reconcile creates, updates or deletes the PodLocator of a pod.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	defer r.options.Syncs.Begin("PodLocator " + request.String())()
	after, err := r.sync(ctx, request.NamespacedName)
	result, outcome, err := shell.Finish(after, err)
	r.metrics.synced(outcome)
	return result, err
}

// sync returns the time until the next sync, zero for none.
func (r *reconciler) sync(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	locator, err := read(ctx, r.client, key, &v1alpha1.PodLocator{})
	if err != nil {
		return 0, fmt.Errorf("reading PodLocator %s: %w", key, err)
	}
	if r.written.pending(key, locator, r.clock.Now()) {
		return shell.BehindWait, nil
	}
	if locator != nil && locator.DeletionTimestamp != nil {
		return 0, nil // its deletion is an event
	}
	pod, err := read(ctx, r.client, key, &corev1.Pod{})
	if err != nil {
		return 0, fmt.Errorf("reading Pod %s: %w", key, err)
	}
	var node *corev1.Node
	if pod != nil && pod.Spec.NodeName != "" {
		if node, err = read(ctx, r.client, types.NamespacedName{Name: pod.Spec.NodeName}, &corev1.Node{}); err != nil {
			return 0, fmt.Errorf("reading Node %s: %w", pod.Spec.NodeName, err)
		}
	}
	keys, err := r.labels.current(ctx)
	if err != nil {
		return 0, fmt.Errorf("reading the topology keys of Services and policies: %w", err)
	}
	err = r.write(ctx, pod, locator, wanted(pod, node, keys, r.options.Mode), node)
	if err == nil {
		r.arrivals.Delete(key)
	}
	return 0, err
}

// read returns an object of the cache, nil if it does not exist.
func read[T client.Object](ctx context.Context, c client.Reader, key types.NamespacedName, object T) (T, error) {
	err := c.Get(ctx, key, object)
	if apierrors.IsNotFound(err) {
		var none T
		return none, nil
	}
	return object, err
}

// write turns the existing PodLocator into the wanted one. Either may be nil.
func (r *reconciler) write(ctx context.Context, pod *corev1.Pod, locator, want *v1alpha1.PodLocator, node *corev1.Node) error {
	switch {
	case locator == nil && want == nil:
		return nil
	case locator == nil && node == nil && r.options.Mode == Auto:
		// Without its node, the PodLocator would locate nothing. Later the node's ranges may suffice. A deleted node takes its
		// pods along.
		return nil
	case locator == nil:
		return r.create(ctx, want)
	case want == nil && !isManaged(locator):
		return nil // a foreign PodLocator
	case want == nil:
		return r.delete(ctx, locator)
	case !isOwnedBy(locator, pod):
		// It belongs to an earlier pod of the name, or is foreign.
		if !isManaged(locator) {
			r.recorder.Eventf(pod, nil, corev1.EventTypeWarning, "PodLocatorReplaced", "Locate",
				"PodLocator %s was not made for this pod and is replaced; only vicinity-controller may write PodLocators of pods", locator.Name)
		}
		if err := r.delete(ctx, locator); err != nil {
			return err
		}
		return r.create(ctx, want)
	case isUpToDate(locator, want, node):
		return nil
	}
	return r.update(ctx, updated(locator, want))
}

func (r *reconciler) create(ctx context.Context, locator *v1alpha1.PodLocator) error {
	err := r.count(ctx, operationCreate, func() error {
		if err := r.client.Create(ctx, locator); !apierrors.IsAlreadyExists(err) {
			return err
		}
		return shell.ErrChanged
	})
	if err != nil {
		return fmt.Errorf("creating PodLocator %s: %w", client.ObjectKeyFromObject(locator), err)
	}
	now := r.clock.Now()
	r.written.wrote(locator, now)
	if since, found := r.arrivals.LoadAndDelete(client.ObjectKeyFromObject(locator)); found {
		r.metrics.delay.Observe(now.Sub(since.(time.Time)).Seconds())
	}
	log.FromContext(ctx).V(1).Info("located", "ips", locator.IPs, "node", locator.NodeName)
	return nil
}

func (r *reconciler) update(ctx context.Context, locator *v1alpha1.PodLocator) error {
	err := r.count(ctx, operationUpdate, func() error { return shell.Changed(r.client.Update(ctx, locator)) })
	if err != nil {
		return fmt.Errorf("updating PodLocator %s: %w", client.ObjectKeyFromObject(locator), err)
	}
	r.written.wrote(locator, r.clock.Now())
	log.FromContext(ctx).V(1).Info("located anew", "ips", locator.IPs, "node", locator.NodeName)
	return nil
}

func (r *reconciler) delete(ctx context.Context, locator *v1alpha1.PodLocator) error {
	err := r.count(ctx, operationDelete, func() error {
		uid := locator.UID
		// The cache's object is shared, so the client gets a copy.
		return shell.Changed(client.IgnoreNotFound(r.client.Delete(ctx, locator.DeepCopy(), client.Preconditions{UID: &uid})))
	})
	if err != nil {
		return fmt.Errorf("deleting PodLocator %s: %w", client.ObjectKeyFromObject(locator), err)
	}
	return nil
}

// count waits for the rate limit, writes, and counts the write by its result.
func (r *reconciler) count(ctx context.Context, operation string, write func() error) error {
	if err := r.limiter.Wait(ctx); err != nil {
		return err
	}
	err := write()
	r.metrics.wrote(operation, err)
	return err
}

// The operations of writes.
const (
	operationCreate = "create"
	operationUpdate = "update"
	operationDelete = "delete"
)

type metrics struct {
	syncs, writes *prometheus.CounterVec
	delay         prometheus.Histogram
}

// newMetrics returns the metrics with all their series.
func newMetrics() *metrics {
	m := &metrics{
		syncs: shell.NewCounter("vicinity_locator_syncs_total", "Syncs of PodLocators, by result.", "result", shell.Outcomes()...),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vicinity_locator_writes_total",
			Help: "Writes of PodLocators, by operation and result.",
		}, []string{"operation", "result"}),
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "vicinity_locator_delay_seconds",
			Help:    "Time from a pod's first addresses, as the controller saw them, to its PodLocator.",
			Buckets: prometheus.ExponentialBucketsRange(0.001, 100, 16),
		}),
	}
	for _, outcome := range shell.Outcomes() {
		for _, operation := range []string{operationCreate, operationUpdate, operationDelete} {
			m.writes.WithLabelValues(operation, string(outcome))
		}
	}
	return m
}

func (m *metrics) synced(outcome shell.Outcome) { m.syncs.WithLabelValues(string(outcome)).Inc() }

func (m *metrics) wrote(operation string, err error) {
	m.writes.WithLabelValues(operation, string(shell.OutcomeOf(err))).Inc()
}

// written has the last writes of PodLocators until the cache shows them. Without it, a change of a pod soon after a change of its
// node would cost a failed write.
type written struct {
	mu    sync.Mutex
	notes map[types.NamespacedName]note
}

type note struct {
	uid     types.UID
	version string
	trust   shell.Trust
}

// wrote records a created or updated PodLocator.
func (w *written) wrote(locator *v1alpha1.PodLocator, now time.Time) {
	n := note{uid: locator.UID, version: locator.ResourceVersion}
	n.trust.Renew(now)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes[client.ObjectKeyFromObject(locator)] = n
}

// deleted records that the cache has seen the deletion of a PodLocator.
func (w *written) deleted(locator client.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := client.ObjectKeyFromObject(locator)
	if n, found := w.notes[key]; found && n.uid == locator.GetUID() {
		delete(w.notes, key)
	}
}

// pending reports whether the cache is behind a write. cached may be nil.
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
