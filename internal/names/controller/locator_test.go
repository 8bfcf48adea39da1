package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/topology"
)

func TestLifeOfAPod(t *testing.T) {
	w := newWorld(t, aNode("n1", "a"))
	pod := aPod("web", "")
	w.make(pod)
	w.sync("web")
	pod.Spec.NodeName = "n1"
	w.update(pod)
	w.sync("web") // no address yet
	pod.Status.PodIPs = []corev1.PodIP{{IP: "10.9.0.1"}}
	w.update(pod)
	w.sync("web", "create web")
	w.wantLocator("web", "10.9.0.1 on n1: zone=a")
	owner := w.locator("web").OwnerReferences
	if len(owner) != 1 || owner[0].UID != pod.UID || owner[0].Kind != "Pod" || owner[0].BlockOwnerDeletion != nil {
		t.Errorf("the owner is %+v", owner)
	}
	if l := w.locator("web"); l.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedByController || !l.PodCreationTimestamp.Time.Equal(podCreated) {
		t.Errorf("the labels are %v, the pod was created %v", l.Labels, l.PodCreationTimestamp)
	}
	w.sync("web")
	pod.Labels = map[string]string{"a": "b"}
	w.update(pod)
	w.sync("web")
	pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: "fd00::1"})
	w.update(pod)
	w.sync("web", "update web")
	w.wantLocator("web", "10.9.0.1 fd00::1 on n1: zone=a")
	w.start(testOptions())
	w.sync("web")
	pod.Status.Phase = corev1.PodSucceeded
	w.update(pod)
	w.sync("web", "delete web")
	pod.Status.Phase = corev1.PodRunning
	w.update(pod)
	w.sync("web", "create web")
	w.remove(pod)
	w.sync("web", "delete web")
	w.sync("web")
}

func TestNodes(t *testing.T) {
	node := aNode("n1", "a")
	w := newWorld(t, aPod("web", "n1", "10.9.0.1"))
	w.sync("web", "create web")
	w.wantLocator("web", "10.9.0.1 on : ")
	w.make(node) // created after its pod
	w.sync("web", "update web")
	w.wantLocator("web", "10.9.0.1 on n1: zone=a")
	node.Labels["other"] = "y"
	w.update(node)
	w.sync("web")
	node.Labels[topology.Zone] = "b"
	w.update(node)
	w.sync("web", "update web")
	w.wantLocator("web", "10.9.0.1 on n1: zone=b")
	delete(node.Labels, topology.Zone)
	w.update(node)
	w.sync("web", "update web")
	w.wantLocator("web", "10.9.0.1 on n1: ")
	w.remove(node)
	w.sync("web", "update web")
	w.wantLocator("web", "10.9.0.1 on : ")
	w.make(aNode("n1", "c")) // recreated
	w.sync("web", "update web")
	w.wantLocator("web", "10.9.0.1 on n1: zone=c")
}

func TestModes(t *testing.T) {
	host := aPod("host", "n1", "192.0.2.1")
	host.Spec.HostNetwork = true
	failed := aPod("failed", "n1", "10.9.0.4")
	failed.Status.Phase = corev1.PodFailed
	virtual := aNode("virtual", "v")
	virtual.Spec.PodCIDRs = nil
	older := aNode("older", "o")
	older.Spec = corev1.NodeSpec{PodCIDR: "10.1.0.0/24"}
	objects := []client.Object{
		aNode("n1", "a"), virtual, older, host, failed,
		aPod("near", "n1", "10.1.0.1", "fd00:1::1"),
		aPod("half", "n1", "10.1.0.2", "fd00:2::1"),
		aPod("elsewhere", "virtual", "10.1.0.3"),
		aPod("old", "older", "10.1.0.4"),
		aPod("lost", "unknown", "10.1.0.5"),
	}
	for _, test := range []struct {
		mode Mode
		want string
	}{
		{All, "near half elsewhere old lost"},
		{Auto, "half elsewhere"},
	} {
		t.Run(string(test.mode), func(t *testing.T) {
			w := newWorld(t, objects...)
			options := testOptions()
			options.Mode = test.mode
			w.start(options)
			for _, name := range strings.Fields("near half elsewhere old lost host failed none") {
				if strings.Contains(test.want, name) {
					w.sync(name, "create "+name)
				} else {
					w.sync(name)
				}
			}
		})
	}
	t.Run("from all to auto", func(t *testing.T) {
		w := newWorld(t, objects...)
		w.sync("near", "create near")
		w.sync("half", "create half")
		options := testOptions()
		options.Mode = Auto
		w.start(options)
		w.sync("near", "delete near")
		w.sync("half")
		w.remove(aNode("n1", ""))
		w.sync("near")
		w.sync("half", "update half")
		w.wantLocator("half", "10.1.0.2 fd00:2::1 on : ")
	})
}

