package vicinity

import (
	"context"
	"fmt"
	"sync"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"vicinity.dev/vicinity/api/v1alpha1"
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

// watcher keeps a cluster up to date, from start to stop.
type watcher struct {
	cluster *cluster
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// watched is a resource that is watched.
type watched struct {
	resource string
	example  runtime.Object
	list     runtime.Object // an empty one
	selector string
	set      func(metav1.Object)
	forget   func(objectKey)
}

// objectKey names an object. For a group or slice it has the Service that the object was of.
type objectKey struct {
	namespace     unique.Handle[string]
	name, service string
}

// startWatching watches by clients of the configuration until stop is called.
func startWatching(config *rest.Config, c *cluster) (*watcher, error) {
	clients, err := newClients(config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &watcher{cluster: c, cancel: cancel}
	resources := c.resources()
	c.missing.Store(int32(len(resources)))
	for _, r := range resources {
		source := listWatch(clients[r.resource], r)
		s := &store{watched: r, known: map[objectName]objectKey{}, synced: sync.OnceFunc(func() { c.missing.Add(-1) })}
		reflector := cache.NewReflectorWithOptions(source, r.example, s, cache.ReflectorOptions{Name: "vicinity/" + r.resource})
		w.running.Go(func() { reflector.RunWithContext(ctx) })
	}
	return w, nil
}

// stop ends the watches.
func (w *watcher) stop() {
	w.cancel()
	w.running.Wait()
}

// await waits until all resources are known, but for no longer than a time.
func (w *watcher) await(limit time.Duration) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); !w.cluster.synced(); <-tick.C {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

func (c *cluster) resources() []watched {
	return []watched{
		{
			resource: resourceNodes, example: &corev1.Node{},
			set:    func(o metav1.Object) { c.setNode(o.(*corev1.Node)) },
			forget: func(k objectKey) { c.where.DeleteNode(k.name) },
		},
		{
			resource: resourceLocators, example: &v1alpha1.PodLocator{}, list: &v1alpha1.PodLocatorList{},
			set:    func(o metav1.Object) { c.setLocator(o.(*v1alpha1.PodLocator)) },
			forget: func(k objectKey) { c.where.DeletePod(k.namespace.Value(), k.name) },
		},
		{
			resource: resourceSlices, example: &discoveryv1.EndpointSlice{}, selector: names.Selector,
			set:    func(o metav1.Object) { c.setSlice(o.(*discoveryv1.EndpointSlice)) },
			forget: func(k objectKey) { c.deleteSlice(k.namespace.Value(), k.service, k.name) },
		},
		{
			resource: resourceGroups, example: &v1alpha1.EndpointGroup{}, list: &v1alpha1.EndpointGroupList{}, selector: names.Selector,
			set:    func(o metav1.Object) { c.setGroup(o.(*v1alpha1.EndpointGroup)) },
			forget: func(k objectKey) { c.deleteGroup(k.namespace.Value(), k.service, k.name) },
		},
	}
}

// newClients makes a client for each resource.
func newClients(config *rest.Config) (map[string]rest.Interface, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	connections, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	clients := map[string]rest.Interface{}
	for resource, version := range map[string]schema.GroupVersion{
		resourceNodes: corev1.SchemeGroupVersion, resourceSlices: discoveryv1.SchemeGroupVersion,
		resourceGroups: v1alpha1.GroupVersion, resourceLocators: v1alpha1.GroupVersion,
	} {
		one := rest.CopyConfig(config)
		one.GroupVersion, one.APIPath = &version, "/apis"
		if version.Group == "" {
			one.APIPath = "/api"
		}
		one.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		if version != v1alpha1.GroupVersion {
			// Protobuf is smaller than JSON. Custom resources do not have it.
			one.ContentType, one.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
		}
		if clients[resource], err = rest.RESTClientForConfigAndClient(one, connections); err != nil {
			return nil, fmt.Errorf("making a client of %s: %w", resource, err)
		}
	}
	return clients, nil
}

// source lists and watches a resource. One of Vicinity's that the API server does not have yet
// is like one without objects.
type source struct {
	*cache.ListWatch
	resource watched
	mu       sync.Mutex
	absent   bool
}

func listWatch(client rest.Interface, r watched) *source {
	inner := cache.NewFilteredListWatchFromClient(client, r.resource, metav1.NamespaceAll, func(options *metav1.ListOptions) {
		options.LabelSelector = r.selector
	})
	return &source{ListWatch: inner, resource: r}
}

// IsWatchListSemanticsUnSupported has the client library list before it watches: only a list
// says that a resource does not exist.
func (s *source) IsWatchListSemanticsUnSupported() bool { return true }

// ListWithContext implements cache.ListerWatcherWithContext.
func (s *source) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list, err := s.ListWatch.ListWithContext(ctx, options)
	absent := apierrors.IsNotFound(err) && s.resource.list != nil
	s.mu.Lock()
	s.absent = absent
	s.mu.Unlock()
	if absent {
		return s.resource.list.DeepCopyObject(), nil
	}
	if apierrors.IsForbidden(err) {
		log.Errorf("The role of this server does not allow it to list %s, so it is not ready: %v", s.resource.resource, err)
	}
	return list, err
}

// WatchWithContext implements cache.ListerWatcherWithContext. What does not exist is listed again
// after a while.
func (s *source) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	absent := s.absent
	s.mu.Unlock()
	if !absent {
		return s.ListWatch.WatchWithContext(ctx, options)
	}
	select {
	case <-ctx.Done():
	case <-time.After(absentRetry):
	}
	return nil, apierrors.NewResourceExpired("the resource did not exist")
}

// store hands what a reflector receives to a cluster. It keeps names only, to find out what is
// gone when all is listed again.
type store struct {
	watched
	known  map[objectName]objectKey
	synced func()
}

type objectName struct {
	namespace unique.Handle[string]
	name      string
}

// serviceOf is the Service that an object belongs to, empty for others.
func serviceOf(o metav1.Object) string {
	switch o := o.(type) {
	case *v1alpha1.EndpointGroup:
		return o.Spec.Service
	case *discoveryv1.EndpointSlice:
		return o.Labels[discoveryv1.LabelServiceName]
	}
	return ""
}

// Add implements cache.ReflectorStore.
func (s *store) Add(object any) error {
	o, ok := object.(metav1.Object)
	if !ok {
		return fmt.Errorf("received a %T instead of one of %s", object, s.resource)
	}
	name := objectName{unique.Make(o.GetNamespace()), o.GetName()}
	key := objectKey{name.namespace, name.name, serviceOf(o)}
	if before, ok := s.known[name]; ok && before.service != key.service {
		s.forget(before)
	}
	s.known[name] = key
	s.set(o)
	objectCount.WithLabelValues(s.resource).Set(float64(len(s.known)))
	return nil
}

// Update implements cache.ReflectorStore.
func (s *store) Update(object any) error { return s.Add(object) }

// Delete implements cache.ReflectorStore.
func (s *store) Delete(object any) error {
	o, ok := object.(metav1.Object)
	if !ok {
		return fmt.Errorf("received a %T instead of one of %s", object, s.resource)
	}
	s.drop(objectName{unique.Make(o.GetNamespace()), o.GetName()})
	return nil
}

func (s *store) drop(name objectName) {
	if key, ok := s.known[name]; ok {
		delete(s.known, name)
		s.forget(key)
	}
	objectCount.WithLabelValues(s.resource).Set(float64(len(s.known)))
}

// Replace implements cache.ReflectorStore.
func (s *store) Replace(objects []any, _ string) error {
	listed := make(map[objectName]bool, len(objects))
	for _, object := range objects {
		if o, ok := object.(metav1.Object); ok {
			listed[objectName{unique.Make(o.GetNamespace()), o.GetName()}] = true
		}
	}
	for name := range s.known {
		if !listed[name] {
			s.drop(name)
		}
	}
	for _, object := range objects {
		if err := s.Add(object); err != nil {
			return err
		}
	}
	objectCount.WithLabelValues(s.resource).Set(float64(len(s.known)))
	s.synced()
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *store) Resync() error { return nil }
