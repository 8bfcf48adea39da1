package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/rollout"
)

// surging has the Deployment db: four ready pods of revision 1, two in each of two zones, and two held pods of revision 2.
func surging(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, v1alpha1.KindDeployment, "")
	for i := range 4 {
		if err := w.client.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("db-%d", i)}}); err != nil {
			t.Fatal(err)
		}
	}
	w.make(gated(4))
	w.make(setOf("1", 4, 1000), setOf("2", 2, 2000))
	for i := range 4 {
		w.make(podOfSet("1", fmt.Sprintf("old-%d", i), fmt.Sprintf("n%d", i)))
	}
	w.make(podOfSet("2", "new-0", ""), podOfSet("2", "new-1", ""))
	return w
}

func (w *world) make(objects ...client.Object) {
	w.Helper()
	for _, object := range objects {
		if err := w.client.Create(w.Context(), object); err != nil {
			w.Fatal(err)
		}
	}
}

// gated is a Deployment at revision 2 whose pods have the scheduling gate.
func gated(replicas int32) *appsv1.Deployment {
	gates := []corev1.PodSchedulingGate{{Name: v1alpha1.RolloutGate}}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", UID: "db", Generation: 1, Annotations: map[string]string{v1alpha1.AnnotationDeploymentRevision: "2"}},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{SchedulingGates: gates}},
			Strategy: appsv1.DeploymentStrategy{
				Type:          appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: new(intstr.FromInt32(0)), MaxSurge: new(intstr.FromInt32(2))},
			},
		},
		Status: appsv1.DeploymentStatus{ObservedGeneration: 1},
	}
}

// setOf is the ReplicaSet of a revision. Its hash is the revision.
func setOf(revision string, replicas int32, created int64) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "db-" + revision, UID: types.UID("set-" + revision), CreationTimestamp: metav1.Unix(created, 0),
			Annotations:     map[string]string{v1alpha1.AnnotationDeploymentRevision: revision},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(gated(4), appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: revision, "app": "db"},
		}}},
	}
}

// podOfSet is a ready pod on a node, or a held pod without one.
func podOfSet(revision, name, node string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID(name), Labels: map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: revision},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(setOf(revision, 0, 0), appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
		},
		Spec: corev1.PodSpec{NodeName: node},
	}
	if node == "" {
		pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1alpha1.RolloutGate}}
		return pod
	}
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Unix(1000, 0)}
	pod.Status.Conditions = []corev1.PodCondition{ready}
	return pod
}

func (w *world) pod(name string) *corev1.Pod {
	w.Helper()
	pod := &corev1.Pod{}
	if err := w.client.Get(w.Context(), types.NamespacedName{Namespace: "shop", Name: name}, pod); err != nil {
		w.Fatal(err)
	}
	return pod
}

func (w *world) change(name string, change func(*corev1.Pod)) {
	w.Helper()
	pod := w.pod(name)
	change(pod)
	if err := w.client.Update(w.Context(), pod); err != nil {
		w.Fatal(err)
	}
}

// run makes a released pod ready on a node.
func (w *world) run(name, node string) {
	w.Helper()
	w.change(name, func(pod *corev1.Pod) { pod.Spec.NodeName = node })
	pod := w.pod(name)
	pod.Status = podOfSet("2", name, node).Status
	if err := w.client.Status().Update(w.Context(), pod); err != nil {
		w.Fatal(err)
	}
}

func (w *world) remove(name string) {
	w.Helper()
	if err := w.client.Delete(w.Context(), w.pod(name)); err != nil {
		w.Fatal(err)
	}
}

// released returns the pods that wait for a node without the gate.
func (w *world) released() (names []string) {
	w.Helper()
	var list corev1.PodList
	if err := w.client.List(w.Context(), &list); err != nil {
		w.Fatal(err)
	}
	for i := range list.Items {
		if pod := &list.Items[i]; !isHeld(pod) && pod.Spec.NodeName == "" {
			names = append(names, pod.Name)
		}
	}
	return names
}

func (w *world) waitingFor() string { w.Helper(); return w.rollout("db").Status.WaitingFor }

