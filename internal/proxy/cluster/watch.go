package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/watcher"
	"vicinity.dev/vicinity/internal/proxy/view"
)

// API has the watched resources, see Client. Each watch needs its own ListerWatcher.
type API interface {
	// Services watches all Services.
	Services() cache.ListerWatcher
	// Slices watches the EndpointSlices of Services with an address.
	Slices() cache.ListerWatcher
	// Node watches one node.
	Node(name string) cache.ListerWatcher
	// ServiceRanges watches the ranges of cluster IPs.
	ServiceRanges() cache.ListerWatcher
	// NodeAddresses watches the ConfigMap of vicinity-controller in its namespace.
	NodeAddresses(namespace string) cache.ListerWatcher
	// Groups watches the EndpointGroups that a selector matches.
	Groups(selector string) cache.ListerWatcher
}

// Scope limits the objects that are read.
type Scope struct {
	// Node is the name of the own node.
	Node string
	// Namespace is Vicinity's namespace, empty if unknown.
	Namespace string
	// Slices means that EndpointSlices are read, and that the API may lack EndpointGroups.
	Slices bool
}

// Watches fill the catalogue.
type Watches struct {
	api       API
	catalogue *Catalogue
	trimmer   *Trimmer
	log       logr.Logger
	scope     Scope
	// absentAfter is how long the API must refuse a resource before the proxy starts without it.
	absentAfter time.Duration
	// NodeChanged is called with the own node, nil if it is deleted.
	NodeChanged func(*corev1.Node)

	mu sync.Mutex
	// current fills the catalogue with groups. next replaces it after its first list.
	current, next *groupWatch
	ctx           context.Context
	running       sync.WaitGroup
	// missing has the resources that are not listed yet.
	missing map[string]bool
	ready   chan struct{} // closed when all resources are listed
}

// groupWatch is a watch of the groups for a zone.
type groupWatch struct {
	zone string
	stop context.CancelFunc
}

// NewWatches returns Watches that fill a catalogue when they run.
func NewWatches(a API, c *Catalogue, s Scope, log logr.Logger) *Watches {
	return &Watches{
		api: a, catalogue: c, trimmer: &Trimmer{}, scope: s, log: log, ready: make(chan struct{}),
		absentAfter: absentAfter, NodeChanged: func(*corev1.Node) {},
	}
}

// Run watches until the context ends.
func (w *Watches) Run(ctx context.Context) {
	c := w.catalogue
	w.mu.Lock()
	w.ctx = ctx
	w.missing = map[string]bool{ResourceServices: true, ResourceNodes: true, ResourceGroups: true}
	if w.scope.Slices {
		w.missing[ResourceSlices] = true
	}
	w.missing[ResourceRanges] = true
	if w.scope.Namespace != "" {
		w.missing[ResourceConfigMaps] = true
	}
	w.mu.Unlock()

	follow(ctx, w, ResourceServices, w.api.Services(), &watcher.Store[*corev1.Service]{
		Trim:   w.trimmer.Service,
		Set:    func(service *corev1.Service) { c.Fill(func() { c.SetService(service) }) },
		Remove: func(service *corev1.Service) { c.Fill(func() { c.RemoveService(KeyOf(service)) }) },
		Replace: func(list []*corev1.Service, version string) {
			c.Fill(func() { c.replaceServices(list, version) })
			w.markListed(ResourceServices)
		},
	})
	follow(ctx, w, ResourceNodes, w.api.Node(w.scope.Node), &watcher.Store[*corev1.Node]{
		Trim:   w.trimmer.Node,
		Set:    w.setNode,
		Remove: func(*corev1.Node) { w.setNode(nil) },
		Replace: func(list []*corev1.Node, _ string) {
			if len(list) == 0 {
				w.log.Info("The API server has no object for this node", "node", w.scope.Node)
				w.setNode(nil)
				return
			}
			w.setNode(list[0])
		},
	})
	if w.scope.Slices {
		follow(ctx, w, ResourceSlices, w.api.Slices(), &watcher.Store[*discoveryv1.EndpointSlice]{
			Trim:   w.trimmer.Slice,
			Set:    func(slice *discoveryv1.EndpointSlice) { c.Fill(func() { c.SetSlice(slice) }) },
			Remove: func(slice *discoveryv1.EndpointSlice) { c.Fill(func() { c.RemoveSlice(KeyOf(slice)) }) },
			Replace: func(list []*discoveryv1.EndpointSlice, version string) {
				c.Fill(func() { c.replaceSlices(list, version) })
				w.markListed(ResourceSlices)
			},
		})
	}
	w.watchAddresses(ctx)
	<-ctx.Done()
	w.mu.Lock()
	w.current, w.next = nil, nil
	w.mu.Unlock()
	w.running.Wait()
}

