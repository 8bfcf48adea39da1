package pacing

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption"
	"vicinity.dev/vicinity/internal/disruption/reservation"
)

var now = time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)

// books is a ledger with one budget that covers all pods.
type books struct {
	pods []*corev1.Pod
	// later, if not nil, replaces pods after the first reading.
	later []*corev1.Pod
	// forecast is how many pods may go. Evictions of the denied pods are refused despite it.
	forecast int
	denied   []string

	mu       sync.Mutex
	reserved map[string]bool
}

func (b *books) Pods(context.Context, string, labels.Selector) ([]*corev1.Pod, error) {
	pods := b.pods
	if b.later != nil {
		b.pods = b.later
	}
	return slices.Clone(pods), nil
}

func (b *books) Forecast(_ context.Context, pods []*corev1.Pod) (int, string, error) {
	if b.forecast >= len(pods) {
		return len(pods), "", nil
	}
	return b.forecast, "the budget is used up", nil
}

func (b *books) Admit(_ context.Context, r reservation.Request) (reservation.Answer, error) {
	if slices.Contains(b.denied, r.Pod.Name) {
		return reservation.Answer{Denial: "taken meanwhile"}, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reserved[r.Pod.Name] = true
	return reservation.Answer{}, nil
}

func (b *books) GiveUp(pod types.NamespacedName, _ types.UID, _ string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.reserved, pod.Name)
}

func (b *books) Hold(context.Context, *corev1.Pod, string) error { return nil }

func (b *books) Covering(string, map[string]string) []types.NamespacedName {
	return []types.NamespacedName{{Name: "budget"}}
}

// held returns the pods with reservations.
func (b *books) held() []string {
	var names []string
	for name := range b.reserved {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// podOf is a pod of a workload. It is ready, has its own node, and is as old as all others.
func podOf(kind Kind, i int, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: fmt.Sprintf("web-%d", i), UID: types.UID(fmt.Sprint(i)), CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: string(kind), Name: "web", UID: "set", Controller: new(true)}},
		},
		Spec: corev1.PodSpec{NodeName: fmt.Sprintf("node-%d", i)},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{
			Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour)),
		}}},
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func cost(text string, own bool) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{corev1.PodDeletionCost: text}
		if own {
			pod.Annotations[v1alpha1.AnnotationDeletionCost] = text
		}
	}
}

// of gives a pod another controller.
func of(apiVersion, kind string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "web-a", UID: "other", Controller: new(true)}}
	}
}

// controlled names a workload of the shop as of does, and gives it a controller.
func controlled(o client.Object, apiVersion, kind string, by types.UID) client.Object {
	o.SetNamespace("shop")
	o.SetName("web-a")
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "web-a", UID: by, Controller: new(true)}})
	return o
}

func deleted(pod *corev1.Pod) {
	at := metav1.NewTime(now)
	pod.DeletionTimestamp, pod.Finalizers = &at, []string{"example.com/slow"}
}

func workloadOf(kind Kind, replicas int32) Workload {
	object := kind.New()
	object.SetNamespace("shop")
	object.SetName("web")
	object.SetUID("set")
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	switch o := object.(type) {
	case *appsv1.StatefulSet:
		o.Spec.Replicas, o.Spec.Selector = &replicas, selector
	case *appsv1.ReplicaSet:
		o.Spec.Replicas, o.Spec.Selector = &replicas, selector
	case *appsv1.Deployment:
		o.Spec.Replicas, o.Spec.Selector = &replicas, selector
	case *autoscalingv1.Scale:
		o.Spec.Replicas, o.Status.Selector = replicas, "app=web"
	}
	return Of(object)
}

func withoutSelector(scale Workload) Workload {
	scale.pods = ""
	return scale
}

