package controller

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption/requester"
	"vicinity.dev/vicinity/internal/scaledown/pacing"
)

const zones = corev1.LabelTopologyZone

func TestCostsAreWrittenWhereTheyAreWrong(t *testing.T) {
	w := newWorld(t)
	w.deploy(4, v1alpha1.AnnotationKeepSpread, zones)
	w.pods("web-1", "a1x", "a2x", "a3x", "b1x")
	if after := w.sync(web); after != 0 {
		t.Errorf("it requeues after %s", after)
	}
	w.wrote("a1x=-3", "a2x=-2", "b1x=-1", "a3x=-1")
	w.sync(web)
	w.wrote()

	w.r = newReconciler(*w.r) // a restart
	w.sync(web)
	w.wrote()

	w.pods("web-1", "b2x")
	w.sync(web)
	w.wrote("b2x=-2")
	w.delete("a2x") // the order of the others stays right
	w.sync(web)
	w.wrote()
	// A terminating pod needs no cost and no longer counts.
	change(w, &corev1.Pod{}, "b2x", func(p *corev1.Pod) { p.Finalizers = []string{"example.com/wait"} })
	w.delete("b2x")
	w.sync(web)
	w.wrote()
	w.expectEvents()
}

func TestAnnotationsOfWorkloadAndNamespace(t *testing.T) {
	keep := v1alpha1.AnnotationKeepSpread
	for _, test := range []struct {
		name, namespace string
		workload        []string
		want            []string
		events          []string
	}{
		{name: "neither"},
		{name: "the workload", workload: []string{keep, zones}, want: []string{"a1x=-2", "b1x=-1", "a2x=-1"}},
		{name: "its namespace", namespace: zones, want: []string{"a1x=-2", "b1x=-1", "a2x=-1"}},
		{name: "the workload opts out", namespace: zones, workload: []string{keep, ""}},
		{name: "the workload names other domains", namespace: zones, workload: []string{keep, "rack.example/name"}},
		{name: "an invalid label", workload: []string{keep, "zone a"}, events: []string{eventInvalid}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			if test.namespace != "" {
				change(w, &corev1.Namespace{}, "shop", func(n *corev1.Namespace) { n.Annotations = map[string]string{keep: test.namespace} })
			}
			w.deploy(3, test.workload...)
			w.pods("web-1", "a1x", "a2x", "b1x")
			w.sync(web)
			w.sync(web)
			w.wrote(test.want...)
			w.expectEvents(test.events...)
		})
	}
}

func TestBareReplicaSet(t *testing.T) {
	w := newWorld(t)
	w.set("solo", 3, nil, v1alpha1.AnnotationKeepSpread, zones)
	w.pods("solo", "a1x", "a2x", "b1x")
	solo := web
	solo.kind, solo.Name = pacing.ReplicaSet, "solo"
	w.sync(solo)
	w.wrote("a1x=-2", "b1x=-1", "a2x=-1")
	// When a Deployment adopts it, it is synced with the Deployment.
	change(w, &appsv1.ReplicaSet{}, "solo", func(s *appsv1.ReplicaSet) {
		s.OwnerReferences = []metav1.OwnerReference{*controlledBy(pacing.Deployment, "web")}
	})
	w.pods("solo", "a3x")
	w.sync(solo)
	w.wrote()
	if n := len(w.r.notes.Keys()); n != 0 {
		t.Errorf("%d workloads have notes", n)
	}
}

func TestCostsOfOthersAreKept(t *testing.T) {
	w := newWorld(t)
	w.deploy(3, v1alpha1.AnnotationKeepSpread, zones)
	w.pods("web-1", "a1x", "a2x", "b1x")
	setCost := func(cost string) {
		change(w, &corev1.Pod{}, "a1x", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.PodDeletionCost: cost} })
	}
	setCost("7")
	w.sync(web)
	w.sync(web)
	w.wrote("a2x=-2", "b1x=-1")
	w.expectEvents(eventForeign)
	// A cost that another owner overwrites is kept too.
	change(w, &corev1.Pod{}, "b1x", func(p *corev1.Pod) { p.Annotations[corev1.PodDeletionCost] = "-9" })
	w.sync(web)
	w.wrote()
	w.expectEvents(eventNoRoom)
	change(w, &corev1.Pod{}, "b1x", func(p *corev1.Pod) { delete(p.Annotations, corev1.PodDeletionCost) })
	setCost("-1")
	w.sync(web)
	w.expectEvents()
	w.writes = nil
	change(w, &corev1.Pod{}, "a1x", func(p *corev1.Pod) { delete(p.Annotations, corev1.PodDeletionCost) })
	w.sync(web)
	w.expectEvents()
	setCost("008") // invalid for Kubernetes
	w.sync(web)
	w.expectEvents(eventForeign)
	change(w, &corev1.Pod{}, "b1x", func(p *corev1.Pod) { p.Annotations[corev1.PodDeletionCost] = "-3" })
	w.sync(web)
	w.expectEvents(eventNoRoom)
}