func (w *Watches) markListed(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.markListedLocked(what)
}

func (w *Watches) markListedLocked(what string) {
	if w.missing[what] {
		delete(w.missing, what)
		if len(w.missing) == 0 {
			close(w.ready)
		}
	}
}

// Ready is closed when all resources are listed.
func (w *Watches) Ready() <-chan struct{} { return w.ready }

// AreReady reports whether all resources are listed.
func (w *Watches) AreReady() bool {
	select {
	case <-w.ready:
		return true
	default:
		return false
	}
}

// setNode sets the own node, and watches the groups for its zone.
func (w *Watches) setNode(node *corev1.Node) {
	w.NodeChanged(node)
	if node != nil {
		w.watchGroups(node.Labels[corev1.LabelTopologyZone])
	}
	w.catalogue.Fill(func() { w.catalogue.SetNode(node) })
	if node != nil {
		w.markListed(ResourceNodes)
	}
}

// watchGroups watches the groups for a zone. The watch for the previous zone continues until the new groups are listed.
func (w *Watches) watchGroups(zone string) {
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
	w.log.Info("Watching EndpointGroups", "zone", zone)
	source := w.api.Groups(view.GroupSelector(zone))
	if w.scope.Slices {
		source = &watcher.Optional{
			ListerWatcher: source, Lacks: apierrors.IsNotFound, After: w.absentAfter, Absent: func(error) { w.groupsAbsent(started) },
		}
	}
	follow(ctx, w, ResourceGroups, source, w.groupStore(started))
}

// groupStore stores the groups of a watch while the watch is current.
func (w *Watches) groupStore(of *groupWatch) *watcher.Store[*v1alpha1.EndpointGroup] {
	c := w.catalogue
	counts := func(do func()) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.current == of {
			c.Fill(do)
		}
	}
	return &watcher.Store[*v1alpha1.EndpointGroup]{
		Trim:   w.trimmer.Group,
		Set:    func(group *v1alpha1.EndpointGroup) { counts(func() { c.SetGroup(group) }) },
		Remove: func(group *v1alpha1.EndpointGroup) { counts(func() { c.RemoveGroup(group) }) },
		Replace: func(list []*v1alpha1.EndpointGroup, version string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.listed(of, list, version)
		},
	}
}

// listed stores the list of a watch, which becomes the current one.
func (w *Watches) listed(of *groupWatch, list []*v1alpha1.EndpointGroup, version string) {
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
	w.catalogue.Fill(func() { w.catalogue.ReplaceGroups(list, version, of.zone) })
	w.markListedLocked(ResourceGroups)
}

// groupsAbsent handles an API without EndpointGroups like an empty list.
func (w *Watches) groupsAbsent(of *groupWatch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current == nil {
		w.log.Info("The API server has no EndpointGroups: serving all Services by their EndpointSlices")
		w.listed(of, nil, "")
	}
}

// follow keeps a store up to date until the context ends. While the API is unavailable, the store does not change.
func follow[T runtime.Object](ctx context.Context, w *Watches, resource string, source cache.ListerWatcher, store *watcher.Store[T]) {
	log := w.log.WithName(resource)
	reflector := watcher.Reflector(resource, source, store, cache.ReflectorOptions{Logger: &log})
	w.running.Go(func() { reflector.RunWithContext(ctx) })
}

// absentAfter is much longer than an API server needs to start.
const absentAfter = 5 * time.Second
