package console

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/inspect"
)

// watcher watches a cluster and keeps the newest snapshot.
type watcher struct {
	options   Options
	listeners *listeners
	now       func() time.Time
	kinds     []kind
	newest    atomic.Pointer[snapshot]

	mu     sync.Mutex
	stores map[string]cache.Store // by kind
	synced map[string]func() bool
	faults map[string]map[string]error // by kind and verb
	change change
	woken  chan struct{} // has room for one
	// offlineSince is set while the cluster does not answer.
	offlineSince time.Time
}

// change collects the differences to the newest snapshot.
type change struct {
	any         bool
	everything  bool // every Service
	services    map[types.NamespacedName]bool
	namespaces  map[string]bool // all Services in these
	nodes       bool
	disruption  bool
	isReachable bool // or other facts about unknown kinds
}

func newWatcher(o Options, l *listeners, now func() time.Time) *watcher {
	w := &watcher{
		options: o, listeners: l, now: now, kinds: kinds(o), stores: map[string]cache.Store{}, synced: map[string]func() bool{},
		faults: map[string]map[string]error{}, woken: make(chan struct{}, 1),
	}
	w.newest.Store(emptySnapshot(o, now()))
	return w
}

// The least time between refreshes. Refreshes also take at most one part in restOf of the time: with
// thousands of Services one takes seconds when nodes change.
const (
	changesApart = 200 * time.Millisecond
	restOf       = 4
)

func (w *watcher) run(ctx context.Context) {
	// Pages show errors; the library would also write them to standard error.
	ctx = klog.NewContext(ctx, logr.Discard())
	var running sync.WaitGroup
	defer running.Wait()
	for i := range w.kinds {
		informer := w.informer(&w.kinds[i])
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	// Poll whether kinds are synced: a kind without objects has no event.
	look := time.NewTicker(changesApart)
	defer look.Stop()
	waiting := len(w.kinds)
	pause := time.NewTimer(changesApart)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			if still := len(w.unread()); still != waiting {
				waiting = still
				w.wake(func(c *change) { c.isReachable = true })
			}
			continue
		case <-w.woken:
		}
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		began := time.Now()
		w.refresh()
		pause.Reset(max(changesApart, restOf*time.Since(began)))
	}
}

// refresh makes a new snapshot and notifies browsers.
func (w *watcher) refresh() {
	w.mu.Lock()
	c := w.change
	w.change = change{}
	w.mu.Unlock()
	if !c.any {
		return
	}
	next, changed := w.newest.Load().next(w, c)
	w.newest.Store(next)
	w.listeners.publish(changed...)
}

// wake notes a change.
func (w *watcher) wake(note func(*change)) {
	w.mu.Lock()
	w.change.any = true
	note(&w.change)
	w.mu.Unlock()
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

func (w *watcher) informer(k *kind) cache.Controller {
	reading := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := k.list(ctx, o)
			w.outcome(k, "list", err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			changes, err := k.watch(ctx, o)
			w.outcome(k, "watch", err)
			return changes, err
		},
	}
	quiet := logr.Discard()
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		Logger: &quiet, ListerWatcher: cache.ToListWatcherWithWatchListSemantics(reading, k.client), ObjectType: k.object, Transform: k.slim,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { w.changed(k, nil, object) },
			UpdateFunc: func(old, object any) { w.changed(k, old, object) },
			DeleteFunc: func(object any) {
				if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
					object = last.Obj
				}
				w.changed(k, nil, object)
			},
		},
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stores[k.name], w.synced[k.name] = store, informer.HasSynced
	return informer
}

// outcome notes whether a kind can be read.
func (w *watcher) outcome(k *kind, verb string, err error) {
	if errors.Is(err, context.Canceled) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsInvalid(err) {
		return // the library tries another way, or stops
	}
	w.mu.Lock()
	before := w.faults[k.name][verb]
	same := (err == nil) == (before == nil) && (err == nil || err.Error() == before.Error())
	if w.faults[k.name] == nil {
		w.faults[k.name] = map[string]error{}
	}
	w.faults[k.name][verb] = err
	if verb == "watch" && err == nil {
		// Where the cluster supports it, a watch begins with the list.
		w.faults[k.name]["list"] = nil
	}
	offline := false
	for _, verbs := range w.faults {
		for _, err := range verbs {
			offline = offline || fault{err: err}.isOffline()
		}
	}
	switch {
	case !offline:
		w.offlineSince = time.Time{}
	case w.offlineSince.IsZero():
		w.offlineSince = w.now()
	}
	w.mu.Unlock()
	if !same {
		w.wake(func(c *change) { c.isReachable = true })
	}
}