// Before a pod is released, its old pod is stored, reserved and marked. Only one is released at a time.
func TestReleasesInOrder(t *testing.T) {
	w := surging(t)
	for range 3 {
		w.sync("db", time.Second)
	}
	old, come := w.pod("old-1"), w.pod("new-0")
	if !isMarked(old) || isMarked(w.pod("old-0")) || len(w.reserved) == 0 || w.reserved[0] != "old-1" || !slices.Contains(w.held, "old-1") {
		t.Errorf("old-1 has the annotations %v; reserved are %v, and held %v", old.Annotations, w.reserved, w.held)
	}
	if isHeld(come) || come.Spec.NodeSelector[corev1.LabelTopologyZone] != "a" || come.Annotations[v1alpha1.AnnotationReleasedFor] != "old-1" || releasedAt(come).IsZero() || !isHeld(w.pod("new-1")) {
		t.Errorf("new-0 is %+v, %v", come.Spec, come.Annotations)
	}
	// If the Deployment deletes an unready pod instead, the next pod is released for the same old one.
	w.run("new-0", "n0")
	w.remove("old-3")
	w.sync("db", time.Second)
	if got := w.pod("new-1"); isHeld(got) || got.Annotations[v1alpha1.AnnotationReleasedFor] != "old-1" {
		t.Errorf("new-1 is %+v, %v", got.Spec, got.Annotations)
	}
	w.run("new-1", "n0")
	w.remove("old-1")
	w.make(podOfSet("2", "new-2", ""))
	w.sync("db", time.Second)
	w.sync("db", time.Second) // the status of the last sync takes effect
	if got := w.pod("new-2"); isHeld(got) || got.Annotations[v1alpha1.AnnotationReleasedFor] != "old-0" {
		t.Errorf("new-2 is %+v, %v; %s", got.Spec, got.Annotations, w.waitingFor())
	}
}

// If the controller ends after any write, the next one releases no other pod, and none without a mark.
func TestReleasesOnceWhereverItEnds(t *testing.T) {
	for end := 1; ; end++ {
		w := surging(t)
		writes := 0
		errEnd := errors.New("the controller ends")
		dies := func() error {
			if writes++; writes > end {
				return errEnd
			}
			return nil
		}
		w.r.client = interceptor.NewClient(w.client, interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
				return errors.Join(dies(), ctx.Err(), lastly(writes <= end, func() error { return c.Patch(ctx, o, p, options...) }))
			},
			SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, options ...client.SubResourceUpdateOption) error {
				return errors.Join(dies(), lastly(writes <= end, func() error { return c.SubResource(sub).Update(ctx, o, options...) }))
			},
		})
		_, err := w.r.sync(t.Context(), requestOf("db"))
		done := err == nil
		w.restart()
		for range 3 {
			w.sync("db", 2*askTime)
		}
		if got := w.released(); !slices.Equal(got, []string{"new-0"}) || !isMarked(w.pod("old-1")) {
			t.Errorf("after %d writes, released are %v, and old-1 has %v", end, got, w.pod("old-1").Annotations)
		}
		if done {
			if end < 3 {
				t.Errorf("the sync makes only %d writes", end)
			}
			return
		}
	}
}

func lastly(do bool, f func() error) error {
	if !do {
		return nil
	}
	return f()
}

// No pod is released for an old pod whose eviction is refused or whose cost has another owner.
func TestReleasesNothingThatIsRefused(t *testing.T) {
	cost := func(value string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Annotations = map[string]string{corev1.PodDeletionCost: value} }
	}
	for name, test := range map[string]struct {
		change func(w *world)
		says   string
	}{
		"by the eviction API":     {func(w *world) { w.denied["old-0"], w.denied["old-1"] = true, true }, "the budget is used up"},
		"by a budget":             {func(w *world) { w.blocked["old-0"], w.blocked["old-1"] = true, true }, "none may go"},
		"a cost of another owner": {func(w *world) { w.change("old-1", cost("7")); w.change("old-0", cost("7")) }, "another owner set its annotation " + corev1.PodDeletionCost},
		"another has the lowest":  {func(w *world) { w.change("old-3", cost(v1alpha1.RolloutDeletionCost)) }, "would delete pod old-3 instead"},
	} {
		w := surging(t)
		test.change(w)
		w.clock.SetTime(w.clock.Now().Add(2 * unknownTime))
		for range 4 {
			w.sync("db", 100*time.Millisecond)
		}
		if got := w.released(); len(got) > 0 || !strings.Contains(w.waitingFor(), test.says) {
			t.Errorf("%s: released are %v; it waits for %q", name, got, w.waitingFor())
		}
	}
}

