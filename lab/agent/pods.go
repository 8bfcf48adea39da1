package agent

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
)

func (a *agent) watchPods(ctx context.Context) {
	work := a.fakes.run(ctx)
	selector := fields.OneTermNotEqualSelector("spec.nodeName", "")
	list := cache.NewFilteredListWatchFromClient(a.client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll,
		func(o *metav1.ListOptions) { o.FieldSelector = selector.String() })
	cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(list, a.client), &corev1.Pod{}, a.fakes,
		cache.ReflectorOptions{Name: "pods"}).RunWithContext(ctx)
	work.Wait()
}

// Add handles a new pod. The control plane deletes a pod that was bound before its node existed.
func (f *fakes) Add(obj any) error {
	pod := obj.(*corev1.Pod)
	if n := f.agent.node(pod.Spec.NodeName); n != nil {
		pod.ManagedFields = nil
		f.setPod(n, pod)
	}
	return nil
}

// Update handles a changed pod.
func (f *fakes) Update(obj any) error { return f.Add(obj) }

// Delete handles a deleted pod.
func (f *fakes) Delete(obj any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgetPod(obj.(*corev1.Pod).UID)
	return nil
}

// Replace handles the list of all pods: others do not exist any more. It reserves existing addresses
// before it assigns new ones.
func (f *fakes) Replace(objs []any, _ string) error {
	exists := map[uid]bool{}
	for _, obj := range objs {
		exists[obj.(*corev1.Pod).UID] = true
	}
	f.mu.Lock()
	for id := range f.pods {
		if !exists[id] {
			f.forgetPod(id)
		}
	}
	f.mu.Unlock()
	for _, obj := range objs {
		pod := obj.(*corev1.Pod)
		if n := f.agent.node(pod.Spec.NodeName); n != nil {
			f.reserveAddress(n, pod)
		}
	}
	for _, obj := range objs {
		_ = f.Add(obj) // it never fails
	}
	return nil
}

// Resync does nothing: nothing is cached.
func (f *fakes) Resync() error { return nil }