func TestAsk(t *testing.T) {
	for name, test := range map[string]struct {
		kind     Kind
		pods     []*corev1.Pod
		sets     []client.Object
		forecast int
		denied   []string
		question Question
		conflict bool

		want     int32
		denial   string
		err      bool
		reserved []string
		costs    map[string]string // written costs
		marked   []string          // marked pods, nil if any will do
	}{
		"the highest ordinals": {
			kind: StatefulSet, pods: []*corev1.Pod{podOf(StatefulSet, 0), podOf(StatefulSet, 10), podOf(StatefulSet, 9)}, forecast: 1,
			question: Question{Workload: workloadOf(StatefulSet, 11), Wanted: 1}, want: 10, denial: "used up", reserved: []string{"web-10"},
		},
		"all or nothing": {
			kind: StatefulSet, pods: []*corev1.Pod{podOf(StatefulSet, 0), podOf(StatefulSet, 1), podOf(StatefulSet, 2)}, forecast: 1,
			question: Question{Workload: workloadOf(StatefulSet, 3), Wanted: 1, Whole: true}, want: 2, denial: "used up",
		},
		"all or nothing, and one is taken meanwhile": {
			kind: StatefulSet, pods: []*corev1.Pod{podOf(StatefulSet, 0), podOf(StatefulSet, 1), podOf(StatefulSet, 2)}, forecast: 2, denied: []string{"web-1"},
			question: Question{Workload: workloadOf(StatefulSet, 3), Wanted: 1, Whole: true}, want: 2, denial: "taken meanwhile",
		},
		"what comes after a pod that is taken meanwhile is given up": {
			kind: StatefulSet, pods: []*corev1.Pod{podOf(StatefulSet, 0), podOf(StatefulSet, 1), podOf(StatefulSet, 2), podOf(StatefulSet, 3)},
			forecast: 3, denied: []string{"web-2"},
			question: Question{Workload: workloadOf(StatefulSet, 4), Wanted: 1}, want: 3, denial: "taken meanwhile", reserved: []string{"web-3"},
		},
		"a dry run": {
			kind: StatefulSet, pods: []*corev1.Pod{podOf(StatefulSet, 0), podOf(StatefulSet, 1)}, forecast: 1,
			question: Question{Workload: workloadOf(StatefulSet, 2), Wanted: 1, DryRun: true}, want: 1,
		},
		"a pod that is still being deleted": {
			kind: StatefulSet, pods: []*corev1.Pod{podOf(StatefulSet, 0), podOf(StatefulSet, 1), podOf(StatefulSet, 2, deleted)}, forecast: 9,
			question: Question{Workload: workloadOf(StatefulSet, 2), Wanted: 1}, want: 2, denial: "Pod web-2 is still being deleted.",
		},
		"as many as there are": {
			kind: StatefulSet, pods: []*corev1.Pod{podOf(StatefulSet, 0)}, forecast: 9,
			question: Question{Workload: workloadOf(StatefulSet, 3), Wanted: 1}, want: 1,
		},
		"a cost separates equal pods": {
			kind: ReplicaSet, pods: []*corev1.Pod{podOf(ReplicaSet, 0), podOf(ReplicaSet, 1), podOf(ReplicaSet, 2)}, forecast: 1,
			question: Question{Workload: workloadOf(ReplicaSet, 3), Wanted: 1}, want: 2, denial: "used up", reserved: []string{"?"}, costs: map[string]string{"?": "-1"},
		},
		"a cost of another owner stays": {
			kind: ReplicaSet, pods: []*corev1.Pod{podOf(ReplicaSet, 0, cost("-5", false)), podOf(ReplicaSet, 1, cost("-5", false)), podOf(ReplicaSet, 2)}, forecast: 1,
			question: Question{Workload: workloadOf(ReplicaSet, 3), Wanted: 1}, want: 2, denial: "used up", reserved: []string{"?"}, marked: []string{},
		},
		"the lowest cost that there can be": {
			kind: ReplicaSet, pods: []*corev1.Pod{podOf(ReplicaSet, 0, cost("-2147483648", true)), podOf(ReplicaSet, 1), podOf(ReplicaSet, 2)}, forecast: 2,
			question: Question{Workload: workloadOf(ReplicaSet, 3), Wanted: 0}, want: 1, denial: "used up", reserved: []string{"?", "?"},
		},
		"a pod with a lower cost needs none": {
			kind: ReplicaSet, pods: []*corev1.Pod{podOf(ReplicaSet, 0), podOf(ReplicaSet, 1, cost("-1", true)), podOf(ReplicaSet, 2)}, forecast: 1,
			question: Question{Workload: workloadOf(ReplicaSet, 3), Wanted: 1}, want: 2, denial: "used up", reserved: []string{"web-1"}, marked: []string{"web-1"},
		},
		"each pod of another kind needs a cost": {
			kind: Scale, pods: []*corev1.Pod{podOf(Scale, 0), podOf(Scale, 1, cost("-1", true)), podOf(Scale, 2)}, forecast: 1,
			question: Question{Workload: workloadOf(Scale, 3), Wanted: 1}, want: 2, denial: "used up", reserved: []string{"web-1"}, costs: map[string]string{"?": "-2"}, marked: []string{"web-1"},
		},
		"an object between another kind and its pods": {
			kind: Scale, pods: []*corev1.Pod{podOf(Scale, 0, of("apps/v1", "StatefulSet")), podOf(Scale, 1), podOf(Scale, 2, of("example.com/v1", "CacheSet"))}, forecast: 9,
			question: Question{Workload: workloadOf(Scale, 3), Wanted: 1}, want: 3, denial: "matches pod web-2 of CacheSet web-a",
		},
		"a Deployment between another kind and its pods": {
			kind: Scale, pods: []*corev1.Pod{podOf(Scale, 0, of("apps/v1", "ReplicaSet")), podOf(Scale, 1, of("apps/v1", "ReplicaSet")), podOf(Scale, 2, of("example.com/v1", "Backup"))}, forecast: 0,
			sets:     []client.Object{controlled(&appsv1.ReplicaSet{}, "apps/v1", "Deployment", "deployment"), controlled(&appsv1.Deployment{}, "example.com/v1", "Scale", "set")},
			question: Question{Workload: workloadOf(Scale, 2), Wanted: 1}, want: 1,
		},
		"a Deployment of others, beside an object between another kind and its pods": {
			kind: Scale, pods: []*corev1.Pod{podOf(Scale, 0, of("apps/v1", "ReplicaSet")), podOf(Scale, 1, of("apps/v1", "ReplicaSet")), podOf(Scale, 2, of("example.com/v1", "CacheSet"))}, forecast: 9,
			sets:     []client.Object{controlled(&appsv1.ReplicaSet{}, "apps/v1", "Deployment", "deployment")},
			question: Question{Workload: workloadOf(Scale, 2), Wanted: 1}, want: 2, denial: "matches pod web-2 of CacheSet web-a",
		},
		"workloads that control each other": {
			kind: Scale, pods: []*corev1.Pod{podOf(Scale, 0, of("apps/v1", "ReplicaSet"))}, forecast: 9,
			sets:     []client.Object{controlled(&appsv1.ReplicaSet{}, "apps/v1", "Deployment", "deployment"), controlled(&appsv1.Deployment{}, "apps/v1", "ReplicaSet", "other")},
			question: Question{Workload: workloadOf(Scale, 2), Wanted: 1}, want: 1,
		},
		"jobs between another kind and its pods": {
			kind: Scale, pods: []*corev1.Pod{podOf(Scale, 0, of("batch/v1", "Job")), podOf(Scale, 1, of("batch/v1", "Job"))}, forecast: 9,
			question: Question{Workload: workloadOf(Scale, 2), Wanted: 1}, want: 2, denial: "of Job web-a",
		},
		"a missing pod of another kind, beside a job's": {
			kind: Scale, pods: []*corev1.Pod{podOf(Scale, 0), podOf(Scale, 1, of("batch/v1", "Job"))}, forecast: 9,
			question: Question{Workload: workloadOf(Scale, 2), Wanted: 0}, want: 0, reserved: []string{"web-0"},
		},
		"another kind without a selector": {
			kind: Scale, pods: []*corev1.Pod{podOf(Scale, 0), podOf(Scale, 1), podOf(Scale, 2, of("example.com/v1", "CacheSet"))}, forecast: 9,
			question: Question{Workload: withoutSelector(workloadOf(Scale, 3)), Wanted: 1}, want: 1, reserved: []string{"?"}, costs: map[string]string{"?": "-1"},
		},
		"another owner sets a cost meanwhile": {
			kind: ReplicaSet, pods: []*corev1.Pod{podOf(ReplicaSet, 0), podOf(ReplicaSet, 1), podOf(ReplicaSet, 2)}, forecast: 1, conflict: true,
			question: Question{Workload: workloadOf(ReplicaSet, 3), Wanted: 1}, want: 2, denial: "used up", err: true,
		},
		"a rolling update": {
			kind: Deployment, pods: []*corev1.Pod{podOf(ReplicaSet, 0), podOf(ReplicaSet, 1)}, forecast: 9, sets: []client.Object{setOf("a", 1), setOf("b", 1)},
			question: Question{Workload: workloadOf(Deployment, 2), Wanted: 1}, want: 2, denial: "A rolling update of Deployment shop/web is in progress",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var marked []string
			costs, before := map[string]string{}, map[string]string{}
			for _, pod := range test.pods {
				before[pod.Name] = pod.Annotations[corev1.PodDeletionCost]
			}
			b := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
					if err := c.Patch(ctx, o, p, opts...); err != nil {
						return err
					}
					mu.Lock()
					defer mu.Unlock()
					marked = append(marked, o.GetName())
					if got := o.GetAnnotations()[corev1.PodDeletionCost]; got != before[o.GetName()] {
						costs[o.GetName()] = got
					}
					if until, want := GoesUntil(o.(*corev1.Pod), now), now.Add(disruption.ReservationTime); !until.Equal(want) {
						t.Errorf("pod %s goes until %s, want %s", o.GetName(), until, want)
					}
					return nil
				},
			})
			for _, pod := range test.pods {
				b.WithObjects(pod.DeepCopy())
			}
			for _, set := range test.sets {
				b.WithObjects(set)
			}
			live := b.Build()
			for _, pod := range test.pods { // sets the resource version
				if err := live.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
					t.Fatal(err)
				}
			}
			if test.conflict {
				for _, pod := range test.pods {
					changed := pod.DeepCopy()
					cost("7", false)(changed)
					if err := live.Update(t.Context(), changed); err != nil {
						t.Fatal(err)
					}
				}
			}
			ledger := &books{pods: test.pods, forecast: test.forecast, denied: test.denied, reserved: map[string]bool{}}
			p := New(ledger, live, live)
			p.clock = clocktesting.NewFakePassiveClock(now)
			answer, err := p.Ask(t.Context(), test.question)
			if (err != nil) != test.err || answer.Replicas != test.want || (answer.Denial != "") != (test.denial != "") || !strings.Contains(answer.Denial, test.denial) {
				t.Errorf("%+v, %v; want %d, %q", answer, err, test.want, test.denial)
			}
			held := ledger.held()
			if !slices.EqualFunc(held, test.reserved, func(got, want string) bool { return want == "?" || got == want }) {
				t.Errorf("reserved are %q, want %q", held, test.reserved)
			}
			if slices.Sort(marked); test.marked != nil && !slices.Equal(marked, test.marked) {
				t.Errorf("marked are %q, want %q", marked, test.marked)
			}
			if len(costs) != len(test.costs) {
				t.Errorf("the costs are %v, want %v", costs, test.costs)
			}
			for name, cost := range costs {
				if cost != test.costs["?"] || !slices.Contains(held, name) {
					t.Errorf("pod %s costs %s, and %q are reserved", name, cost, held)
				}
			}
		})
	}
}