// Missing pods are released at once, whatever the rollout waits for. The others stay held.
func TestReleasesWhatIsMissing(t *testing.T) {
	for name, test := range map[string]struct {
		change func(w *world)
		want   []string
	}{
		"nothing is": {func(*world) {}, nil},
		"an old pod, which its ReplicaSet has made again": {func(w *world) { w.remove("old-3"); w.make(podOfSet("1", "again", "")) }, []string{"again"}},
		"an old pod, which its ReplicaSet makes soon":     {func(w *world) { w.remove("old-3") }, nil},
		"pods of a scale-up": {func(w *world) {
			w.scale(6)
			w.resize("1", 5)
			w.make(podOfSet("1", "more", ""))
		}, []string{"more", "new-0"}},
		"an old pod, and there are some of a revision between": {func(w *world) {
			w.remove("old-3")
			w.make(setOf("x", 1, 1500), podOfSet("x", "left", ""), podOfSet("1", "again", ""))
		}, []string{"again"}},
		"nothing is, and there are some of a revision between": {func(w *world) { w.make(setOf("x", 1, 1500), podOfSet("x", "left", "")) }, nil},
	} {
		w := surging(t)
		w.patch(func(d *v1alpha1.DomainRollout) { d.Spec.Paused = true })
		w.sync("db", time.Second)
		test.change(w)
		w.sync("db", time.Millisecond)
		if got := w.released(); !slices.Equal(got, test.want) {
			t.Errorf("%s: released are %v, want %v", name, got, test.want)
		}
	}
}

// If an old ReplicaSet does not create its pods within a few seconds, other pods are released.
func TestReleasesAnotherPodInstead(t *testing.T) {
	w := surging(t)
	w.patch(func(d *v1alpha1.DomainRollout) { d.Spec.Paused = true })
	w.remove("old-3")
	if again := w.sync("db", time.Second).RequeueAfter; again <= 0 || again > shortTime || len(w.released()) > 0 {
		t.Fatalf("it requeues after %v, and released are %v", again, w.released())
	}
	w.sync("db", shortTime)
	if got := w.released(); !slices.Equal(got, []string{"new-0"}) {
		t.Errorf("then released are %v", got)
	}
}

// A Deployment that cannot be updated by domain still gets its missing pods.
func TestReleasesWhatIsMissingWithoutARollout(t *testing.T) {
	w := surging(t)
	w.rewrite(func(d *appsv1.Deployment) { d.Spec.Strategy.RollingUpdate.MaxUnavailable = new(intstr.FromInt32(1)) })
	w.remove("old-3")
	w.resize("1", 3)
	w.sync("db", time.Second)
	if got := w.released(); !slices.Equal(got, []string{"new-0"}) || w.rollout("db").Status.Phase != v1alpha1.PhaseInvalid {
		t.Errorf("released are %v; %s", got, w.waitingFor())
	}
}

// A mark stays while its pod is about to go for a released one, even if the Deployment becomes invalid.
func TestUnmarksWithoutARollout(t *testing.T) {
	w := surging(t)
	w.sync("db", time.Second)
	w.rewrite(func(d *appsv1.Deployment) { d.Spec.Template.Spec.SchedulingGates = nil })
	w.sync("db", time.Second)
	if !isMarked(w.pod("old-1")) {
		t.Error("the mark is removed while new-0 comes")
	}
	w.run("new-0", "n0")
	w.remove("old-3") // not by the rollout
	w.sync("db", time.Second)
	if old := w.pod("old-1"); isMarked(old) {
		t.Errorf("old-1 has %v", old.Annotations)
	}
}

// A rollback removes the marks.
func TestUnmarks(t *testing.T) {
	w := surging(t)
	w.sync("db", time.Second)
	w.reset("1", func(set *appsv1.ReplicaSet) { set.Annotations[v1alpha1.AnnotationDeploymentRevision] = "3" })
	w.rewrite(func(d *appsv1.Deployment) { d.Annotations[v1alpha1.AnnotationDeploymentRevision] = "3" })
	w.sync("db", time.Second)
	if old := w.pod("old-1"); isMarked(old) || old.Annotations[corev1.PodDeletionCost] != "" {
		t.Errorf("old-1 has %v", old.Annotations)
	}
}

