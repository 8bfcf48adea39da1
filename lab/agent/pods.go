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

// pods is the store that the watch on pods fills. It hands each pod to its worker, and
// keeps no copy but what these need.
type pods struct {
	agent *agent
	fakes *fakes

	mu      sync.Mutex
	workers map[uid]*worker
	names   map[string]uid
	// elsewhere are pods on nodes that are not of the lab, by node: it may come.
	elsewhere map[string]map[uid]*corev1.Pod
	// adopted are pods of an earlier agent that the API did not name yet.
	adopted map[uid]*saved
	ctx     context.Context
}

func newPods(a *agent) *pods {
	p := &pods{
		agent: a, workers: map[uid]*worker{}, names: map[string]uid{},
		elsewhere: map[string]map[uid]*corev1.Pod{}, adopted: map[uid]*saved{},
	}
	p.fakes = newFakes(a)
	return p
}

// watchPods follows the pods that are bound to nodes until the context ends.
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

// wait waits until all workers noticed that the context ended.
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

// Add takes a pod in.
func (p *pods) Add(obj any) error {
	p.set(obj.(*corev1.Pod))
	return nil
}

// Update takes a pod's new state in.
func (p *pods) Update(obj any) error { return p.Add(obj) }

// Delete takes in that a pod is no more.
func (p *pods) Delete(obj any) error {
	pod := obj.(*corev1.Pod)
	p.fakes.remove(pod.UID)
	p.mu.Lock()
	w := p.workers[pod.UID]
	delete(p.elsewhere[pod.Spec.NodeName], pod.UID)
	p.mu.Unlock()
	if w != nil {
		w.mail(func() { w.gone = true })
	}
	return nil
}

// Replace takes in all pods that there are: others are no more.
func (p *pods) Replace(objs []any, _ string) error {
	there := make(map[uid]bool, len(objs))
	pods := make([]*corev1.Pod, len(objs))
	for i, obj := range objs {
		pods[i] = obj.(*corev1.Pod)
		there[pods[i].UID] = true
	}
	p.fakes.retain(there)
	p.mu.Lock()
	clear(p.elsewhere)
	p.mu.Unlock()
	p.setAll(pods)
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, s := range p.adopted {
		delete(p.adopted, id)
		if n := p.agent.node(s.pod.Spec.NodeName); n != nil && !n.Fake && p.workers[id] == nil {
			p.begin(n, s.pod, s)
		}
	}
	for id, w := range p.workers {
		if !there[id] {
			w.mail(func() { w.gone = true })
		}
	}
	return nil
}

// Resync does nothing: nothing is kept that could have gone stale.
func (p *pods) Resync() error { return nil }

// setAll takes in pods that come in no order: those that have addresses keep them, so
// these are marked before any other pod is given one.
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
	// Asked under the lock: a node that comes meanwhile looks for its pods after this.
	n := p.agent.node(pod.Spec.NodeName)
	if n != nil && n.Fake {
		p.fakes.set(n, pod)
		return
	}
	switch w := p.workers[pod.UID]; {
	case w != nil:
		w.mail(func() { w.update(pod) })
	case n != nil:
		s := p.adopted[pod.UID]
		delete(p.adopted, pod.UID)
		p.begin(n, pod, s)
	default:
		if p.elsewhere[pod.Spec.NodeName] == nil {
			p.elsewhere[pod.Spec.NodeName] = map[uid]*corev1.Pod{}
		}
		p.elsewhere[pod.Spec.NodeName][pod.UID] = pod
	}
}

// begin starts the worker of a pod. The caller holds the lock.
func (p *pods) begin(n *node, pod *corev1.Pod, s *saved) {
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

// restore keeps what an earlier agent wrote down for when the API names the pods. Their
// addresses are theirs until then, whatever pod is named first.
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

// arrive begins the pods that were bound to a node before it came.
func (p *pods) arrive(node string) {
	p.mu.Lock()
	waiting := slices.Collect(maps.Values(p.elsewhere[node]))
	delete(p.elsewhere, node)
	p.mu.Unlock()
	p.setAll(waiting)
}

// leave ends the pods of a node that left.
func (p *pods) leave(node string) {
	p.fakes.leave(node)
	for _, w := range p.of(node) {
		w.mail(func() { w.gone = true })
	}
}

// wake has all pods of a node looked at again.
func (p *pods) wake(node string) {
	for _, w := range p.of(node) {
		w.mail(func() {})
	}
}

// of returns the workers of a node's pods.
func (p *pods) of(node string) []*worker {
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

// named returns the worker of a pod of a node by its name.
func (p *pods) named(n *node, namespace, name string) *worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.workers[p.names[namespace+"/"+name]]; w != nil && w.node == n {
		return w
	}
	return nil
}