func TestCostsAreRemovedWithTheAnnotation(t *testing.T) {
	w := newWorld(t)
	w.deploy(3, v1alpha1.AnnotationKeepSpread, zones)
	w.pods("web-1", "a1x", "a2x", "b1x")
	w.sync(web)
	change(w, &corev1.Pod{}, "a2x", func(p *corev1.Pod) { p.Annotations[corev1.PodDeletionCost] = "5" })
	w.writes = nil
	change(w, &appsv1.Deployment{}, "web", func(d *appsv1.Deployment) { d.Annotations = nil })
	w.sync(web)
	w.wrote("a1x=", "a2x=5", "b1x=")
	w.sync(web)
	w.wrote()
	if n := len(w.r.notes.Keys()); n != 0 {
		t.Errorf("%d workloads have notes", n)
	}
}

func TestDomainsWithoutAllowanceLast(t *testing.T) {
	w := newWorld(t)
	w.deploy(4, v1alpha1.AnnotationKeepSpread, zones)
	w.pods("web-1", "a1x", "a2x", "b1x", "c1x")
	budget := &v1alpha1.TopologyDisruptionBudget{ObjectMeta: meta("web", "tdb", nil)}
	budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	budget.Spec.NodeSelectorTerm = &v1alpha1.NodeSelectorTerm{MatchExpressions: []v1alpha1.NodeSelectorRequirement{{Key: zones, Operator: corev1.NodeSelectorOpExists}}}
	status := func(a, b int32) func(*v1alpha1.TopologyDisruptionBudget) {
		return func(b1 *v1alpha1.TopologyDisruptionBudget) {
			b1.Status.ObservedGeneration, b1.Status.DisruptionsAllowed = 1, a+b
			b1.Status.Domains = []v1alpha1.DomainStatus{{Domain: "a", Allowed: a}, {Domain: "b", Allowed: b}}
		}
	}
	status(0, 1)(budget)
	w.create(budget)
	w.sync(web)
	w.wrote("c1x=-1", "b1x=-1", "a1x=999998", "a2x=999999")

	// Zone b has no allowance for a moment, as while a pod restarts there.
	change(w, &v1alpha1.TopologyDisruptionBudget{}, "web", status(1, 0))
	if after := w.sync(web); after != blockedTime {
		t.Errorf("it requeues after %s", after)
	}
	w.pass(blockedTime / 2)
	change(w, &v1alpha1.TopologyDisruptionBudget{}, "web", status(0, 1))
	w.sync(web)
	w.wrote()
	change(w, &v1alpha1.TopologyDisruptionBudget{}, "web", status(1, 0))
	w.sync(web)
	w.pass(blockedTime)
	w.sync(web)
	w.wrote("a1x=-2", "a2x=-1", "b1x=999999")
	// Break-glass ends the restriction, and the order is right again.
	change(w, &v1alpha1.TopologyDisruptionBudget{}, "web", func(b *v1alpha1.TopologyDisruptionBudget) {
		b.Annotations = map[string]string{v1alpha1.AnnotationBreakGlass: w.clock.Now().Add(time.Hour).Format(time.RFC3339) + " a test"}
	})
	w.sync(web)
	w.pass(blockedTime)
	w.sync(web)
	w.wrote()
	for _, pod := range w.spread() {
		if pod.Blocked {
			t.Errorf("%s is blocked", pod.Name)
		}
	}
}

// skewed is a Deployment that a rolling update left uneven: five pods in zone a, one in b, none in c.
func skewed(t *testing.T, annotations ...string) *world {
	w := newWorld(t)
	w.deploy(6, append(annotations, v1alpha1.AnnotationKeepSpread, zones)...)
	w.pods("web-1", "a1x", "a1y", "a2x", "a2y", "a3x", "b1x")
	return w
}