// A new DomainRollout knows nothing of the pod released for old-1. Its mark must make the Deployment delete it.
func TestKeepsMarksOfARolloutThatIsMadeAnew(t *testing.T) {
	w := surging(t)
	w.sync("db", time.Second)
	d := w.rollout("db")
	if err := w.client.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	w.sync("db", time.Second)
	w.make(&v1alpha1.DomainRollout{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", UID: "2", Generation: 1, CreationTimestamp: metav1.Unix(2000, 0)},
		Spec:       v1alpha1.DomainRolloutSpec{TargetRef: d.Spec.TargetRef, TopologyKey: d.Spec.TopologyKey, Paused: true},
	})
	w.sync("db", time.Second)
	if !isMarked(w.pod("old-1")) {
		t.Error("the mark is removed while new-0 comes")
	}
	w.run("new-0", "n0")
	w.sync("db", time.Second)
	if !isMarked(w.pod("old-1")) {
		t.Error("the mark is removed when new-0 has come")
	}
	w.remove("old-3") // so the Deployment deletes none
	w.sync("db", time.Second)
	if isMarked(w.pod("old-1")) {
		t.Error("the mark stays")
	}
}

// rewrite changes the Deployment.
func (w *world) rewrite(change func(*appsv1.Deployment)) {
	w.Helper()
	d := gated(0)
	if err := w.client.Get(w.Context(), client.ObjectKeyFromObject(d), d); err != nil {
		w.Fatal(err)
	}
	change(d)
	if err := errors.Join(w.client.Update(w.Context(), d), w.client.Status().Update(w.Context(), d)); err != nil {
		w.Fatal(err)
	}
}

// A paused Deployment deletes no pod. So only missing pods are released, and the status says so.
func TestPausedDeployment(t *testing.T) {
	w := surging(t)
	w.rewrite(func(d *appsv1.Deployment) { d.Spec.Paused = true })
	for range 3 {
		w.sync("db", time.Second)
	}
	if got := w.released(); len(got) > 0 || !strings.Contains(w.waitingFor(), "kubectl rollout resume deployment db") {
		t.Errorf("released are %v; it waits for %q", got, w.waitingFor())
	}
	w.remove("old-3")
	w.make(podOfSet("1", "again", ""))
	w.sync("db", time.Second)
	if got := w.released(); !slices.Equal(got, []string{"again"}) {
		t.Errorf("then released are %v", got)
	}
	w.rewrite(func(d *appsv1.Deployment) { d.Spec.Paused = false })
	w.run("again", "n3")
	w.sync("db", time.Second)
	if got := w.released(); !slices.Equal(got, []string{"new-0"}) {
		t.Errorf("after resume, released are %v; it waits for %q", got, w.waitingFor())
	}
}

// No pod is released if the Deployment becomes invalid between the decision and the release.
func TestReleasesNothingForADeploymentThatChanges(t *testing.T) {
	for name, change := range map[string]func(*appsv1.Deployment){
		"as ever": func(*appsv1.Deployment) {},
		"paused":  func(d *appsv1.Deployment) { d.Spec.Paused = true },
		"another strategy": func(d *appsv1.Deployment) {
			d.Spec.Strategy.RollingUpdate.MaxUnavailable = new(intstr.FromInt32(1))
		},
	} {
		w := surging(t)
		w.denied["old-0"], w.denied["old-1"] = true, true
		w.sync("db", time.Second)
		w.denied = nil
		d := w.rollout("db")
		target, err := readTarget(t.Context(), w.client, d)
		if err != nil {
			t.Fatal(err)
		}
		v, err := w.r.read(t.Context(), d, target)
		if err != nil || len(d.Status.Replacements) != 1 {
			t.Fatalf("%v, %+v", err, d.Status.Replacements)
		}
		w.rewrite(change)
		e := d.Status.Replacements[0]
		if err := w.r.surge(t.Context(), newNotes(), d, v, rollout.Target{UID: string(e.UID), Pod: e.Pod, Domain: e.Domain}); err != nil {
			t.Fatal(err)
		}
		if got := w.released(); (len(got) == 0) != (name != "as ever") {
			t.Errorf("%s: released are %v", name, got)
		}
	}
}

