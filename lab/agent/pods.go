package agent

import (
	"context"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
)

// pods is the store that the watch on pods fills.
type pods struct {
	agent *agent
	fakes *fakes

	mu sync.Mutex
	// unassigned are pods on nodes that the agent does not have, by node: some may be added.
	unassigned map[string]map[uid]*corev1.Pod
}

func newPods(a *agent) *pods {
	return &pods{agent: a, fakes: newFakes(a), unassigned: map[string]map[uid]*corev1.Pod{}}
}

func (a *agent) watchPods(ctx context.Context) {
	work := a.pods.fakes.run(ctx)
	selector := fields.OneTermNotEqualSelector("spec.nodeName", "")
	list := cache.NewFilteredListWatchFromClient(a.client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll,
		func(o *metav1.ListOptions) { o.FieldSelector = selector.String() })
	cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(list, a.client), &corev1.Pod{}, a.pods,
		cache.ReflectorOptions{Name: "pods"}).RunWithContext(ctx)
	work.Wait()
}

// Add handles a new pod.
func (p *pods) Add(obj any) error {
	p.set(obj.(*corev1.Pod))
	return nil
}

// Update handles a changed pod.
func (p *pods) Update(obj any) error { return p.Add(obj) }

// Delete handles a deleted pod.
func (p *pods) Delete(obj any) error {
	pod := obj.(*corev1.Pod)
	p.fakes.remove(pod.UID)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.unassigned[pod.Spec.NodeName], pod.UID)
	return nil
}

// Replace handles the list of all pods: those that are not in it do not exist any more.
func (p *pods) Replace(objs []any, _ string) error {
	there := make(map[uid]bool, len(objs))
	pods := make([]*corev1.Pod, len(objs))
	for i, obj := range objs {
		pods[i] = obj.(*corev1.Pod)
		there[pods[i].UID] = true
	}
	p.fakes.retain(there)
	p.mu.Lock()
	clear(p.unassigned)
	p.mu.Unlock()
	p.setAll(pods)
	return nil
}

// Resync does nothing: nothing is cached.
func (p *pods) Resync() error { return nil }

// setAll handles several pods. It reserves the addresses of those that have one before it
// assigns addresses to others.
func (p *pods) setAll(pods []*corev1.Pod) {
	for _, pod := range pods {
		if n := p.agent.node(pod.Spec.NodeName); n != nil {
			p.fakes.hold(n, pod)
		}
	}
	for _, pod := range pods {
		p.set(pod)
	}
}

func (p *pods) set(pod *corev1.Pod) {
	pod.ManagedFields = nil
	p.mu.Lock()
	defer p.mu.Unlock()
	// Under the lock: a node that is added at the same time looks for its pods afterwards.
	if n := p.agent.node(pod.Spec.NodeName); n != nil {
		p.fakes.set(n, pod)
		return
	}
	if p.unassigned[pod.Spec.NodeName] == nil {
		p.unassigned[pod.Spec.NodeName] = map[uid]*corev1.Pod{}
	}
	p.unassigned[pod.Spec.NodeName][pod.UID] = pod
}

// addNode handles the pods that were bound to a node before it was added.
func (p *pods) addNode(node string) {
	p.mu.Lock()
	waiting := slices.Collect(maps.Values(p.unassigned[node]))
	delete(p.unassigned, node)
	p.mu.Unlock()
	p.setAll(waiting)
}