func TestRepair(t *testing.T) {
	w := skewed(t, v1alpha1.AnnotationRepairSpread, "true")
	if after := w.sync(web); after != quietTime {
		t.Errorf("it requeues after %s", after)
	}
	if n := w.r.misplaced(); n != 3 {
		t.Errorf("%d pods are misplaced", n)
	}
	w.pass(quietTime)
	w.sync(web)
	w.asked("a1x")
	w.expectEvents(eventRepair)
	// The repair waits until the replacement exists and is ready.
	w.pass(time.Hour)
	w.sync(web)
	w.asked()
	w.pods("web-1", "c1x")
	if after := w.sync(web); after != quietTime {
		t.Errorf("it requeues after %s", after)
	}
	w.pass(quietTime)
	w.outcome = requester.Denied
	if after := w.sync(web); after != repairAgain {
		t.Errorf("it requeues after %s", after)
	}
	w.outcome = requester.Evicted
	w.sync(web)
	w.asked("a2x", "a2x")
	w.expectEvents(eventRepair)
	// A repair evicts at most two of the six pods over three zones, even if pods remain misplaced.
	w.pods("web-1", "b3x")
	w.sync(web)
	w.pass(time.Hour)
	w.sync(web)
	w.sync(web)
	w.asked()
	w.expectEvents(eventRepairEnds)
	change(w, &appsv1.Deployment{}, "web", func(d *appsv1.Deployment) { d.Generation++ })
	w.sync(web)
	w.pass(quietTime)
	w.sync(web)
	w.asked("a1y")
	w.pods("web-1", "c2x")
	w.pass(time.Hour)
	w.sync(web)
	w.asked()
	if n := w.r.misplaced(); n != 0 {
		t.Errorf("%d pods are misplaced", n)
	}
}

// If a replacement lands no better than the old pod, the next eviction waits.
func TestRepairBacksOff(t *testing.T) {
	w := skewed(t, v1alpha1.AnnotationRepairSpread, "true")
	w.sync(web)
	w.pass(quietTime)
	w.sync(web)
	w.asked("a1x")
	w.pods("web-1", "a1z")
	w.sync(web)
	w.pass(quietTime)
	if after := w.sync(web); after != repairBackoff-quietTime {
		t.Errorf("it requeues after %s", after)
	}
	// A new generation, as after an autoscaler's change, does not end the wait.
	change(w, &appsv1.Deployment{}, "web", func(d *appsv1.Deployment) { d.Generation++ })
	w.sync(web)
	w.asked()
	w.pass(repairBackoff)
	w.sync(web)
	if len(w.requests) != 1 {
		t.Errorf("requested evictions are %q", w.requests)
	}
}

// While the cache still has the evicted pod, the repair waits.
func TestRepairWaitsForTheEvictedPod(t *testing.T) {
	w := skewed(t, v1alpha1.AnnotationRepairSpread, "true")
	w.sync(web)
	w.pass(quietTime)
	w.lags = true
	w.sync(web)
	for range 3 {
		if after := w.sync(web); after != repairAgain {
			t.Errorf("it requeues after %s", after)
		}
	}
	w.asked("a1x")
	w.lags = false
	w.delete("a1x")
	w.pods("web-1", "c1x")
	w.sync(web)
	w.pass(quietTime)
	w.sync(web)
	w.asked("a2x")
}

func TestNoRepair(t *testing.T) {
	for name, edit := range map[string]func(*world){
		"without the annotation": func(w *world) {
			change(w, &appsv1.Deployment{}, "web", func(d *appsv1.Deployment) { delete(d.Annotations, v1alpha1.AnnotationRepairSpread) })
		},
		"an update under way": func(w *world) { w.set("web-2", 1, controlledBy(pacing.Deployment, "web")) },
		"a scale-down under way": func(w *world) {
			change(w, &appsv1.Deployment{}, "web", func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(5)) })
		},
		"a pod that is not ready": func(w *world) {
			w.delete("b1x")
			w.unready("web-1", "b1x")
		},
		"a pod that is terminating": func(w *world) {
			w.pods("web-1", "c1x")
			change(w, &corev1.Pod{}, "c1x", func(p *corev1.Pod) { p.Finalizers = []string{"example.com/wait"} })
			w.delete("c1x")
		},
		"zones that take no pods": func(w *world) {
			for _, zone := range []string{"b", "c"} {
				for i := range 3 {
					change(w, &corev1.Node{}, fmt.Sprintf("%s%d", zone, i+1), func(n *corev1.Node) {
						n.Spec.Unschedulable = zone == "b"
						n.Spec.Taints = []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoExecute}}
					})
				}
			}
		},
		"zones where the pods may not be": func(w *world) {
			for _, pod := range []string{"a1x", "a1y", "a2x", "a2y", "a3x", "b1x"} {
				change(w, &corev1.Pod{}, pod, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{zones: "a"} })
			}
			w.delete("b1x")
			w.pods("web-1", "a3y")
			change(w, &corev1.Pod{}, "a3y", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{zones: "a"} })
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := skewed(t, v1alpha1.AnnotationRepairSpread, "true")
			edit(w)
			w.sync(web)
			w.pass(quietTime)
			w.sync(web)
			w.pass(longestRepairBackoff)
			w.sync(web)
			w.asked()
		})
	}
}