// Until the Deployment has observed its template, its revision is unknown: an old revision that comes back becomes the newest. If that
// lasts, pods of the old template are released.
func TestRevisionThatIsNotKnown(t *testing.T) {
	counts := func(w *world) {
		w.reset("1", func(set *appsv1.ReplicaSet) { set.Annotations[v1alpha1.AnnotationDeploymentRevision] = "3" })
	}
	unseen := func(w *world) { w.rewrite(func(d *appsv1.Deployment) { d.Generation++ }) }
	for name, test := range map[string]struct {
		change func(*world)
		want   []string
	}{
		"a template that is not seen":    {unseen, []string{"again"}},
		"a template that is not counted": {counts, []string{"new-1"}}, // pods of revision 1 may be of the new template
	} {
		w := surging(t)
		w.sync("db", time.Second)
		before := w.released()
		w.run("new-0", "n0")
		w.remove("old-1")
		w.remove("old-3")
		w.make(podOfSet("1", "again", ""), podOfSet("2", "new-2", ""))
		test.change(w)
		w.sync("db", time.Millisecond)
		if got := w.released(); !slices.Equal(before, []string{"new-0"}) || len(got) > 0 {
			t.Errorf("%s: released are %v at once", name, got)
		}
		w.sync("db", shortTime)
		w.sync("db", shortTime)
		if got := w.released(); !slices.Equal(got, test.want) || !strings.Contains(w.waitingFor(), "kubectl describe deployment db") {
			t.Errorf("%s: released are %v; it waits for %q", name, got, w.waitingFor())
		}
	}
}

// A Deployment without a DomainRollout gets its missing pods and an event.
func TestReleasesWithoutADomainRollout(t *testing.T) {
	w := surging(t)
	w.sync("db", time.Second) // releases new-0 for old-1
	w.remove("old-3")
	w.make(podOfSet("1", "again", ""))
	u := newUnfollowed(w.r)
	recorder := events.NewFakeRecorder(10)
	u.recorder = recorder
	sync := func(after time.Duration) (again time.Duration) {
		t.Helper()
		w.clock.SetTime(w.clock.Now().Add(after))
		again, err := u.sync(t.Context(), requestOf("db"))
		if err != nil {
			t.Fatal(err)
		}
		return again
	}
	if again := sync(time.Hour); again != 0 || isHeld(w.pod("new-0")) || !isHeld(w.pod("again")) {
		t.Fatalf("with a DomainRollout, it requeues after %v, and released are %v", again, w.released())
	}
	if err := w.client.Delete(t.Context(), w.rollout("db")); err != nil {
		t.Fatal(err)
	}
	if again := sync(time.Second); again != unfollowedTime || !isHeld(w.pod("again")) {
		t.Errorf("it requeues after %v, and released are %v", again, w.released())
	}
	sync(unfollowedTime)
	if got := w.released(); !slices.Equal(got, []string{"again", "new-0"}) || !isMarked(w.pod("old-1")) {
		t.Errorf("released are %v, and old-1 has %v", got, w.pod("old-1").Annotations)
	}
	w.run("again", "n3")
	w.run("new-0", "n0")
	w.remove("old-0") // not by the rollout
	for range 5 {
		sync(shortTime)
	}
	if got := w.released(); len(got) > 0 || !isHeld(w.pod("new-1")) || isMarked(w.pod("old-1")) {
		t.Errorf("without missing pods, released are %v, and old-1 has %v", got, w.pod("old-1").Annotations)
	}
	select {
	case event := <-recorder.Events:
		if !strings.Contains(event, "NoDomainRollout") || len(recorder.Events) > 0 {
			t.Errorf("the event is %q, and %d more follow", event, len(recorder.Events))
		}
	default:
		t.Error("no event")
	}
}

func (w *world) scale(replicas int32) {
	w.Helper()
	w.rewrite(func(d *appsv1.Deployment) { d.Spec.Replicas = &replicas })
}

func (w *world) resize(revision string, replicas int32) {
	w.Helper()
	w.reset(revision, func(set *appsv1.ReplicaSet) { set.Spec.Replicas = &replicas })
}

// reset changes the ReplicaSet of a revision.
func (w *world) reset(revision string, change func(*appsv1.ReplicaSet)) {
	w.Helper()
	set := setOf(revision, 0, 0)
	if err := w.client.Get(w.Context(), client.ObjectKeyFromObject(set), set); err != nil {
		w.Fatal(err)
	}
	change(set)
	if err := w.client.Update(w.Context(), set); err != nil {
		w.Fatal(err)
	}
}