func TestOwnership(t *testing.T) {
	owned := func(name string, uid types.UID) *v1alpha1.PodLocator {
		return &v1alpha1.PodLocator{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: name, UID: types.UID("locator-" + name), Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByController},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: uid}},
			},
			IPs: []string{"10.9.9.9"}, NodeName: "n9", NodeLabels: map[string]string{topology.Zone: "z", "bad key": "x"},
		}
	}
	behind := owned("behind", "") // of a pod deleted without its dependents
	behind.OwnerReferences = nil
	behindAgain := behind.DeepCopy()
	behindAgain.Name = "behind-again"
	unlabelled := owned("unlabelled", "uid-unlabelled")
	unlabelled.Labels = map[string]string{"a": "b"} // and is right but for that
	created := metav1.NewTime(podCreated)
	unlabelled.IPs, unlabelled.NodeName, unlabelled.NodeLabels, unlabelled.PodCreationTimestamp = []string{"10.9.0.5"}, "n1", map[string]string{topology.Zone: "a"}, &created
	old := owned("old", "uid-old")
	earlier := metav1.NewTime(podCreated.Add(-time.Hour))
	old.IPs, old.NodeName, old.NodeLabels, old.PodCreationTimestamp = []string{"10.9.0.6"}, "n1", map[string]string{topology.Zone: "a"}, &earlier
	foreign := owned("foreign", "")
	foreign.Labels = map[string]string{v1alpha1.LabelManagedBy: "helm"}
	foreign.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "x", UID: "1"}}
	host := aPod("host", "n1", "192.0.2.1")
	host.Spec.HostNetwork = true
	foreignToHost := foreign.DeepCopy()
	foreignToHost.Name = "host"
	taken := foreign.DeepCopy()
	taken.Name = "taken"
	w := newWorld(t, aNode("n1", "a"), host,
		owned("malformed", "uid-malformed"), aPod("malformed", "n1", "10.9.0.1"),
		owned("again", "uid-before"), aPod("again", "n1", "10.9.0.2"),
		owned("gone", "uid-gone"), behind,
		behindAgain, aPod("behind-again", "n1", "10.9.0.4"),
		unlabelled, aPod("unlabelled", "n1", "10.9.0.5"),
		old, aPod("old", "n1", "10.9.0.6"),
		foreign, foreignToHost,
		taken, aPod("taken", "n1", "10.9.0.3"),
	)
	w.sync("malformed", "update malformed")
	w.wantLocator("malformed", "10.9.0.1 on n1: zone=a")
	w.sync("again", "delete again", "create again")
	w.wantLocator("again", "10.9.0.2 on n1: zone=a")
	w.sync("gone", "delete gone")
	w.sync("behind", "delete behind")
	w.sync("behind-again", "delete behind-again", "create behind-again")
	w.wantLocator("behind-again", "10.9.0.4 on n1: zone=a")
	w.sync("unlabelled", "update unlabelled")
	if l := w.locator("unlabelled"); l.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedByController || l.Labels["a"] != "b" {
		t.Errorf("the labels are %v", l.Labels)
	}
	w.sync("old", "update old")
	if l := w.locator("old"); !l.PodCreationTimestamp.Time.Equal(podCreated) {
		t.Errorf("the pod was created %v", l.PodCreationTimestamp)
	}
	w.sync("foreign")
	w.sync("host")
	if events := w.events(); len(events) > 0 {
		t.Errorf("the events are %q", events)
	}
	w.sync("taken", "delete taken", "create taken")
	w.wantLocator("taken", "10.9.0.3 on n1: zone=a")
	if events := w.events(); len(events) != 1 || !strings.HasPrefix(events[0], "Warning PodLocatorReplaced PodLocator taken was not made for this pod") {
		t.Errorf("the events are %q", events)
	}
}

func TestLabels(t *testing.T) {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "s", Annotations: map[string]string{v1alpha1.AnnotationTopologyKeys: rack + ",*"}}}
	policy := &v1alpha1.RoutingPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "p"}, Spec: v1alpha1.RoutingPolicySpec{Keys: []string{rack, "*"}}}
	clusterPolicy := &v1alpha1.ClusterRoutingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	clusterPolicy.Spec.Keys = []string{rack, "*"}
	for _, test := range []struct {
		name   string
		object client.Object
		want   string
	}{
		{"by default", nil, "zone=a"},
		{"a Service names one", service, "name=r1 zone=a"},
		{"a policy names one", policy, "name=r1 zone=a"},
		{"a policy of the cluster names one", clusterPolicy, "name=r1 zone=a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			objects := []client.Object{aNode("n1", "a"), aPod("web", "n1", "10.9.0.1")}
			if test.object != nil {
				objects = append(objects, test.object.DeepCopyObject().(client.Object))
			}
			w := newWorld(t, objects...)
			w.sync("web", "create web")
			w.wantLocator("web", "10.9.0.1 on n1: "+test.want)
		})
	}
}

