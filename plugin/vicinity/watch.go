package vicinity

import (
	"context"
	"sync"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/watcher"
	"vicinity.dev/vicinity/internal/names"
)

// The API names of the resources that answers depend on.
const (
	resourceNodes    = "nodes"
	resourceSlices   = "endpointslices"
	resourceGroups   = "endpointgroups"
	resourceLocators = "podlocators"
)

// absentRetry is the pause between lists of a resource that the API lacks.
const absentRetry = 20 * time.Second

// watches keep a cluster up to date, from start to stop.
type watches struct {
	cluster *cluster
	clients *watcher.Clients
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// startWatching watches until stop is called.
func startWatching(config *rest.Config, c *cluster) (*watches, error) {
	clients, err := watcher.NewClients(config, map[schema.GroupVersion]func(*runtime.Scheme) error{
		corev1.SchemeGroupVersion: corev1.AddToScheme, discoveryv1.SchemeGroupVersion: discoveryv1.AddToScheme, v1alpha1.GroupVersion: v1alpha1.AddToScheme,
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &watches{cluster: c, clients: clients, cancel: cancel}
	c.unlisted.Store(4)
	follow(ctx, w, &followed[*corev1.Node]{
		resource: resourceNodes, version: corev1.SchemeGroupVersion, set: c.setNode,
		forget: func(k objectKey) { c.clients.DeleteNode(k.name) },
	})
	follow(ctx, w, &followed[*v1alpha1.PodLocator]{
		resource: resourceLocators, version: v1alpha1.GroupVersion, empty: &v1alpha1.PodLocatorList{}, set: c.setLocator,
		forget: func(k objectKey) { c.clients.DeletePod(k.namespace.Value(), k.name) },
	})
	follow(ctx, w, &followed[*discoveryv1.EndpointSlice]{
		resource: resourceSlices, version: discoveryv1.SchemeGroupVersion, selector: names.Selector, set: c.setSlice,
		service: func(s *discoveryv1.EndpointSlice) string { return s.Labels[discoveryv1.LabelServiceName] },
		forget:  func(k objectKey) { c.deleteSlice(k.namespace.Value(), k.service, k.name) },
	})
	follow(ctx, w, &followed[*v1alpha1.EndpointGroup]{
		resource: resourceGroups, version: v1alpha1.GroupVersion, empty: &v1alpha1.EndpointGroupList{}, selector: names.Selector, set: c.setGroup,
		service: func(g *v1alpha1.EndpointGroup) string { return g.Spec.Service },
		forget:  func(k objectKey) { c.deleteGroup(k.namespace.Value(), k.service, k.name) },
	})
	return w, nil
}

// stop ends the watches.
func (w *watches) stop() {
	w.cancel()
	w.running.Wait()
}

// await waits until all resources are listed, and reports whether they are within a limit.
func (c *cluster) await(limit time.Duration) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); !c.isSynced(); <-tick.C {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// apiObject is an object of the API.
type apiObject interface {
	metav1.Object
	runtime.Object
}

// follow keeps the cluster up to date by a resource. A resource of Vicinity that the API lacks counts as empty.
func follow[T apiObject](ctx context.Context, w *watches, f *followed[T]) {
	f.known, f.synced = map[objectName]objectKey{}, sync.OnceFunc(func() { w.cluster.unlisted.Add(-1) })
	source := &watcher.Optional{
		ListerWatcher: watcher.Selected(w.clients.Group(f.version), f.resource, f.selector),
		Lacks:         func(err error) bool { return f.empty != nil && apierrors.IsNotFound(err) },
		Empty:         f.empty,
		Failed: func(err error) {
			if apierrors.IsForbidden(err) {
				log.Errorf("Not ready: the role of this server does not allow listing %s: %v", f.resource, err)
			}
		},
		Again: absentRetry, MostAgain: absentRetry,
	}
	store := &watcher.Store[T]{
		Set:     func(o T) { f.add(o); f.count() },
		Remove:  func(o T) { f.drop(nameOf(o)); f.count() },
		Replace: f.replace,
	}
	reflector := watcher.Reflector("vicinity/"+f.resource, source, store, cache.ReflectorOptions{})
	w.running.Go(func() {
		reflector.RunWithContext(ctx)
		clear(f.known)
		f.count()
	})
}

// followed is a watched resource. It keeps only names, to find the objects that a new list lacks.
type followed[T apiObject] struct {
	resource string
	version  schema.GroupVersion
	// empty is the list of a resource that the API may lack, nil for others.
	empty    runtime.Object
	selector string
	set      func(T)
	forget   func(objectKey)
	service  func(T) string // the Service of an object, nil for objects without a Service

	known   map[objectName]objectKey
	counted int // of known, in objectCount
	synced  func()
}

type objectName struct {
	namespace unique.Handle[string]
	name      string
}

func nameOf(o metav1.Object) objectName {
	return objectName{unique.Make(o.GetNamespace()), o.GetName()}
}

// objectKey names an object and, for a group or slice, its last known Service.
type objectKey struct {
	objectName
	service string
}

func (f *followed[T]) add(o T) {
	name := nameOf(o)
	key := objectKey{objectName: name}
	if f.service != nil {
		key.service = f.service(o)
	}
	if before, ok := f.known[name]; ok && before.service != key.service {
		f.forget(before)
	}
	f.known[name] = key
	f.set(o)
}

func (f *followed[T]) drop(name objectName) {
	if key, ok := f.known[name]; ok {
		delete(f.known, name)
		f.forget(key)
	}
}

func (f *followed[T]) replace(list []T, _ string) {
	listed := make(map[objectName]bool, len(list))
	for _, o := range list {
		listed[nameOf(o)] = true
	}
	for name := range f.known {
		if !listed[name] {
			f.drop(name)
		}
	}
	for _, o := range list {
		f.add(o)
	}
	f.count()
	f.synced()
}

// count adds the change to the sum of all servers of this program. During a reload there are two.
func (f *followed[T]) count() {
	objectCount.WithLabelValues(f.resource).Add(float64(len(f.known) - f.counted))
	f.counted = len(f.known)
}
