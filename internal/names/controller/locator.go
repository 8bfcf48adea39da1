// Package controller writes PodLocators: for each pod that its address alone does not locate, an object of the pod's name with
// its addresses, its node, and labels of that node. The DNS server uses them to find near endpoints.
//
// Its writes depend only on pods, nodes and the labels to copy, so a restart writes nothing. It corrects PodLocators with its
// label, and deletes them with the pod, or when PodLocators are switched off. It does not touch other PodLocators, unless a pod
// needs one of that name.
package controller

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/podcache"
	"vicinity.dev/vicinity/internal/kit/shell"
)

// Mode selects the pods that get a PodLocator.
type Mode string

// The modes.
const (
	// Unset neither creates nor deletes PodLocators: another controller in the cluster may write them.
	Unset Mode = ""
	// Off deletes the PodLocators of an earlier controller.
	Off Mode = "off"
	// Auto is for pods with an address outside of their node's ranges.
	Auto Mode = "auto"
	// All is for all pods except those on the host network, which have the address of their node.
	All Mode = "all"
)

// Modes returns the allowed values of the flag.
func Modes() []Mode { return []Mode{Off, Auto, All} }

// Locates reports whether pods have PodLocators.
func (m Mode) Locates() bool { return m == Auto || m == All }

// Options configure the controller.
type Options struct {
	Mode    Mode
	Workers int // concurrent syncs
	// Rate and Burst bound the writes per second and at once, so that other parts of the program can write too.
	Rate  float32
	Burst int
	// Syncs, if set, tracks the running syncs.
	Syncs *shell.Syncs
}

func (o Options) limiter() flowcontrol.RateLimiter {
	return flowcontrol.NewTokenBucketRateLimiter(o.Rate, o.Burst)
}

// indexNode is the name of the cache's index of pods by node.
const indexNode = "node"

// CacheOptions adds PodLocators, and the pods that may need one, to a manager's cache. The cache must have Nodes with their labels
// and pod ranges, Services and policies. It may have more pods for others.
func CacheOptions(options *cache.Options) {
	shared := true
	podcache.Add(options, podcache.Addresses)
	options.ByObject[&v1alpha1.PodLocator{}] = cache.ByObject{UnsafeDisableDeepCopy: &shared}
}

// Synced returns a readiness check that fails until the cache has all pods and PodLocators.
func Synced(informers cache.Informers) func(*http.Request) error {
	return func(request *http.Request) error {
		for _, object := range []client.Object{&corev1.Pod{}, &v1alpha1.PodLocator{}} {
			informer, err := informers.GetInformer(request.Context(), object, cache.BlockUntilSynced(false))
			if err != nil {
				return fmt.Errorf("watching %T: %w", object, err)
			}
			if !informer.HasSynced() {
				return fmt.Errorf("%T: the cache is not synced yet", object)
			}
		}
		return nil
	}
}

// Add adds the controller to a manager. If the mode locates pods, the cache must have CacheOptions.
func Add(ctx context.Context, mgr manager.Manager, options Options) error {
	switch options.Mode {
	case Unset:
		return nil
	case Off:
		return mgr.Add(newRemoval(mgr, options))
	}
	if err := addIndex(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	recorder, err := shell.NewRecorder(ctx, mgr, "vicinity-controller")
	if err != nil {
		return err
	}
	r := newReconciler(mgr.GetClient(), recorder, clock.RealClock{}, options)
	if err := shell.Register(r.metrics.syncs, r.metrics.writes, r.metrics.delay); err != nil {
		return err
	}
	if err := r.add(mgr); err != nil {
		return fmt.Errorf("adding the controller of PodLocators: %w", err)
	}
	return nil
}

func addIndex(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &corev1.Pod{}, indexNode, nodeOf)
	if err != nil {
		return fmt.Errorf("indexing Pods: %w", err)
	}
	return nil
}

func nodeOf(object client.Object) []string {
	if pod, ok := object.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
		return []string{pod.Spec.NodeName}
	}
	return nil
}

// reconciler syncs the PodLocator of a pod.
type reconciler struct {
	client   client.Client
	recorder events.EventRecorder
	clock    clock.PassiveClock
	options  Options
	labels   *labelWatcher
	limiter  flowcontrol.RateLimiter
	written  written
	arrivals sync.Map // when pods without a PodLocator got their first addresses, by pod
	metrics  *metrics
}

func newReconciler(c client.Client, recorder events.EventRecorder, now clock.PassiveClock, options Options) *reconciler {
	return &reconciler{
		client: c, recorder: recorder, clock: now, options: options,
		labels:  newLabelWatcher(c),
		limiter: options.limiter(),
		written: written{notes: map[types.NamespacedName]note{}},
		metrics: newMetrics(),
	}
}

func (r *reconciler) add(mgr manager.Manager) error {
	warm, keys := true, r.labels.handler()
	return builder.ControllerManagedBy(mgr).
		Named("locator").
		Watches(&corev1.Pod{}, r.podHandler()).
		Watches(&v1alpha1.PodLocator{}, r.locatorHandler()).
		Watches(&corev1.Node{}, r.nodeHandler()).
		Watches(&corev1.Service{}, keys).
		Watches(&v1alpha1.RoutingPolicy{}, keys).
		Watches(&v1alpha1.ClusterRoutingPolicy{}, keys).
		WatchesRawSource(r.labels.source()).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.options.Workers, EnableWarmup: &warm}).
		Complete(r)
}