func TestDeploymentsThatCannotBeUpdated(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*appsv1.DeploymentSpec)
		reason string
		says   string
	}{
		"one that can be": {func(*appsv1.DeploymentSpec) {}, reasonValid, ""},
		"Recreate": {
			func(s *appsv1.DeploymentSpec) {
				s.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
			},
			reasonStrategy, "spec.strategy.type of Deployment db is Recreate, which deletes all its pods at once; set it to RollingUpdate, with maxUnavailable: 0",
		},
		"maxUnavailable": {
			func(s *appsv1.DeploymentSpec) {
				s.Strategy.RollingUpdate.MaxUnavailable = new(intstr.FromString("25%"))
			},
			reasonStrategy, "spec.strategy.rollingUpdate.maxUnavailable of Deployment db is 25%, so it deletes pods of any domain before their replacements are ready; set it to 0",
		},
		"no gate": {
			func(s *appsv1.DeploymentSpec) { s.Template.Spec.SchedulingGates = nil },
			reasonNotGated, "Deployment db creates pods without the scheduling gate, so it replaces them in any domain; add {name: vicinity.dev/rollout} to its spec.template.spec.schedulingGates",
		},
	} {
		w := newWorld(t, v1alpha1.KindDeployment, "")
		d := gated(4)
		test.change(&d.Spec)
		w.make(d, setOf("2", 4, 1000))
		w.sync("db", time.Second)
		got := w.rollout("db")
		valid := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionValid)
		if valid == nil || valid.Reason != test.reason || test.says != "" && valid.Message != test.says {
			t.Errorf("%s: %+v", name, valid)
		}
	}
}

// A new pod takes the slot of its old pod. All other pods have slots of their own.
func TestSlotsOfDeployments(t *testing.T) {
	in := func(revision, name, slot string) *corev1.Pod {
		pod := podOfSet(revision, name, "n")
		pod.Annotations = map[string]string{v1alpha1.AnnotationReleasedFor: slot}
		return pod
	}
	for name, test := range map[string]struct {
		pods     []*corev1.Pod
		replaced string // UID in slot a
		want     map[string]string
	}{
		"replaced":              {[]*corev1.Pod{podOfSet("1", "a", "n"), in("2", "b", "a")}, "a", map[string]string{"a": "a", "b": "a"}},
		"replaced twice":        {[]*corev1.Pod{podOfSet("1", "a", "n"), in("2", "b", "a"), in("2", "c", "a")}, "a", map[string]string{"a": "a", "b": "a", "c": "a"}},
		"two came":              {[]*corev1.Pod{in("2", "b", "a"), in("2", "c", "a")}, "", map[string]string{"b": "a", "c": "c"}},
		"two that came are old": {[]*corev1.Pod{in("1", "b", "a"), in("1", "c", "a")}, "c", map[string]string{"b": "b", "c": "a"}},
		"what came is old":      {[]*corev1.Pod{in("1", "b", "a")}, "gone", map[string]string{"b": "a"}},
		"the first one stays":   {[]*corev1.Pod{podOfSet("2", "a", "n"), in("1", "b", "a")}, "", map[string]string{"a": "a", "b": "b"}},
	} {
		m := &rollout.Memory{}
		if test.replaced != "" {
			m.Replacements = []v1alpha1.RolloutReplacement{{Slot: "a", UID: types.UID(test.replaced)}}
		}
		target := &target{revision: "2", deployment: &deployment{sets: []*appsv1.ReplicaSet{setOf("1", 0, 1), setOf("2", 0, 2)}}}
		got := map[string]string{}
		for _, p := range newFleet(target, test.pods, m).members {
			got[p.Name] = p.slot
		}
		if fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("%s: the slots are %v, want %v", name, got, test.want)
		}
	}
}

