// Package evictions evicts the pods of a lab, and finds in the history of its API whether an eviction
// was admitted beyond a budget.
//
// It knows TopologyDisruptionBudgets only from the reference. It shares no code with Vicinity's
// decisions, so that it does not repeat their mistakes.
package evictions

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/test/kube"
)

// History records every version of the pods and budgets of a namespace from watches.
type History struct {
	namespace string
	pods      kubernetes.Interface
	budgets   dynamic.ResourceInterface
	running   sync.WaitGroup
	stop      context.CancelFunc

	mu      sync.Mutex
	events  []event
	current map[types.UID]pod // existing pods
	known   [2]map[types.UID]uint64
}

// kind is the kind of an object.
type kind int

const (
	pods kind = iota
	budgets
)

// event is a version of an object, or a result of a list: the earlier watch had ended, and the changes
// in between are unknown.
type event struct {
	version uint64
	seen    time.Time
	of      kind
	uid     types.UID
	pod     pod
	budget  budget
	gone    bool
	// list begins a list: objects that are not in it are gone. The objects that follow are listed.
	list, listed bool
}

// pod has the fields of a Pod that the check needs.
type pod struct {
	uid                          types.UID
	name, node                   string
	labels                       map[string]string
	ready, terminating, finished bool
	// changed is when deletion was requested, or since when Ready has not been True, as its writer
	// says.
	changed time.Time
	// evicted means that the API has marked the pod before it deletes it.
	evicted bool
}

// fellAt is when a healthy pod went down; if no object says that, it is when it was seen.
func (e event) fellAt() time.Time {
	if e.pod.changed.IsZero() {
		return e.seen
	}
	return e.pod.changed
}

func (p pod) healthy() bool { return p.ready && !p.terminating && !p.finished }

// Follow starts the recording.
func Follow(ctx context.Context, config *rest.Config, namespace string) (*History, error) {
	untyped, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	h := &History{
		namespace: namespace, pods: typed, stop: stop, current: map[types.UID]pod{},
		budgets: untyped.Resource(v1alpha1.GroupVersion.WithResource("topologydisruptionbudgets")).Namespace(namespace),
		known:   [2]map[types.UID]uint64{{}, {}},
	}
	for _, of := range []kind{pods, budgets} {
		version, err := h.list(ctx, of)
		if err != nil {
			h.Stop()
			return nil, err
		}
		h.running.Go(func() { h.follow(ctx, of, version) })
	}
	return h, nil
}

// Stop ends the recording.
func (h *History) Stop() {
	h.stop()
	h.running.Wait()
}

func (h *History) find(ctx context.Context, of kind, options metav1.ListOptions) (runtime.Object, error) {
	if of == pods {
		return h.pods.CoreV1().Pods(h.namespace).List(ctx, options)
	}
	return h.budgets.List(ctx, options)
}