// A label with an unused key costs no write. A copied label with another value does.
func TestUnusedLabels(t *testing.T) {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "s", Annotations: map[string]string{v1alpha1.AnnotationTopologyKeys: rack + ",*"}}}
	node := aNode("n1", "a")
	w := newWorld(t, node, aPod("web", "n1", "10.9.0.1"))
	w.sync("web", "create web")
	q := priorityqueue.New[reconcile.Request]("test")
	defer q.ShutDown()
	queued := func(want int) {
		t.Helper()
		if err := w.reconciler.labels.refresh(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		for range want {
			if _, priority, _ := q.GetWithPriority(); priority >= 0 {
				t.Errorf("the priority is %d", priority)
			}
		}
		if q.Len() != 0 {
			t.Errorf("%d more pods are queued", q.Len())
		}
	}
	queued(0)
	w.make(service)
	queued(1)
	w.sync("web", "update web")
	w.wantLocator("web", "10.9.0.1 on n1: name=r1 zone=a")
	w.remove(service)
	queued(0)
	w.sync("web")
	w.start(testOptions())
	w.sync("web")
	w.wantLocator("web", "10.9.0.1 on n1: name=r1 zone=a")
	node.Labels[rack] = "r2"
	w.update(node)
	w.sync("web", "update web")
	w.wantLocator("web", "10.9.0.1 on n1: zone=a")
}

// Services without keys do not cause a new read of all Services.
func TestChangedKeys(t *testing.T) {
	plain := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "s"}}
	naming := plain.DeepCopy()
	naming.Annotations = map[string]string{v1alpha1.AnnotationTopologyKeys: rack + ",*"}
	synctest.Test(t, func(t *testing.T) {
		labels, reads := newLabelWatcher(nil), 0
		count := labels.changes.Source("reading keys", func(context.Context, queue) error { reads++; return nil })
		if err := count.Start(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		handler := labels.handler()
		update := func(before, after client.Object) {
			handler.Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, nil)
		}
		for _, test := range []struct {
			name string
			send func()
			want int
		}{
			{"created without keys", func() { handler.Create(t.Context(), event.CreateEvent{Object: plain}, nil) }, 0},
			{"another change", func() { update(naming, naming) }, 0},
			{"deleted without keys", func() { handler.Delete(t.Context(), event.DeleteEvent{Object: plain}, nil) }, 0},
			{"created", func() { handler.Create(t.Context(), event.CreateEvent{Object: naming}, nil) }, 1},
			{"names keys now", func() { update(plain, naming) }, 1},
			{"names none any more", func() { update(naming, plain) }, 1},
			{"deleted", func() { handler.Delete(t.Context(), event.DeleteEvent{Object: naming}, nil) }, 1},
		} {
			reads = 0
			test.send()
			time.Sleep(2 * gatherTime)
			synctest.Wait()
			if reads != test.want {
				t.Errorf("%s: the keys are read %d times, want %d", test.name, reads, test.want)
			}
		}
	})
}

// The delay of a PodLocator begins with the pod's first addresses. Pods of the first list had theirs earlier.
func TestArrivals(t *testing.T) {
	w := newWorld(t)
	key := types.NamespacedName{Namespace: "shop", Name: "web"}
	pending, located, moved := aPod("web", "n1"), aPod("web", "n1", "10.9.0.1"), aPod("web", "n1", "10.9.0.2")
	pods := w.reconciler.podHandler()
	q := priorityqueue.New[reconcile.Request]("test")
	defer q.ShutDown()
	update := func(before, after *corev1.Pod) {
		pods.Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, q)
	}
	for _, test := range []struct {
		name string
		send func()
		want bool
	}{
		{"of the first list", func() { pods.Create(t.Context(), event.CreateEvent{Object: located, IsInInitialList: true}, q) }, false},
		{"another address", func() { update(located, moved) }, false},
		{"created without one", func() { pods.Create(t.Context(), event.CreateEvent{Object: pending}, q) }, false},
		{"the first address", func() { update(pending, located) }, true},
		{"gone", func() { pods.Delete(t.Context(), event.DeleteEvent{Object: located}, q) }, false},
		{"created with one", func() { pods.Create(t.Context(), event.CreateEvent{Object: located}, q) }, true},
	} {
		test.send()
		if _, noted := w.reconciler.arrivals.Load(key); noted != test.want {
			t.Errorf("%s: it is recorded: %t", test.name, noted)
		}
		if got, _, _ := q.GetWithPriority(); got.NamespacedName != key {
			t.Errorf("%s: queued is %s", test.name, got)
		} else {
			q.Done(got)
		}
	}
}

func TestFailedWrites(t *testing.T) {
	w := newWorld(t, aNode("n1", "a"), aPod("web", "n1", "10.9.0.1"))
	answer := error(apierrors.NewAlreadyExists(schema.GroupResource{Group: "vicinity.dev", Resource: "podlocators"}, "web"))
	w.refuse = func(string) error { return answer }
	if result := w.sync("web", "create web"); result.RequeueAfter != shell.ConflictWait {
		t.Errorf("after a conflict: %+v", result)
	}
	answer = apierrors.NewInternalError(errors.New("overloaded"))
	if _, err := w.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web"}}); err == nil {
		t.Error("a failure is no error")
	}
	w.writes, w.refuse = nil, nil
	w.sync("web", "create web")
}