// A pod is released into the domain of the old one if a node there fits.
func TestWhereReplacementsMayBe(t *testing.T) {
	asks := func(key, value string) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}}}},
		}}}
	}
	zone := func(name string) map[string]string { return map[string]string{corev1.LabelTopologyZone: name} }
	for name, test := range map[string]struct {
		change func(w *world, pod *corev1.Pod)
		want   map[string]string
	}{
		"unchanged":                            {func(*world, *corev1.Pod) {}, zone("a")},
		"the template asks for it":             {func(_ *world, pod *corev1.Pod) { pod.Spec.NodeSelector = zone("a") }, zone("a")},
		"the template asks for another one":    {func(_ *world, pod *corev1.Pod) { pod.Spec.NodeSelector = zone("b") }, zone("b")},
		"the template's affinity leaves it":    {func(_ *world, pod *corev1.Pod) { pod.Spec.Affinity = asks(corev1.LabelTopologyZone, "a") }, zone("a")},
		"the template's affinity does not":     {func(_ *world, pod *corev1.Pod) { pod.Spec.Affinity = asks(corev1.LabelTopologyZone, "b") }, nil},
		"the template asks for no node there":  {func(_ *world, pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{"disk": "ssd"} }, map[string]string{"disk": "ssd"}},
		"the old pod has no node":              {func(w *world, _ *corev1.Pod) { w.unplace("old-0", "old-1", "old-2", "old-3") }, nil},
		"the old pods are on nodes without it": {func(w *world, _ *corev1.Pod) { w.unlabel("n0", "n1", "n2", "n3") }, nil},
	} {
		w := surging(t)
		w.change("new-0", func(pod *corev1.Pod) { test.change(w, pod) })
		asked := w.pod("new-0").Spec.Affinity
		for range 2 {
			w.sync("db", time.Second)
		}
		if pod := w.pod("new-0"); isHeld(pod) || pod.Annotations[v1alpha1.AnnotationReleasedFor] == "" ||
			!maps.Equal(pod.Spec.NodeSelector, test.want) || !equality.Semantic.DeepEqual(pod.Spec.Affinity, asked) {
			t.Errorf("%s: %v, %v, %v; %s", name, pod.Spec.NodeSelector, pod.Spec.Affinity, pod.Annotations, w.waitingFor())
		}
	}
}

// unplace removes the nodes and conditions of pods.
func (w *world) unplace(names ...string) {
	w.Helper()
	for _, name := range names {
		w.change(name, func(pod *corev1.Pod) { pod.Spec.NodeName = "" })
		w.condition(name)
	}
}

// condition replaces the conditions of a pod.
func (w *world) condition(name string, conditions ...corev1.PodCondition) {
	w.Helper()
	pod := w.pod(name)
	pod.Status.Conditions = conditions
	if err := w.client.Status().Update(w.Context(), pod); err != nil {
		w.Fatal(err)
	}
}

func (w *world) unlabel(names ...string) {
	w.Helper()
	for _, name := range names {
		if err := w.client.Update(w.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			w.Fatal(err)
		}
	}
}

// The controller does not trust a stale cache: a released pod is not denied, and a pod that became ready needs its budgets.
func TestReleasesWithALaggingCache(t *testing.T) {
	w := surging(t)
	w.clock.SetTime(w.clock.Now().Add(2 * unknownTime))
	before, _ := w.ByIndex("", "")
	w.sync("db", time.Second)
	if got := w.released(); !slices.Equal(got, []string{"new-0"}) {
		t.Fatalf("released are %v", got)
	}
	w.cached = before
	w.denied["old-1"] = true
	for range 2 {
		w.sync("db", 100*time.Millisecond)
	}
	if d := w.rollout("db"); len(d.Status.Replacements) != 1 || !isMarked(w.pod("old-1")) || len(w.released()) != 1 {
		t.Errorf("replacements are %+v, released %v, and old-1 has %v", d.Status.Replacements, w.released(), w.pod("old-1").Annotations)
	}

	w = surging(t)
	mark := map[string]string{corev1.PodDeletionCost: v1alpha1.RolloutDeletionCost, v1alpha1.AnnotationDeletionCost: v1alpha1.RolloutDeletionCost}
	ready := w.pod("old-1").Status.Conditions
	w.change("old-1", func(pod *corev1.Pod) { pod.Annotations = mark })
	w.condition("old-1")
	w.cached, _ = w.ByIndex("", "")
	w.condition("old-1", ready...)
	w.sync("db", time.Second)
	if got := w.released(); len(got) > 0 || len(w.reserved) > 0 {
		t.Errorf("released are %v, and reserved %v", got, w.reserved)
	}
}

func requestOf(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: name}}
}