// list records all objects of a kind, and returns the version from which to watch.
func (h *History) list(ctx context.Context, of kind) (version string, err error) {
	found, err := h.find(ctx, of, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	seen := time.Now()
	list, err := meta.ListAccessor(found)
	if err != nil {
		return "", err
	}
	at, err := strconv.ParseUint(list.GetResourceVersion(), 10, 64)
	if err != nil {
		return "", err
	}
	var events []event
	err = meta.EachListItem(found, func(object runtime.Object) error {
		e, err := read(of, object)
		e.version, e.seen, e.listed = at, seen, true
		events = append(events, e)
		return err
	})
	if err != nil {
		return "", err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.note(event{version: at, seen: seen, of: of, list: true})
	for _, e := range events {
		h.note(e)
	}
	return list.GetResourceVersion(), nil
}

// note appends an event. The caller holds the lock.
func (h *History) note(e event) {
	h.events = append(h.events, e)
	switch {
	case e.list:
		clear(h.known[e.of])
		if e.of == pods {
			clear(h.current)
		}
		return
	case e.gone:
		delete(h.known[e.of], e.uid)
		delete(h.current, e.uid)
		return
	case e.of == pods:
		h.current[e.uid] = e.pod
	}
	h.known[e.of][e.uid] = e.version
}

// retryPause is the pause while an API server does not answer.
const retryPause = 100 * time.Millisecond

// follow watches a kind from a version on. It lists again if the API server has forgotten the version.
func (h *History) follow(ctx context.Context, of kind, version string) {
	for ctx.Err() == nil {
		w, err := h.watch(ctx, of, version)
		expired := false
		if err == nil {
			version, expired = h.drain(of, version, w)
			w.Stop()
		}
		if expired || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			if listed, failed := h.list(ctx, of); failed == nil {
				version = listed
				continue
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryPause):
		}
	}
}

func (h *History) watch(ctx context.Context, of kind, version string) (watch.Interface, error) {
	options := metav1.ListOptions{ResourceVersion: version}
	if of == pods {
		return h.pods.CoreV1().Pods(h.namespace).Watch(ctx, options)
	}
	return h.budgets.Watch(ctx, options)
}

func (h *History) drain(of kind, version string, w watch.Interface) (last string, expired bool) {
	for got := range w.ResultChan() {
		if got.Type == watch.Error {
			err := apierrors.FromObject(got.Object)
			return version, apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
		}
		e, err := read(of, got.Object)
		if err != nil {
			return version, true
		}
		e.seen, e.gone = time.Now(), got.Type == watch.Deleted
		h.mu.Lock()
		h.note(e)
		h.mu.Unlock()
		version = strconv.FormatUint(e.version, 10)
	}
	return version, false
}

func read(of kind, object runtime.Object) (event, error) {
	known, err := meta.Accessor(object)
	if err != nil {
		return event{}, err
	}
	e := event{of: of, uid: known.GetUID()}
	if e.version, err = strconv.ParseUint(known.GetResourceVersion(), 10, 64); err != nil {
		return event{}, err
	}
	if of == budgets {
		e.budget, err = readBudget(object)
		return e, err
	}
	p, ok := object.(*corev1.Pod)
	if !ok {
		return event{}, fmt.Errorf("a watch of pods delivered a %T", object)
	}
	e.pod = pod{
		uid: p.UID, name: p.Name, node: p.Spec.NodeName, labels: p.Labels,
		ready:       p.Status.Phase == corev1.PodRunning && kube.PodReady(p),
		terminating: p.DeletionTimestamp != nil,
		finished:    p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
		evicted:     slices.ContainsFunc(p.Status.Conditions, isEviction),
		changed:     changedAt(p),
	}
	return e, nil
}

func changedAt(p *corev1.Pod) time.Time {
	if p.DeletionTimestamp != nil {
		return p.DeletionTimestamp.Add(-time.Duration(ptr.Deref(p.DeletionGracePeriodSeconds, 0)) * time.Second)
	}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady && c.Status != corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// isEviction reports whether the API has marked a pod before it deletes it for an eviction.
func isEviction(c corev1.PodCondition) bool {
	return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == "EvictionByEvictionAPI"
}

// CaughtUp waits until the current state of the API is recorded. Nothing may change meanwhile.
func (h *History) CaughtUp(ctx context.Context) error {
	return kube.Wait(ctx, "the history of "+h.namespace+" to be known", func(ctx context.Context) (string, error) {
		for _, of := range []kind{pods, budgets} {
			found, err := h.find(ctx, of, metav1.ListOptions{})
			if err != nil {
				return "", err
			}
			if missing, err := h.behind(of, found); missing != "" || err != nil {
				return missing, err
			}
		}
		return "", nil
	})
}

func (h *History) behind(of kind, found runtime.Object) (missing string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	there := 0
	err = meta.EachListItem(found, func(object runtime.Object) error {
		e, err := read(of, object)
		if err != nil {
			return err
		}
		there++
		// A version from a list is that of the list.
		if h.known[of][e.uid] < e.version {
			missing = fmt.Sprintf("version %d of %s is not recorded", e.version, e.uid)
		}
		return nil
	})
	if missing == "" && there != len(h.known[of]) {
		missing = fmt.Sprintf("%d objects are recorded and %d exist", len(h.known[of]), there)
	}
	return missing, err
}

// Healthy counts the healthy pods with some labels, by node.
func (h *History) Healthy(labels map[string]string) map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	byNode := map[string]int{}
	for _, p := range h.current {
		if p.healthy() && matches(labels, p.labels) {
			byNode[p.node]++
		}
	}
	return byNode
}

// pick returns a healthy pod that is not among the given ones.
func (h *History) pick(except map[types.UID]bool) (pod, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for uid, p := range h.current { // in random order
		if p.healthy() && !except[uid] {
			return p, true
		}
	}
	return pod{}, false
}

func matches(selector, labels map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return true
}

// Writes is the number of writes of budgets.
func (h *History) Writes() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	writes := 0
	for _, e := range h.events {
		if e.of == budgets && !e.gone && !e.list && !e.listed {
			writes++
		}
	}
	return writes
}