func goesUntil(at string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[v1alpha1.AnnotationGoesUntil] = at
	}
}

// Reserved pods keep their marks and costs while they exist.
func TestHoldKeepsMarks(t *testing.T) {
	const soon, over = "2026-01-02T15:00:20Z", "2026-01-02T14:59:20Z"
	pods := []*corev1.Pod{
		podOf(ReplicaSet, 0, cost("-2", true), goesUntil(soon)), podOf(ReplicaSet, 1, cost("-3", false), goesUntil(soon)),
		podOf(ReplicaSet, 2, goesUntil(over)), podOf(ReplicaSet, 3),
	}
	live := storedPods(t, pods)
	p := New(&books{pods: pods}, live, live)
	p.clock = clocktesting.NewFakePassiveClock(now)
	if err := p.Hold(t.Context(), workloadOf(ReplicaSet, 0), "scale-down"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][2]string{"web-0": {"2026-01-02T15:02:00Z", "-2"}, "web-1": {soon, "-3"}, "web-2": {"2026-01-02T15:02:00Z", ""}, "web-3": {"", ""}} {
		pod := &corev1.Pod{}
		if err := live.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: name}, pod); err != nil {
			t.Fatal(err)
		}
		if got := [2]string{pod.Annotations[v1alpha1.AnnotationGoesUntil], pod.Annotations[corev1.PodDeletionCost]}; got != want {
			t.Errorf("pod %s goes until %q, want %q", name, got, want)
		}
	}
}

