// Package clustertest has an API and objects for the tests of the proxy.
package clustertest

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// API is an API that lists and watches what tests put into it.
type API struct {
	Sources    map[string]*Source // by resource
	sync.Mutex                    // guards Selectors and Hold
	// Selectors has the selectors of requests for groups. A list for a selector in Hold waits until its channel is closed.
	Selectors []string
	Hold      map[string]chan struct{}
}

// NewAPI returns an API without objects.
func NewAPI() *API {
	a := &API{Sources: map[string]*Source{}, Hold: map[string]chan struct{}{}}
	for resource, list := range map[string]runtime.Object{
		"services":       &corev1.ServiceList{},
		"endpointslices": &discoveryv1.EndpointSliceList{},
		"endpointgroups": &v1alpha1.EndpointGroupList{},
		"nodes":          &corev1.NodeList{},
		"servicecidrs":   &networkingv1.ServiceCIDRList{},
		"configmaps":     &corev1.ConfigMapList{},
	} {
		a.Sources[resource] = &Source{resource: resource, list: list, objects: map[string]runtime.Object{}, watchers: map[*watcher]bool{}}
	}
	return a
}

// Services are all Services.
func (a *API) Services() cache.ListerWatcher { return a.Lister("services", "") }

// Slices are all EndpointSlices.
func (a *API) Slices() cache.ListerWatcher { return a.Lister("endpointslices", "") }

// Node is the own node.
func (a *API) Node(string) cache.ListerWatcher { return a.Lister("nodes", "") }

// ServiceRanges lists the ServiceCIDRs.
func (a *API) ServiceRanges() cache.ListerWatcher {
	return a.Lister("servicecidrs", "")
}

// NodeAddresses lists the ConfigMap that vicinity-controller publishes.
func (a *API) NodeAddresses(string) cache.ListerWatcher {
	return a.Lister("configmaps", "")
}

// Groups lists the EndpointGroups that a selector selects.
func (a *API) Groups(selector string) cache.ListerWatcher {
	a.Lock()
	defer a.Unlock()
	a.Selectors = append(a.Selectors, selector)
	w := a.Lister("endpointgroups", selector)
	w.held = a.Hold[selector]
	return w
}

// Lister returns a Lister of a resource.
func (a *API) Lister(resource, selector string) *Lister {
	return &Lister{source: a.Sources[resource], selector: selector}
}

// Source has the objects of one resource.
type Source struct {
	resource string
	list     runtime.Object // without items

	mu      sync.Mutex
	version int
	Absent  bool
	// Forbidden means that the proxy may not list it. lists counts the lists.
	Forbidden bool
	lists     int
	objects   map[string]runtime.Object
	watchers  map[*watcher]bool
}

// Put adds or changes an object.
func (s *Source) Put(object runtime.Object) { s.change(object, false) }

// Remove removes an object.
func (s *Source) Remove(object runtime.Object) { s.change(object, true) }

func (s *Source) change(object runtime.Object, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	object = object.DeepCopyObject()
	meta := object.(metav1.Object)
	meta.SetResourceVersion(VersionText(s.version))
	key := meta.GetNamespace() + "/" + meta.GetName()
	_, found := s.objects[key]
	kind := watch.Added
	switch {
	case gone:
		kind = watch.Deleted
		delete(s.objects, key)
	case found:
		kind = watch.Modified
	}
	if !gone {
		s.objects[key] = object
	}
	for w := range s.watchers {
		w.send(watch.Event{Type: kind, Object: object})
	}
}

// VersionText returns a resource version. The texts sort like the numbers.
func VersionText(n int) string {
	return string(rune('0'+n/100%10)) + string(rune('0'+n/10%10)) + string(rune('0'+n%10))
}

// Lister lists and watches the objects that a selector selects. A selector names labels that objects must not have.
type Lister struct {
	source   *Source
	selector string
	held     <-chan struct{}
}

func (l *Lister) selects(object runtime.Object) bool {
	for label := range strings.SplitSeq(l.selector, ",") {
		if _, has := object.(metav1.Object).GetLabels()[strings.TrimPrefix(label, "!")]; label != "" && has {
			return false
		}
	}
	return true
}

// IsWatchListSemanticsUnSupported makes the client library list before it watches.
func (*Lister) IsWatchListSemanticsUnSupported() bool { return true }

// List lists the objects.
func (l *Lister) List(metav1.ListOptions) (runtime.Object, error) {
	if l.held != nil {
		<-l.held
	}
	l.source.mu.Lock()
	defer l.source.mu.Unlock()
	l.source.lists++
	if l.source.Forbidden {
		return nil, apierrors.NewForbidden(schema.GroupResource{Resource: l.source.resource}, "", errors.New("no role says so"))
	}
	if l.source.Absent {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: l.source.resource}, "")
	}
	var items []runtime.Object
	for _, key := range slices.Sorted(maps.Keys(l.source.objects)) {
		if l.selects(l.source.objects[key]) {
			items = append(items, l.source.objects[key])
		}
	}
	list := l.source.list.DeepCopyObject()
	list.(metav1.ListInterface).SetResourceVersion(VersionText(l.source.version))
	return list, apimeta.SetList(list, items)
}

// Watch watches the objects.
func (l *Lister) Watch(options metav1.ListOptions) (watch.Interface, error) {
	l.source.mu.Lock()
	defer l.source.mu.Unlock()
	w := &watcher{lister: l, events: make(chan watch.Event, 1000)}
	l.source.watchers[w] = true
	for _, key := range slices.Sorted(maps.Keys(l.source.objects)) {
		if object := l.source.objects[key]; object.(metav1.Object).GetResourceVersion() > options.ResourceVersion {
			w.send(watch.Event{Type: watch.Modified, Object: object})
		}
	}
	return w, nil
}

type watcher struct {
	lister *Lister
	events chan watch.Event
	over   bool
}

// send sends an event. An object that the selector no longer selects counts as deleted.
func (w *watcher) send(e watch.Event) {
	if w.lister.selects(e.Object) {
		w.events <- e
	} else if e.Type == watch.Modified {
		w.events <- watch.Event{Type: watch.Deleted, Object: e.Object}
	}
}

// Stop ends the watch.
func (w *watcher) Stop() {
	w.lister.source.mu.Lock()
	defer w.lister.source.mu.Unlock()
	if !w.over {
		w.over = true
		delete(w.lister.source.watchers, w)
		close(w.events)
	}
}

// ResultChan returns the events.
func (w *watcher) ResultChan() <-chan watch.Event { return w.events }

// Watching returns the number of watches.
func (s *Source) Watching() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watchers)
}

// Lists returns the number of lists.
func (s *Source) Lists() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists
}
