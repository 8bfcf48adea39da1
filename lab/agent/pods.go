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

// pods is the store that the watch on pods fills. It passes each pod on to its worker.
type pods struct {
	agent *agent
	fakes *fakes

	mu      sync.Mutex
	workers map[uid]*worker
	names   map[string]uid
	// unassigned are pods on nodes that are not in the lab yet, by node.
	unassigned map[string]map[uid]*corev1.Pod
	// adopted are pods of an earlier agent that the API has not listed yet.
	adopted map[uid]*saved
	ctx     context.Context
}

func newPods(a *agent) *pods {
	p := &pods{
		agent: a, workers: map[uid]*worker{}, names: map[string]uid{},
		unassigned: map[string]map[uid]*corev1.Pod{}, adopted: map[uid]*saved{},
	}
	p.fakes = newFakes(a)
	return p
}

// watchPods watches the pods that are bound to nodes until the context ends.
func (a *agent) watchPods(ctx context.Context) {
	a.pods.mu.Lock()
	a.pods.ctx = ctx
	a.pods.mu.Unlock()
	work := a.pods.fakes.run(ctx)
	selector := fields.OneTermNotEqualSelector("spec.nodeName", "")
	if a.Node != "" {
		selector = fields.OneTermEqualSelector("spec.nodeName", a.Node)
	}
	list := cache.NewFilteredListWatchFromClient(a.client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll,
		func(o *metav1.ListOptions) { o.FieldSelector = selector.String() })
	cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(list, a.client), &corev1.Pod{}, a.pods,
		cache.ReflectorOptions{Name: "pods"}).RunWithContext(ctx)
	work.Wait()
	a.pods.wait()
}

func (p *pods) wait() {
	p.mu.Lock()
	workers := make([]*worker, 0, len(p.workers))
	for _, w := range p.workers {
		workers = append(workers, w)
	}
	p.mu.Unlock()
	for _, w := range workers {
		<-w.ended
	}
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
	w := p.workers[pod.UID]
	delete(p.unassigned[pod.Spec.NodeName], pod.UID)
	p.mu.Unlock()
	if w != nil {
		w.post(func() { w.gone = true })
	}
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
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, s := range p.adopted {
		delete(p.adopted, id)
		if n := p.agent.node(s.pod.Spec.NodeName); n != nil && !n.Fake && p.workers[id] == nil {
			p.startWorker(n, s.pod, s)
		}
	}
	for id, w := range p.workers {
		if !there[id] {
			w.post(func() { w.gone = true })
		}
	}
	return nil
}

// Resync does nothing: nothing is cached.
func (p *pods) Resync() error { return nil }

// setAll handles several pods. It reserves the addresses of those that have one before it
// assigns addresses to others.
func (p *pods) setAll(pods []*corev1.Pod) {
	for _, pod := range pods {
		if n := p.agent.node(pod.Spec.NodeName); n != nil && n.Fake {
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
	n := p.agent.node(pod.Spec.NodeName)
	if n != nil && n.Fake {
		p.fakes.set(n, pod)
		return
	}
	switch w := p.workers[pod.UID]; {
	case w != nil:
		w.post(func() { w.update(pod) })
	case n != nil:
		s := p.adopted[pod.UID]
		delete(p.adopted, pod.UID)
		p.startWorker(n, pod, s)
	default:
		if p.unassigned[pod.Spec.NodeName] == nil {
			p.unassigned[pod.Spec.NodeName] = map[uid]*corev1.Pod{}
		}
		p.unassigned[pod.Spec.NodeName][pod.UID] = pod
	}
}

// startWorker starts the worker of a pod. The caller holds the lock.
func (p *pods) startWorker(n *node, pod *corev1.Pod, s *saved) {
	w := newWorker(n, pod, s)
	p.workers[pod.UID] = w
	p.names[pod.Namespace+"/"+pod.Name] = pod.UID
	go func() {
		w.run(p.ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.workers, pod.UID)
		if p.names[pod.Namespace+"/"+pod.Name] == pod.UID {
			delete(p.names, pod.Namespace+"/"+pod.Name)
		}
	}()
}

// restore keeps the pods of an earlier agent until the API lists them, and reserves their
// addresses.
func (p *pods) restore(all map[uid]*saved) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.adopted = all
	for _, s := range all {
		if n := p.agent.node(s.record.Node); n != nil && s.slot != 0 {
			n.slots.hold(s.slot)
		}
	}
}

// addNode starts the pods that were bound to a node before it was added.
func (p *pods) addNode(node string) {
	p.mu.Lock()
	waiting := slices.Collect(maps.Values(p.unassigned[node]))
	delete(p.unassigned, node)
	p.mu.Unlock()
	p.setAll(waiting)
}

func (p *pods) removeNode(node string) {
	p.fakes.removeNode(node)
	for _, w := range p.workersOn(node) {
		w.post(func() { w.gone = true })
	}
}

// wake makes all pods of a node decide again.
func (p *pods) wake(node string) {
	for _, w := range p.workersOn(node) {
		w.post(func() {})
	}
}

func (p *pods) workersOn(node string) []*worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	var workers []*worker
	for _, w := range p.workers {
		if w.node.Name == node {
			workers = append(workers, w)
		}
	}
	return workers
}

func (p *pods) workerOf(n *node, namespace, name string) *worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.workers[p.names[namespace+"/"+name]]; w != nil && w.node == n {
		return w
	}
	return nil
}