// storedPods stores pods in a fake API server, and sets their resource versions.
func storedPods(t *testing.T, pods []*corev1.Pod) client.Client {
	t.Helper()
	b := fake.NewClientBuilder()
	for _, pod := range pods {
		b.WithObjects(pod.DeepCopy())
	}
	live := b.Build()
	for _, pod := range pods {
		if err := live.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			t.Fatal(err)
		}
	}
	return live
}

// While pods are marked, another pod may come to rank before them. The ReplicaSet would delete that one instead.
func TestAskDetectsOtherPods(t *testing.T) {
	for _, whole := range []bool{false, true} {
		pods := []*corev1.Pod{podOf(ReplicaSet, 0), podOf(ReplicaSet, 1), podOf(ReplicaSet, 2)}
		live := storedPods(t, pods)
		ledger := &books{pods: pods, forecast: 1, reserved: map[string]bool{}}
		ledger.later = []*corev1.Pod{pods[0], pods[1], podOf(ReplicaSet, 3, cost("-9", true))}
		p := New(ledger, live, live)
		p.clock = clocktesting.NewFakePassiveClock(now)
		wanted := int32(1)
		if whole {
			wanted = 2
		}
		answer, err := p.Ask(t.Context(), Question{Workload: workloadOf(ReplicaSet, 3), Wanted: wanted, Whole: whole})
		if err != nil || answer.Replicas != 3 || !strings.Contains(answer.Denial, "pod web-3 is now one of them") || len(ledger.held()) > 0 {
			t.Errorf("whole %t: %+v, %v, with %q reserved", whole, answer, err, ledger.held())
		}
	}
}

