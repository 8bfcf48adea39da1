package proxy

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/view"
)

// api is what is watched, of which each must be asked for once only for each watch.
type api interface {
	services() cache.ListerWatcher
	slices() cache.ListerWatcher
	node(name string) cache.ListerWatcher
	serviceRanges() cache.ListerWatcher
	// nodeAddresses is the object that vicinity-controller has in its namespace.
	nodeAddresses(namespace string) cache.ListerWatcher
	// groups are those that a label selector selects.
	groups(selector string) cache.ListerWatcher
}

// watches fill the catalogue.
type watches struct {
	api       api
	catalogue *catalogue
	trimmer   *trimmer
	log       logr.Logger
	nodeName  string
	// namespace is that of Vicinity, empty if it is not known.
	namespace string
	// withSlices says to watch EndpointSlices, and to do without groups where the API does
	// not have them.
	withSlices bool
	// absentAfter is how long the API must say that it does not have something, or does not
	// let the proxy read it.
	absentAfter time.Duration
	// nodeChanged is called with the own node, nil if it is gone.
	nodeChanged func(*corev1.Node)

	mu sync.Mutex
	// current is the watch that the groups in the catalogue come from, and next the one
	// that is to take its place when it has them all.
	current, next *groupWatch
	ctx           context.Context
	running       sync.WaitGroup
	// missing are the things that are not known yet.
	missing map[string]bool
	ready   chan struct{} // closed when nothing is missing
}

// groupWatch is a watch of the groups that nodes of a zone see.
type groupWatch struct {
	zone string
	stop context.CancelFunc
}

func newWatches(a api, c *catalogue, nodeName string, log logr.Logger) *watches {
	return &watches{
		api: a, catalogue: c, trimmer: &trimmer{}, nodeName: nodeName, log: log, ready: make(chan struct{}),
		absentAfter: absentAfter, nodeChanged: func(*corev1.Node) {},
	}
}

// run watches until the context ends.
func (w *watches) run(ctx context.Context) {
	c := w.catalogue
	w.mu.Lock()
	w.ctx = ctx
	w.missing = map[string]bool{resourceServices: true, resourceNodes: true, resourceGroups: true}
	if w.withSlices {
		w.missing[resourceSlices] = true
	}
	w.missing[resourceRanges] = true
	if w.namespace != "" {
		w.missing[resourceConfigMaps] = true
	}
	w.mu.Unlock()

	w.reflect(ctx, watched{resourceServices, w.api.services(), &corev1.Service{}, &store[*corev1.Service]{
		trim:   w.trimmer.service,
		set:    func(service *corev1.Service) { c.fill(func() { c.setService(service) }) },
		remove: func(service *corev1.Service) { c.fill(func() { c.removeService(keyOf(service)) }) },
		replace: func(list []*corev1.Service, version string) {
			c.fill(func() { c.replaceServices(list, version) })
			w.has(resourceServices)
		},
	}})
	w.reflect(ctx, watched{resourceNodes, w.api.node(w.nodeName), &corev1.Node{}, &store[*corev1.Node]{
		trim:   w.trimmer.node,
		set:    w.setNode,
		remove: func(*corev1.Node) { w.setNode(nil) },
		replace: func(list []*corev1.Node, _ string) {
			if len(list) == 0 {
				w.log.Info("The API does not have this node", "node", w.nodeName)
				w.setNode(nil)
				return
			}
			w.setNode(list[0])
		},
	}})
	if w.withSlices {
		w.reflect(ctx, watched{resourceSlices, w.api.slices(), &discoveryv1.EndpointSlice{}, &store[*discoveryv1.EndpointSlice]{
			trim:   w.trimmer.slice,
			set:    func(slice *discoveryv1.EndpointSlice) { c.fill(func() { c.setSlice(slice) }) },
			remove: func(slice *discoveryv1.EndpointSlice) { c.fill(func() { c.removeSlice(keyOf(slice)) }) },
			replace: func(list []*discoveryv1.EndpointSlice, version string) {
				c.fill(func() { c.replaceSlices(list, version) })
				w.has(resourceSlices)
			},
		}})
	}
	w.watchAddresses(ctx)
	<-ctx.Done()
	w.mu.Lock()
	w.current, w.next = nil, nil
	w.mu.Unlock()
	w.running.Wait()
}

// has notes that something is known.
func (w *watches) has(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hasLocked(what)
}

func (w *watches) hasLocked(what string) {
	if w.missing[what] {
		delete(w.missing, what)
		if len(w.missing) == 0 {
			close(w.ready)
		}
	}
}

// areReady reports whether nothing is missing.
func (w *watches) areReady() bool {
	select {
	case <-w.ready:
		return true
	default:
		return false
	}
}