// A waiting eviction is withdrawn when it no longer helps.
func TestRepairIsWithdrawn(t *testing.T) {
	w := skewed(t, v1alpha1.AnnotationRepairSpread, "true")
	w.sync(web)
	w.pass(quietTime)
	w.outcome = requester.Waiting
	w.sync(web)
	w.sync(web)
	w.asked("a1x", "a1x")
	change(w, &appsv1.Deployment{}, "web", func(d *appsv1.Deployment) { delete(d.Annotations, v1alpha1.AnnotationRepairSpread) })
	w.sync(web)
	w.sync(web)
	w.asked("not a1x")
}

// While a paced scale-down marks pods, no cost is written or removed, until the last of them is gone or its time is over.
func TestPacedScaleDownsGoFirst(t *testing.T) {
	for _, asked := range []string{zones, ""} {
		w := newWorld(t)
		w.deploy(4, v1alpha1.AnnotationKeepSpread, asked)
		w.pods("web-1", "a1x", "a2x", "b1x", "b2x")
		for name, left := range map[string]time.Duration{"b1x": time.Minute, "b2x": 2 * time.Minute} {
			change(w, &corev1.Pod{}, name, func(p *corev1.Pod) {
				p.Annotations = map[string]string{
					corev1.PodDeletionCost: "-1", v1alpha1.AnnotationDeletionCost: "-1", v1alpha1.AnnotationGoesUntil: w.clock.Now().Add(left).Format(time.RFC3339),
				}
			})
		}
		if got := w.sync(web); got != 2*time.Minute {
			t.Errorf("with the key %q, it requeues after %s", asked, got)
		}
		w.wrote()
		w.delete("b2x")
		if got := w.sync(web); got != time.Minute {
			t.Errorf("with the key %q and one pod left, it requeues after %s", asked, got)
		}
		w.wrote()
		w.clock.SetTime(w.clock.Now().Add(time.Minute))
		w.sync(web)
		switch {
		case asked == "":
			w.wrote("b1x=")
		case len(w.writes) == 0:
			t.Error("after the scale-down, no cost is written")
		}
		pod := &corev1.Pod{}
		if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "b1x"}, pod); err != nil {
			t.Fatal(err)
		}
		if until, found := pod.Annotations[v1alpha1.AnnotationGoesUntil]; found && asked == "" {
			t.Errorf("the mark until %s stays", until)
		}
	}
}

// turn is a limiter that runs a function while a write waits.
type turn struct {
	flowcontrol.RateLimiter
	meanwhile func()
}

func (t turn) Wait(context.Context) error {
	t.meanwhile()
	return nil
}

// A scale-down that begins while a write waits takes precedence.
func TestPacedScaleDownsBeginMeanwhile(t *testing.T) {
	w := newWorld(t)
	w.deploy(3, v1alpha1.AnnotationKeepSpread, zones)
	w.pods("web-1", "a1x", "a2x", "b1x")
	w.r.limiter = turn{meanwhile: func() {
		change(w, &corev1.Pod{}, "b1x", func(p *corev1.Pod) {
			p.Annotations = map[string]string{v1alpha1.AnnotationGoesUntil: w.clock.Now().Add(time.Minute).Format(time.RFC3339)}
		})
	}}
	w.sync(web)
	w.wrote()
}

// While a rollout marks a pod, nothing is written to the pods of its Deployment, and the mark stays.
func TestRolloutsGoFirst(t *testing.T) {
	for _, asked := range []string{zones, ""} {
		w := newWorld(t)
		w.deploy(3, v1alpha1.AnnotationKeepSpread, asked)
		w.pods("web-1", "a1x", "a2x", "b1x")
		cost := v1alpha1.RolloutDeletionCost
		change(w, &corev1.Pod{}, "b1x", func(p *corev1.Pod) {
			p.Annotations = map[string]string{corev1.PodDeletionCost: cost, v1alpha1.AnnotationDeletionCost: cost}
		})
		w.sync(web)
		w.wrote()
		change(w, &corev1.Pod{}, "b1x", func(p *corev1.Pod) { p.Annotations = nil })
		w.sync(web)
		if (len(w.writes) > 0) != (asked != "") {
			t.Errorf("with the key %q, %q is written after the rollout", asked, w.writes)
		}
	}
}
