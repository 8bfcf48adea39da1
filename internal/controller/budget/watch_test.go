package budget

import (
	"maps"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// asked is a queue that notes after how long which budget is to be synced.
type asked struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	after map[string]time.Duration
}

func (a *asked) Add(request reconcile.Request) { a.after[request.Name] = 0 }

func (a *asked) AddAfter(request reconcile.Request, after time.Duration) {
	a.after[request.Name] = after
}

// What a budget depends on has it synced, and what it does not depend on has not. What users
// write of a budget is looked at at once, and what happens to pods is gathered.
func TestWhatHasABudgetSynced(t *testing.T) {
	now, gathered := map[string]time.Duration{"web": 0}, map[string]time.Duration{"web": gatherTime}
	w := newWorld(t, append(aShop(), perZone("web", 1))...)
	w.label(shop, marks)
	w.sync("web", status)
	update := func(h handler.EventHandler, before, after client.Object) map[string]time.Duration {
		q := &asked{after: map[string]time.Duration{}}
		h.Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, q)
		return q.after
	}
	edited := func(f func(*v1alpha1.TopologyDisruptionBudget)) map[string]time.Duration {
		before := w.budget("web")
		after := before.DeepCopy()
		f(after)
		return update(w.r.budgetHandler(), before, after)
	}
	changed := func(f func(*corev1.Pod)) map[string]time.Duration {
		after := pod("web-1", "a")
		f(after)
		return update(w.r.podHandler(), pod("web-1", "a"), after)
	}
	rolled := func(f func(*appsv1.Deployment)) map[string]time.Duration {
		after := deployment(4)
		f(after)
		return update(w.r.ownerHandler(), deployment(4), after)
	}
	for name, test := range map[string]struct{ got, want map[string]time.Duration }{
		"a spec":               {edited(func(b *v1alpha1.TopologyDisruptionBudget) { b.Generation++ }), now},
		"the annotation":       {edited(func(b *v1alpha1.TopologyDisruptionBudget) { b.Annotations = map[string]string{"a": "b"} }), now},
		"a reservation":        {edited(func(b *v1alpha1.TopologyDisruptionBudget) { b.ResourceVersion = "999" }), gathered},
		"its own write":        {edited(func(*v1alpha1.TopologyDisruptionBudget) {}), nil},
		"a pod's address":      {changed(func(p *corev1.Pod) { p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"}} }), nil},
		"a pod's version":      {changed(func(p *corev1.Pod) { p.ResourceVersion = "9" }), nil},
		"a pod's readiness":    {changed(func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }), gathered},
		"since when it is":     {changed(func(p *corev1.Pod) { p.Status.Conditions[0].LastTransitionTime = metav1.Now() }), gathered},
		"a pod's end":          {changed(func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }), gathered},
		"a pod's node":         {changed(func(p *corev1.Pod) { p.Spec.NodeName = "budget-b" }), gathered},
		"a pod's phase":        {changed(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), gathered},
		"a pod's label":        {changed(func(p *corev1.Pod) { p.Labels["app"] = "db" }), gathered},
		"a pod's owner":        {changed(func(p *corev1.Pod) { p.OwnerReferences = nil }), gathered},
		"replicas":             {rolled(func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(5)) }), gathered},
		"a Deployment's state": {rolled(func(d *appsv1.Deployment) { d.Status.ReadyReplicas = 3 }), nil},
	} {
		if !maps.Equal(test.got, test.want) {
			t.Errorf("%s: synced is %v, want %v", name, test.got, test.want)
		}
	}
}

// All budgets are synced some time after nodes change, once for a burst of them.
func TestNodesHaveAllBudgetsSynced(t *testing.T) {
	w := newWorld(t, append(aShop(), perZone("web", 1), perZone("db", 1))...)
	q := &asked{after: map[string]time.Duration{}}
	if err := w.r.enqueueAll(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(q.after)); !slices.Equal(got, []string{"db", "web"}) {
		t.Errorf("synced are %q", got)
	}
}
