package proxy

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// fakeAPI is an API that lists and watches what tests put into it.
type fakeAPI struct {
	sources map[string]*fakeSource // by resource
	mu      sync.Mutex
	// selectors are those that groups were asked for by, and hold those for which lists
	// wait.
	selectors []string
	hold      map[string]chan struct{}
}

func newFakeAPI() *fakeAPI {
	a := &fakeAPI{sources: map[string]*fakeSource{}, hold: map[string]chan struct{}{}}
	for resource, list := range map[string]func([]runtime.Object, string) runtime.Object{
		resourceServices: func(items []runtime.Object, version string) runtime.Object {
			made := &corev1.ServiceList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
			for _, item := range items {
				made.Items = append(made.Items, *item.(*corev1.Service))
			}
			return made
		},
		resourceSlices: func(items []runtime.Object, version string) runtime.Object {
			made := &discoveryv1.EndpointSliceList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
			for _, item := range items {
				made.Items = append(made.Items, *item.(*discoveryv1.EndpointSlice))
			}
			return made
		},
		resourceGroups: func(items []runtime.Object, version string) runtime.Object {
			made := &v1alpha1.EndpointGroupList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
			for _, item := range items {
				made.Items = append(made.Items, *item.(*v1alpha1.EndpointGroup))
			}
			return made
		},
		resourceNodes: func(items []runtime.Object, version string) runtime.Object {
			made := &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
			for _, item := range items {
				made.Items = append(made.Items, *item.(*corev1.Node))
			}
			return made
		},
		resourceRanges: func(items []runtime.Object, version string) runtime.Object {
			made := &networkingv1.ServiceCIDRList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
			for _, item := range items {
				made.Items = append(made.Items, *item.(*networkingv1.ServiceCIDR))
			}
			return made
		},
		resourceConfigMaps: func(items []runtime.Object, version string) runtime.Object {
			made := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
			for _, item := range items {
				made.Items = append(made.Items, *item.(*corev1.ConfigMap))
			}
			return made
		},
	} {
		a.sources[resource] = &fakeSource{resource: resource, list: list, objects: map[string]runtime.Object{}, watchers: map[*fakeWatcher]bool{}}
	}
	return a
}

func (a *fakeAPI) services() cache.ListerWatcher   { return a.watcher(resourceServices, "") }
func (a *fakeAPI) slices() cache.ListerWatcher     { return a.watcher(resourceSlices, "") }
func (a *fakeAPI) node(string) cache.ListerWatcher { return a.watcher(resourceNodes, "") }
func (a *fakeAPI) serviceRanges() cache.ListerWatcher {
	return a.watcher(resourceRanges, "")
}

func (a *fakeAPI) nodeAddresses(string) cache.ListerWatcher {
	return a.watcher(resourceConfigMaps, "")
}

func (a *fakeAPI) groups(selector string) cache.ListerWatcher {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.selectors = append(a.selectors, selector)
	w := a.watcher(resourceGroups, selector)
	w.held = a.hold[selector]
	return w
}

func (a *fakeAPI) watcher(resource, selector string) *fakeLister {
	return &fakeLister{source: a.sources[resource], selector: selector}
}

// fakeSource is what there is of one resource.
type fakeSource struct {
	resource string
	list     func(items []runtime.Object, version string) runtime.Object

	mu      sync.Mutex
	version int
	absent  bool
	// forbidden says that the proxy may not read it, and lists is how often it was asked.
	forbidden bool
	lists     int
	objects   map[string]runtime.Object
	watchers  map[*fakeWatcher]bool
}

func (s *fakeSource) put(object runtime.Object) { s.change(object, false) }

func (s *fakeSource) remove(object runtime.Object) { s.change(object, true) }

func (s *fakeSource) change(object runtime.Object, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	object = object.DeepCopyObject()
	meta := object.(metav1.Object)
	meta.SetResourceVersion(versionText(s.version))
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

func versionText(n int) string {
	return string(rune('0'+n/100%10)) + string(rune('0'+n/10%10)) + string(rune('0'+n%10))
}

// fakeLister lists and watches the objects that a selector selects, which says which label
// they do not have.
type fakeLister struct {
	source   *fakeSource
	selector string
	held     <-chan struct{}
}

func (l *fakeLister) selects(object runtime.Object) bool {
	_, has := object.(metav1.Object).GetLabels()[strings.TrimPrefix(l.selector, "!")]
	return l.selector == "" || !has
}

// IsWatchListSemanticsUnSupported has the client library list before it watches.
func (*fakeLister) IsWatchListSemanticsUnSupported() bool { return true }

func (l *fakeLister) List(metav1.ListOptions) (runtime.Object, error) {
	if l.held != nil {
		<-l.held
	}
	l.source.mu.Lock()
	defer l.source.mu.Unlock()
	l.source.lists++
	if l.source.forbidden {
		return nil, apierrors.NewForbidden(schema.GroupResource{Resource: l.source.resource}, "", errors.New("no role says so"))
	}
	if l.source.absent {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: l.source.resource}, "")
	}
	var items []runtime.Object
	for _, key := range slices.Sorted(maps.Keys(l.source.objects)) {
		if l.selects(l.source.objects[key]) {
			items = append(items, l.source.objects[key])
		}
	}
	return l.source.list(items, versionText(l.source.version)), nil
}

func (l *fakeLister) Watch(options metav1.ListOptions) (watch.Interface, error) {
	l.source.mu.Lock()
	defer l.source.mu.Unlock()
	w := &fakeWatcher{lister: l, events: make(chan watch.Event, 1000)}
	l.source.watchers[w] = true
	for _, key := range slices.Sorted(maps.Keys(l.source.objects)) {
		if object := l.source.objects[key]; object.(metav1.Object).GetResourceVersion() > options.ResourceVersion {
			w.send(watch.Event{Type: watch.Modified, Object: object})
		}
	}
	return w, nil
}

type fakeWatcher struct {
	lister *fakeLister
	events chan watch.Event
	over   bool
}

// send tells of an event. An object that the selector does not select any more is gone.
func (w *fakeWatcher) send(e watch.Event) {
	if w.lister.selects(e.Object) {
		w.events <- e
	} else if e.Type == watch.Modified {
		w.events <- watch.Event{Type: watch.Deleted, Object: e.Object}
	}
}

func (w *fakeWatcher) Stop() {
	w.lister.source.mu.Lock()
	defer w.lister.source.mu.Unlock()
	if !w.over {
		w.over = true
		delete(w.lister.source.watchers, w)
		close(w.events)
	}
}

func (w *fakeWatcher) ResultChan() <-chan watch.Event { return w.events }

// watching is how many watches there are.
func (s *fakeSource) watching() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watchers)
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	limit, looks := time.After(30*time.Second), time.NewTicker(time.Millisecond)
	defer looks.Stop()
	for !is() {
		select {
		case <-looks.C:
		case <-limit:
			t.Fatalf("it is never so that %s", what)
		}
	}
}

// background runs something until the test ends.
func background(t *testing.T, run func(context.Context)) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	over := make(chan struct{})
	go func() {
		defer close(over)
		run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-over
	})
}
