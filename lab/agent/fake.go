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

	"vicinity.dev/vicinity/lab/shape"
)

// fakes are the pods of nodes without network, and the store of the watch on pods. They become ready
// as soon as they are bound, or after the time in an annotation, and are deleted as soon as they are
// terminating. Little is kept of each, since there can be tens of thousands.
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

// fakeWork is a pod whose status must be written, or whose object must be deleted.
type fakeWork struct {
	pod  *corev1.Pod
	node *node
	slot uint8
}

// fakeWriters limits concurrent writes. Without a limit they would use up the API server.
const fakeWriters = 100

// fakeRetry is the pause before a failed write is repeated.
const fakeRetry = time.Second

func newFakes(a *agent) *fakes {
	return &fakes{agent: a, queue: workqueue.NewTypedDelayingQueue[fakeWork](), pods: map[uid]fakePod{}}
}

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

// setPod handles a new or changed pod. It queues a write if the pod is terminating or not ready, which
// also happens when the control plane marks its node as not ready.
func (f *fakes) setPod(n *node, pod *corev1.Pod) {
	over := podFinished(pod)
	unready := !over && !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	have, ok := f.pods[pod.UID]
	if !ok && !over {
		have = fakePod{node: n, slot: assignSlot(n, pod)}
		f.pods[pod.UID] = have
	}
	work := fakeWork{pod: pod, node: n, slot: have.slot}
	switch {
	case pod.DeletionTimestamp != nil:
		f.queue.Add(work)
	case unready:
		f.queue.AddAfter(work, startTime(pod, time.Now()))
	}
}

// startTime is how long a pod still takes to get ready. A pod that was ready before does not start
// again.
func startTime(pod *corev1.Pod, now time.Time) time.Duration {
	takes, err := time.ParseDuration(pod.Annotations[shape.AnnotationStartTime])
	if err != nil || pod.Status.Phase != corev1.PodPending {
		return 0
	}
	bound := pod.CreationTimestamp.Time
	if at := slices.IndexFunc(pod.Status.Conditions, ofType(corev1.PodScheduled)); at >= 0 {
		bound = pod.Status.Conditions[at].LastTransitionTime.Time
	}
	return max(0, bound.Add(takes).Sub(now))
}

// reserveAddress reserves the address that a pod already has.
func (f *fakes) reserveAddress(n *node, pod *corev1.Pod) {
	if podFinished(pod) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.pods[pod.UID]; ok || pod.Status.PodIP == "" {
		return
	}
	f.pods[pod.UID] = fakePod{node: n, slot: assignSlot(n, pod)}
}

func podFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// assignSlot returns the slot of the pod's address, or a new one, or 0 if all are taken.
func assignSlot(n *node, pod *corev1.Pod) uint8 {
	if addr, err := netip.ParseAddr(pod.Status.PodIP); err == nil {
		bytes := addr.AsSlice()
		n.slots.Hold(int(bytes[len(bytes)-1]))
		return bytes[len(bytes)-1]
	}
	slot, err := n.slots.Take()
	if err != nil {
		return 0
	}
	return uint8(slot)
}

func (f *fakes) write(ctx context.Context, w fakeWork) {
	if ctx.Err() != nil {
		return // the queued writes would fail
	}
	if w.node.stopped.Load() {
		f.queue.AddAfter(w, fakeRetry)
		return
	}
	short, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var err error
	if w.pod.DeletionTimestamp != nil {
		err = f.agent.deletePod(short, w.pod)
	} else {
		pod := *w.pod
		pod.Status = fakeStatus(w, time.Now())
		_, err = f.agent.client.CoreV1().Pods(pod.Namespace).UpdateStatus(short, &pod, metav1.UpdateOptions{})
	}
	// After a conflict, and for a deleted pod, the watch delivers the current state.
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		f.agent.Log.Warn("fake pod cannot be written", "pod", w.pod.Name, "error", err)
		f.queue.AddAfter(w, fakeRetry)
	}
}

// deletePod deletes a pod's object at once, unless another pod has the name by now.
func (a *agent) deletePod(ctx context.Context, pod *corev1.Pod) error {
	err := a.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func (f *fakes) forgetPod(id uid) {
	if have, ok := f.pods[id]; ok {
		delete(f.pods, id)
		if have.slot != 0 {
			have.node.slots.Free(int(have.slot))
		}
	}
}

func (f *fakes) removeNode(node string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, have := range f.pods {
		if have.node.Name == node {
			f.forgetPod(id)
		}
	}
}