func setOf(name string, replicas int32) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, Labels: map[string]string{"app": "web"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "set", Controller: new(true)}},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: &replicas}, Status: appsv1.ReplicaSetStatus{Replicas: replicas},
	}
}

// FuzzAnnotations reads arbitrary annotations: numbers are valid for Kubernetes, an unknown mode denies, and no mark lasts longer than a
// Pacer's.
func FuzzAnnotations(f *testing.F) {
	for _, text := range []string{"", "3", "-3", "+3", "03", "0", "2147483648", "-2147483648", "Clamp", "Deny", "Annotated", "2026-01-02T15:04:05Z", "2026-01-02T15:06:05+00:01", "9999-12-31T23:59:59Z"} {
		f.Add(text, text)
		f.Add(text, "Clamp")
	}
	now := time.Date(2026, 1, 2, 15, 4, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, own, namespace string) {
		workload := Of(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			v1alpha1.AnnotationWantedReplicas: own, v1alpha1.PaceScaleDown: own,
		}}})
		n, err := strconv.ParseInt(own, 10, 32)
		if isNumber := err == nil && n >= 0; isNumber != (workload.Wanted != nil) || isNumber && int64(*workload.Wanted) != n {
			t.Fatalf("%q is %v replicas", own, workload.Wanted)
		}
		mode := workload.Mode(map[string]string{v1alpha1.PaceScaleDown: namespace})
		switch {
		case own == "" && mode != "", own != "" && own != v1alpha1.PaceClamp && mode != v1alpha1.PaceDeny, own == v1alpha1.PaceClamp && mode != own:
			t.Fatalf("%q in a namespace with %q is %q", own, namespace, mode)
		}
		if mode := workload.Mode(nil); mode != "" {
			t.Fatalf("in a namespace without the label it is %q", mode)
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Annotations:     map[string]string{corev1.PodDeletionCost: own, v1alpha1.AnnotationDeletionCost: namespace, v1alpha1.AnnotationGoesUntil: own},
			OwnerReferences: []metav1.OwnerReference{{Controller: new(true), Name: "web-1"}},
		}}
		p := RankedPod(pod)
		if p.Cost != 0 && strconv.Itoa(int(p.Cost)) != own || p.Foreign != (own != namespace) {
			t.Fatalf("the cost %q, of ours %q, is %+v", own, namespace, p)
		}
		if until := GoesUntil(pod, now); !until.IsZero() && (!until.After(now) || until.Sub(now) > disruption.ReservationTime+disruption.ClockSkew) {
			t.Fatalf("%q holds until %s", own, until)
		}
	})
}
