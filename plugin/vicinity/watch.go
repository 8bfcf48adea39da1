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

// The resources that answers depend on, as the API names them.
const (
	resourceNodes    = "nodes"
	resourceSlices   = "endpointslices"
	resourceGroups   = "endpointgroups"
	resourceLocators = "podlocators"
)

// absentRetry is how long a resource that the API server does not have is not asked for again.
const absentRetry = 20 * time.Second

// watches keep a cluster up to date, from start to stop.
type watches struct {
	cluster *cluster
	clients *watcher.Clients
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// startWatching watches by clients of the configuration until stop is called.
func startWatching(config *rest.Config, c *cluster) (*watches, error) {
	clients, err := watcher.NewClients(config, map[schema.GroupVersion]func(*runtime.Scheme) error{
		corev1.SchemeGroupVersion: corev1.AddToScheme, discoveryv1.SchemeGroupVersion: discoveryv1.AddToScheme, v1alpha1.GroupVersion: v1alpha1.AddToScheme,
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &watches{cluster: c, clients: clients, cancel: cancel}
	c.missing.Store(4)
	follow(ctx, w, &followed[*corev1.Node]{
		resource: resourceNodes, version: corev1.SchemeGroupVersion, set: c.setNode,
		forget: func(k objectKey) { c.where.DeleteNode(k.name) },
	})
	follow(ctx, w, &followed[*v1alpha1.PodLocator]{
		resource: resourceLocators, version: v1alpha1.GroupVersion, empty: &v1alpha1.PodLocatorList{}, set: c.setLocator,
		forget: func(k objectKey) { c.where.DeletePod(k.namespace.Value(), k.name) },
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

// await waits until all resources are known, but for no longer than a time.
func (w *watches) await(limit time.Duration) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); !w.cluster.synced(); <-tick.C {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// kept is a kind of objects.
type kept interface {
	metav1.Object
	runtime.Object
}

// follow keeps the cluster up to date by a resource. One of Vicinity's that the API server does not have is like
// one without objects.
func follow[T kept](ctx context.Context, w *watches, f *followed[T]) {
	f.known, f.synced = map[objectName]objectKey{}, sync.OnceFunc(func() { w.cluster.missing.Add(-1) })
	source := &watcher.Optional{
		ListerWatcher: watcher.Selected(w.clients.Group(f.version), f.resource, f.selector),
		Lacks:         func(err error) bool { return f.empty != nil && apierrors.IsNotFound(err) },
		Empty:         f.empty,
		Failed: func(err error) {
			if apierrors.IsForbidden(err) {
				log.Errorf("The role of this server does not allow it to list %s, so it is not ready: %v", f.resource, err)
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
	w.running.Go(func() { reflector.RunWithContext(ctx) })
}

// followed is a resource that is watched. It keeps names only, to find out which objects are gone
// when all are listed again.
type followed[T kept] struct {
	resource string
	version  schema.GroupVersion
	// empty is the list of a resource that the API server may lack, nil for others.
	empty    runtime.Object
	selector string
	set      func(T)
	forget   func(objectKey)
	service  func(T) string // that an object belongs to; nil for objects of no Service

	known  map[objectName]objectKey
	synced func()
}

type objectName struct {
	namespace unique.Handle[string]
	name      string
}

func nameOf(o metav1.Object) objectName {
	return objectName{unique.Make(o.GetNamespace()), o.GetName()}
}

// objectKey names an object. For a group or slice it has the Service that the object was of.
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

func (f *followed[T]) count() {
	objectCount.WithLabelValues(f.resource).Set(float64(len(f.known)))
}