// changed notes what depends on an object. Without an old object it is new or deleted.
func (w *watcher) changed(k *kind, old, object any) {
	if old != nil && isSame(old, object) {
		return
	}
	m, ok := object.(metav1.Object)
	if !ok {
		return
	}
	service := func(name string) {
		w.wake(func(c *change) { c.addService(types.NamespacedName{Namespace: m.GetNamespace(), Name: name}) })
	}
	switch k.name {
	case kindServices:
		service(m.GetName())
	case inspect.KindSlices, inspect.KindGroups:
		label := discoveryv1.LabelServiceName
		if k.name == inspect.KindGroups {
			label = v1alpha1.LabelService
		}
		service(m.GetLabels()[label])
		if before, ok := old.(metav1.Object); ok && before.GetLabels()[label] != m.GetLabels()[label] {
			service(before.GetLabels()[label])
		}
	case kindPolicies:
		w.wake(func(c *change) { c.addNamespace(m.GetNamespace()) })
	case kindNamespaces:
		w.wake(func(c *change) { c.addNamespace(m.GetName()) })
	case inspect.KindNodes, inspect.KindShifts: // the page of nodes shows both
		w.wake(func(c *change) { c.everything, c.nodes = true, true })
	case inspect.KindBudgets, kindRollouts:
		w.wake(func(c *change) { c.disruption = true })
	default:
		w.wake(func(c *change) { c.everything = true })
	}
}

func (c *change) addService(name types.NamespacedName) {
	if c.services == nil {
		c.services = map[types.NamespacedName]bool{}
	}
	c.services[name] = true
}

func (c *change) addNamespace(name string) {
	if c.namespaces == nil {
		c.namespaces = map[string]bool{}
	}
	c.namespaces[name] = true
}

// hasObjects reports whether an object has changed.
func (c *change) hasObjects() bool {
	return c.everything || c.nodes || c.disruption || len(c.services)+len(c.namespaces) > 0
}

func (c *change) has(name types.NamespacedName) bool {
	return c.everything || c.services[name] || c.namespaces[name.Namespace]
}

// isSame reports whether the used fields of an object are equal. Other fields change often.
func isSame(old, object any) bool {
	switch before := old.(type) {
	case *corev1.Node:
		now, ok := object.(*corev1.Node)
		return ok && before.DeletionTimestamp.Equal(now.DeletionTimestamp) && equality.Semantic.DeepEqual(before.Labels, now.Labels) &&
			equality.Semantic.DeepEqual(before.Spec, now.Spec) && equality.Semantic.DeepEqual(before.Status, now.Status)
	case *corev1.Namespace:
		now, ok := object.(*corev1.Namespace)
		return ok && equality.Semantic.DeepEqual(before.Labels, now.Labels)
	}
	before, ok := old.(metav1.Object)
	now, too := object.(metav1.Object)
	return ok && too && before.GetResourceVersion() == now.GetResourceVersion() && before.GetUID() == now.GetUID()
}

// unread returns the kinds that are neither read nor refused yet.
func (w *watcher) unread() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var names []string
	for i := range w.kinds {
		if name := w.kinds[i].name; !w.isRead(name) && !isRefused(w.faults[name]) {
			names = append(names, name)
		}
	}
	return names
}

// isRead reports whether a kind was read at least once.
func (w *watcher) isRead(kind string) bool {
	synced := w.synced[kind]
	return synced != nil && synced()
}

// isRefused reports whether the cluster has refused to list a kind.
func isRefused(faults map[string]error) bool {
	for _, err := range faults {
		if err != nil && !(fault{err: err}).isOffline() {
			return true
		}
	}
	return false
}

// reachability says what cannot be read.
type reachability struct {
	waiting      []string // kinds that were not read yet
	unread       []string // kinds that cannot be read
	notKnown     []string
	offlineSince time.Time
}

func (w *watcher) reachability() reachability {
	r := reachability{waiting: w.unread()}
	w.mu.Lock()
	defer w.mu.Unlock()
	r.offlineSince = w.offlineSince
	offline := ""
	for i := range w.kinds {
		k := &w.kinds[i]
		isRead := w.isRead(k.name)
		for _, verb := range []string{"list", "watch"} {
			f := fault{verb, w.faults[k.name][verb]}
			if f.err == nil {
				continue
			}
			if f.isOffline() {
				offline = cmp.Or(offline, f.reason())
				continue
			}
			if !isRead {
				f.verb = "list"
				r.unread = append(r.unread, k.name)
			}
			if k.without != "" {
				r.notKnown = append(r.notKnown, k.missing(f, w.options.Namespace, isRead))
			}
			break
		}
	}
	if offline != "" {
		r.notKnown = append(r.notKnown, "the cluster does not answer: "+offline)
	}
	return r
}