// setNode notes what the own node is, and sees to it that the groups are those of its zone.
func (w *watches) setNode(node *corev1.Node) {
	w.nodeChanged(node)
	if node != nil {
		w.follow(node.Labels[corev1.LabelTopologyZone])
	}
	w.catalogue.fill(func() { w.catalogue.setNode(node) })
	if node != nil {
		w.has(resourceNodes)
	}
}

// follow watches the groups of a zone. Those of the zone before stay, and are watched,
// until all are known that take their place.
func (w *watches) follow(zone string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil {
		return
	}
	if w.next != nil {
		if w.next.zone == zone {
			return
		}
		w.next.stop()
		w.next = nil
	}
	if w.current != nil && w.current.zone == zone {
		return
	}
	ctx, stop := context.WithCancel(w.ctx)
	started := &groupWatch{zone: zone, stop: stop}
	w.next = started
	w.log.Info("Groups are watched", "zone", zone)
	source := w.api.groups(view.GroupSelector(zone))
	if w.withSlices {
		source = &optional{
			ListerWatcher: source, lacks: apierrors.IsNotFound, after: w.absentAfter, absent: func(error) { w.groupsAbsent(started) },
		}
	}
	w.reflect(ctx, watched{resourceGroups, source, &v1alpha1.EndpointGroup{}, w.groupStore(started)})
}

// groupStore is where the groups of a watch go, as long as it counts.
func (w *watches) groupStore(of *groupWatch) cache.ReflectorStore {
	c := w.catalogue
	counts := func(do func()) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.current == of {
			c.fill(do)
		}
	}
	return &store[*v1alpha1.EndpointGroup]{
		trim:   w.trimmer.group,
		set:    func(group *v1alpha1.EndpointGroup) { counts(func() { c.setGroup(group) }) },
		remove: func(group *v1alpha1.EndpointGroup) { counts(func() { c.removeGroup(group) }) },
		replace: func(list []*v1alpha1.EndpointGroup, version string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.listed(of, list, version)
		},
	}
}

// listed takes the list of a watch of groups, which thereby counts from now on.
func (w *watches) listed(of *groupWatch, list []*v1alpha1.EndpointGroup, version string) {
	switch of {
	case w.next:
		if w.current != nil {
			w.current.stop()
		}
		w.current, w.next = of, nil
	case w.current:
	default:
		return
	}
	w.catalogue.fill(func() { w.catalogue.replaceGroups(list, version, of.zone) })
	w.hasLocked(resourceGroups)
}

// groupsAbsent notes that the API does not have groups, so that there are none.
func (w *watches) groupsAbsent(of *groupWatch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current == nil {
		w.log.Info("The API does not have EndpointGroups: all Services are served by their EndpointSlices")
		w.listed(of, nil, "")
	}
}

// reflect keeps a store as the API is, until the context ends. While the API is away it
// stays as it was.
func (w *watches) reflect(ctx context.Context, of watched) {
	log := w.log.WithName(of.resource)
	reflector := cache.NewReflectorWithOptions(of.source, of.example, of.store, cache.ReflectorOptions{Name: of.resource, Logger: &log})
	w.running.Go(func() { reflector.RunWithContext(ctx) })
}

// watched is a kind of objects with where they come from and where they go.
type watched struct {
	resource string
	source   cache.ListerWatcher
	example  runtime.Object
	store    cache.ReflectorStore
}

// optional is a source that the API may not have.
type optional struct {
	cache.ListerWatcher
	// lacks reports whether an error says that there is no such source.
	lacks func(error) bool
	// absent is called with that error, once, when the API has said so for as long as after.
	after  time.Duration
	absent func(error)
	// again is how long to wait from then on before the API is asked, twice as long each time
	// up to mostAgain. Zero leaves that to the client library.
	again, mostAgain time.Duration

	since time.Time
	told  bool
	wait  time.Duration
}

// absentAfter is long beside what an API server needs to start.
const absentAfter = 5 * time.Second

// IsWatchListSemanticsUnSupported is what the client library asks about.
func (o *optional) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(o.ListerWatcher)
}

// ListWithContext lists objects, and tells if the API does not have their kind.
func (o *optional) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list, err := cache.ToListerWithContext(o.ListerWatcher).ListWithContext(ctx, options)
	if err == nil || !o.lacks(err) {
		o.since, o.told, o.wait = time.Time{}, false, 0
		return list, err
	}
	if o.since.IsZero() {
		o.since = time.Now()
	}
	if time.Since(o.since) < o.after {
		return list, err
	}
	if !o.told {
		o.told = true
		o.absent(err)
	}
	o.wait = min(max(o.again, 2*o.wait), o.mostAgain)
	select {
	case <-ctx.Done():
	case <-time.After(o.wait):
	}
	return list, err
}

// WatchWithContext watches objects.
func (o *optional) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return cache.ToWatcherWithContext(o.ListerWatcher).WatchWithContext(ctx, options)
}
