package agent

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
)

// fakes are the pods of nodes without network. They are ready as soon as they are
// bound, and gone as soon as they are deleted; for each, all that is kept are a few
// words, since there may be tens of thousands.
type fakes struct {
	agent *agent

	queue workqueue.TypedDelayingInterface[fakeWork]

	mu   sync.Mutex
	pods map[uid]fakePod
}

type fakePod struct {
	node *node
	slot uint8
}

// fakeWork is a pod whose object is to be written or removed.
type fakeWork struct {
	pod  *corev1.Pod
	node *node
	slot uint8
}

// fakeWriters is how many write at once: as many as the scheduler binds, which would
// otherwise have the API server to itself.
const fakeWriters = 100

// fakeRetry is the pause before a pod that could not be written is tried again.
const fakeRetry = time.Second

func newFakes(a *agent) *fakes {
	return &fakes{agent: a, queue: workqueue.NewTypedDelayingQueue[fakeWork](), pods: map[uid]fakePod{}}
}

// run writes until the context ends.
func (f *fakes) run(ctx context.Context) *sync.WaitGroup {
	var work sync.WaitGroup
	for range fakeWriters {
		work.Go(func() {
			for {
				w, over := f.queue.Get()
				if over {
					return
				}
				f.write(ctx, w)
				f.queue.Done(w)
			}
		})
	}
	context.AfterFunc(ctx, f.queue.ShutDown)
	return &work
}

// set takes in a pod. Only one that is new, or to be deleted, or that others call
// unready since its node was silent for a while, means work.
func (f *fakes) set(n *node, pod *corev1.Pod) {
	over := podOver(pod)
	unready := !over && !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	have, ok := f.pods[pod.UID]
	if !ok && !over {
		have = fakePod{node: n, slot: heldSlot(n, pod)}
		f.pods[pod.UID] = have
	}
	if pod.DeletionTimestamp != nil || unready {
		f.queue.Add(fakeWork{pod: pod, node: n, slot: have.slot})
	}
}

// hold marks the address that a pod has already, before others ask for one.
func (f *fakes) hold(n *node, pod *corev1.Pod) {
	if podOver(pod) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.pods[pod.UID]; ok || pod.Status.PodIP == "" {
		return
	}
	f.pods[pod.UID] = fakePod{node: n, slot: heldSlot(n, pod)}
}

// podOver reports whether nothing of a pod runs, nor will.
func podOver(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// heldSlot is the slot of the address that a pod has, or a new one; 0 if there is none.
func heldSlot(n *node, pod *corev1.Pod) uint8 {
	if addr, err := netip.ParseAddr(pod.Status.PodIP); err == nil {
		bytes := addr.AsSlice()
		n.slots.hold(int(bytes[len(bytes)-1]))
		return bytes[len(bytes)-1]
	}
	slot, err := n.slots.take()
	if err != nil {
		return 0
	}
	return uint8(slot)
}

func (f *fakes) write(ctx context.Context, w fakeWork) {
	if ctx.Err() != nil {
		return // what is still queued is not worth a call that fails
	}
	if w.node.stopped.Load() {
		f.queue.AddAfter(w, fakeRetry)
		return
	}
	short, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var err error
	if w.pod.DeletionTimestamp != nil {
		err = f.agent.deletePod(short, w.pod.Namespace, w.pod.Name, w.pod.UID)
	} else {
		pod := *w.pod
		pod.Status = fakeStatus(w, f.agent.now())
		_, err = f.agent.client.CoreV1().Pods(pod.Namespace).UpdateStatus(short, &pod, metav1.UpdateOptions{})
	}
	// The watch brings what changed in between, and what is no more.
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		f.agent.log.Warn("fake pod cannot be written", "pod", w.pod.Name, "error", err)
		f.queue.AddAfter(w, fakeRetry)
	}
}

// fakeStatus is that of a pod all of whose containers run and are ready.
func fakeStatus(w fakeWork, now time.Time) corev1.PodStatus {
	r := &record{Node: w.node.Name, Started: now, Network: string(w.pod.UID), Hosts: w.node.shape.NodeAddrs(w.node.Node)}
	if w.slot != 0 {
		r.Addresses = w.node.shape.PodAddrs(w.node.Node, int(w.slot))
	}
	for i := range w.pod.Spec.InitContainers {
		spec := &w.pod.Spec.InitContainers[i]
		c := r.container(spec.Name)
		c.Current = &attempt{ID: attemptID(w.pod.UID, spec.Name, 0), Begun: now}
		c.Started, c.Passing = true, true
		if !isSidecar(spec) {
			c.Current.Ended = now
		}
	}
	for i := range w.pod.Spec.Containers {
		name := w.pod.Spec.Containers[i].Name
		c := r.container(name)
		c.Current = &attempt{ID: attemptID(w.pod.UID, name, 0), Begun: now}
		c.Started, c.Passing = true, true
	}
	return podStatus(w.pod, r, backoff{}, now)
}

// remove takes in that a pod is no more.
func (f *fakes) remove(id uid) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop(id)
}

func (f *fakes) drop(id uid) {
	if have, ok := f.pods[id]; ok {
		delete(f.pods, id)
		if have.slot != 0 {
			have.node.slots.free(int(have.slot))
		}
	}
}

// retain drops all pods that are not there.
func (f *fakes) retain(there map[uid]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id := range f.pods {
		if !there[id] {
			f.drop(id)
		}
	}
}

// leave drops the pods of a node that left.
func (f *fakes) leave(node string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, have := range f.pods {
		if have.node.Name == node {
			f.drop(id)
		}
	}
}
