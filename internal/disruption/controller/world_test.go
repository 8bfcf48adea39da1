package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/uuid"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption"
	"vicinity.dev/vicinity/internal/disruption/coverage"
	"vicinity.dev/vicinity/internal/disruption/reservation"
)

const (
	shop = "shop"
	own  = "vicinity-system"
)

// world is an API server and the reconcilers, which run a sync at a time.
type world struct {
	t        testing.TB
	client   client.WithWatch
	clock    *clocktesting.FakePassiveClock
	recorder *events.FakeRecorder
	r        *reconciler
	mu       sync.Mutex
	// writes are what was sent since the last look, in order.
	writes []string
	// refuse, if set, answers a write instead of the API server.
	refuse func(what string) error
	// strip has the API server drop the label from what it stores.
	strip bool
}

func testScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

func testOptions() Options {
	return Options{Own: own, Served: true, Service: "vicinity-webhook", Workers: 4, Rate: 1000, Top: 3}
}

func newWorld(t testing.TB, objects ...client.Object) *world {
	t.Helper()
	w := &world{t: t, clock: clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)), recorder: events.NewFakeRecorder(1000)}
	sent := func(operation string, object client.Object, body string) error {
		what := fmt.Sprintf("%s %T %s", operation, object, object.GetName())
		what = strings.NewReplacer("*v1.PartialObjectMetadata", "namespace", "*v1.PodDisruptionBudget", "pdb", "*v1alpha1.TopologyDisruptionBudget", "budget").Replace(what)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.writes = append(w.writes, strings.TrimSpace(what+" "+body))
		if w.refuse != nil {
			return w.refuse(what)
		}
		return nil
	}
	w.client = fake.NewClientBuilder().WithScheme(testScheme(t)).WithStatusSubresource(&v1alpha1.TopologyDisruptionBudget{}).WithObjects(objects...).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
				if err := sent("create", object, ""); err != nil {
					return err
				}
				if object.GetUID() == "" {
					object.SetUID(uuid.NewUUID())
				}
				return c.Create(ctx, object, options...)
			},
			Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
				if err := sent("update", object, ""); err != nil {
					return err
				}
				return c.Update(ctx, object, options...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
				if err := sent("delete", object, ""); err != nil {
					return err
				}
				return c.Delete(ctx, object, options...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
				body, err := patch.Data(object)
				if err != nil {
					return err
				}
				if err := sent("patch", object, string(body)); err != nil {
					return err
				}
				if w.strip {
					patch = client.RawPatch(types.MergePatchType, []byte(`{}`))
				}
				return c.Patch(ctx, object, patch, options...)
			},
			SubResourceUpdate: func(ctx context.Context, c client.Client, name string, object client.Object, options ...client.SubResourceUpdateOption) error {
				if err := sent(name, object, ""); err != nil {
					return err
				}
				return c.SubResource(name).Update(ctx, object, options...)
			},
		}).Build()
	w.make(&admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "vicinity"}, Webhooks: []admissionv1.MutatingWebhook{{ClientConfig: at(), Rules: ofEvictions()}},
	})
	w.start(testOptions())
	return w
}

func at() admissionv1.WebhookClientConfig {
	return admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: own, Name: "vicinity-webhook"}}
}

func ofEvictions() []admissionv1.RuleWithOperations {
	return []admissionv1.RuleWithOperations{{
		Operations: []admissionv1.OperationType{admissionv1.Create}, Rule: admissionv1.Rule{Resources: []string{"pods/eviction"}},
	}}
}

// start makes reconcilers without memory.
func (w *world) start(options Options) {
	w.r = newReconciler(base{client: w.client, live: w.client, recorder: w.recorder, clock: w.clock, options: options}, &fakeLedger{w})
}

// fakeLedger reads the world each time, and writes the status as the Ledger does.
type fakeLedger struct{ w *world }

func (l *fakeLedger) Covering(namespace string, _ map[string]string) []types.NamespacedName {
	budgets, err := budgetsOf(context.Background(), l.w.client, namespace)
	if err != nil {
		l.w.t.Fatal(err)
	}
	var keys []types.NamespacedName
	for i := range budgets {
		keys = append(keys, client.ObjectKeyFromObject(&budgets[i]))
	}
	return keys
}

func (l *fakeLedger) Refresh(ctx context.Context, key types.NamespacedName, conditions func(*reservation.Report) []metav1.Condition) (*reservation.Report, error) {
	budget := &v1alpha1.TopologyDisruptionBudget{}
	if err := l.w.client.Get(ctx, key, budget); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	found := coverage.World{Budget: budget, Nodes: map[string]*corev1.Node{}}
	var pods corev1.PodList
	var nodes corev1.NodeList
	var deployments appsv1.DeploymentList
	var sets appsv1.StatefulSetList
	for _, list := range []client.ObjectList{&pods, &nodes, &deployments, &sets} {
		if err := l.w.client.List(ctx, list); err != nil {
			return nil, err
		}
	}
	for i := range pods.Items {
		if pods.Items[i].Namespace == key.Namespace {
			found.Pods = append(found.Pods, &pods.Items[i])
		}
	}
	for i := range nodes.Items {
		found.Nodes[nodes.Items[i].Name] = &nodes.Items[i]
	}
	for i := range deployments.Items {
		found.Workloads = append(found.Workloads, coverage.OfDeployment(&deployments.Items[i]))
	}
	for i := range sets.Items {
		found.Workloads = append(found.Workloads, coverage.OfStatefulSet(&sets.Items[i]))
	}
	report := &reservation.Report{Budget: budget, World: found, State: coverage.StateOf(found)}
	report.Measures = disruption.Measure(&report.State, l.w.clock.Now())
	after := budget.DeepCopy()
	coverage.Status(&after.Status, budget.Generation, report.Measures)
	for _, condition := range conditions(report) {
		i := slices.IndexFunc(after.Status.Conditions, func(c metav1.Condition) bool { return c.Type == condition.Type })
		if i < 0 {
			after.Status.Conditions = append(after.Status.Conditions, condition)
		} else {
			after.Status.Conditions[i] = condition
		}
	}
	if equality.Semantic.DeepEqual(budget.Status, after.Status) {
		return report, nil
	}
	if err := l.w.client.Status().Update(ctx, after); err != nil {
		return nil, err
	}
	report.Budget, report.Written = after, true
	return report, nil
}

func (w *world) make(objects ...client.Object) {
	w.t.Helper()
	for _, object := range objects {
		if err := w.client.Create(context.Background(), object); err != nil {
			w.t.Fatal(err)
		}
	}
	w.writes = nil
}

// change changes an object.
func change[T client.Object](w *world, object T, f func(T)) {
	w.t.Helper()
	if err := w.client.Get(context.Background(), client.ObjectKeyFromObject(object), object); err != nil {
		w.t.Fatal(err)
	}
	f(object)
	if _, ok := client.Object(object).(*corev1.Pod); ok { // the tests change the status of pods alone
		if err := w.client.Status().Update(context.Background(), object); err != nil {
			w.t.Fatal(err)
		}
	} else if err := w.client.Update(context.Background(), object); err != nil {
		w.t.Fatal(err)
	}
	w.writes = nil
}

func (w *world) drop(object client.Object) {
	w.t.Helper()
	if err := w.client.Delete(context.Background(), object); err != nil {
		w.t.Fatal(err)
	}
	w.writes = nil
}

// label syncs a namespace, and compares the writes.
func (w *world) label(namespace string, want ...string) {
	w.t.Helper()
	if _, err := w.r.namespaces.Reconcile(context.Background(), reconcile.Request{NamespacedName: types.NamespacedName{Name: namespace}}); err != nil {
		w.t.Errorf("namespace %s: %v", namespace, err)
	}
	w.wrote(want...)
}

// sync syncs a budget of the shop, and compares the writes.
func (w *world) sync(name string, want ...string) reconcile.Result {
	w.t.Helper()
	return w.syncIn(shop, name, want...)
}

func (w *world) syncIn(namespace, name string, want ...string) reconcile.Result {
	w.t.Helper()
	result, err := w.r.Reconcile(context.Background(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
	if err != nil {
		w.t.Errorf("budget %s: %v", name, err)
	}
	w.wrote(want...)
	return result
}

func (w *world) wrote(want ...string) {
	w.t.Helper()
	if !slices.Equal(w.writes, want) {
		w.t.Errorf("written is %q, want %q", w.writes, want)
	}
	w.writes = nil
}

// expectEvents compares the events since the last look, by their reasons.
func (w *world) expectEvents(want ...string) {
	w.t.Helper()
	var got []string
	for {
		select {
		case line := <-w.recorder.Events:
			got = append(got, strings.Join(strings.Fields(line)[:2], " "))
			continue
		default:
		}
		break
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("the events are %q, want %q", got, want)
	}
}

func (w *world) budget(name string) *v1alpha1.TopologyDisruptionBudget {
	w.t.Helper()
	budget := &v1alpha1.TopologyDisruptionBudget{}
	if err := w.client.Get(context.Background(), types.NamespacedName{Namespace: shop, Name: name}, budget); err != nil {
		w.t.Fatal(err)
	}
	return budget
}

// says compares a condition of a budget, and returns its message.
func (w *world) says(name, condition string, status metav1.ConditionStatus, reason string) string {
	w.t.Helper()
	found := meta.FindStatusCondition(w.budget(name).Status.Conditions, condition)
	if found == nil {
		w.t.Errorf("%s has no condition %s", name, condition)
		return ""
	}
	if found.Status != status || found.Reason != reason {
		w.t.Errorf("%s: %s is %s %s (%s), want %s %s", name, condition, found.Status, found.Reason, found.Message, status, reason)
	}
	return found.Message
}

func (w *world) labelled(namespace string) bool {
	w.t.Helper()
	found := &corev1.Namespace{}
	if err := w.client.Get(context.Background(), types.NamespacedName{Name: namespace}, found); err != nil {
		w.t.Fatal(err)
	}
	return found.Labels[v1alpha1.LabelBudgets] == "true"
}

func (w *world) exists(object client.Object) bool {
	w.t.Helper()
	err := w.client.Get(context.Background(), client.ObjectKeyFromObject(object), object)
	if err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
	return err == nil
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
}

// made counts the created budgets.
var made int

// perZone is a budget of a number of pods in each zone.
func perZone(name string, maxUnavailable int) *v1alpha1.TopologyDisruptionBudget {
	made++
	value := intstr.FromInt(maxUnavailable)
	return &v1alpha1.TopologyDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name, UID: types.UID(fmt.Sprintf("%s-%d", name, made)), Generation: 1},
		Spec: v1alpha1.TopologyDisruptionBudgetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			NodeSelectorTerm: &v1alpha1.NodeSelectorTerm{MatchExpressions: []v1alpha1.NodeSelectorRequirement{
				{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpExists},
			}},
			MaxUnavailable: &value,
		},
	}
}

func node(zone string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "budget-" + zone, Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
}

func deployment(replicas int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "web", UID: "web"},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		}},
	}
}

// pod is a ready pod on the node of a zone.
func pod(name, zone string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: shop, Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web", corev1.LabelTopologyZone: zone},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "web", Controller: new(true)}},
		},
		Spec: corev1.PodSpec{NodeName: "budget-" + zone},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))},
		}},
	}
}

// ready changes whether a pod is ready.
func ready(w *world, name string, is bool) {
	w.t.Helper()
	change(w, pod(name, ""), func(p *corev1.Pod) {
		p.Status.Conditions[0].Status = corev1.ConditionFalse
		if is {
			p.Status.Conditions[0].Status = corev1.ConditionTrue
		}
	})
}

// aShop has a namespace and two zones, with two pods of a Deployment in each.
func aShop() []client.Object {
	return []client.Object{
		namespace(shop), node("a"), node("b"), deployment(4),
		pod("web-1", "a"), pod("web-2", "a"), pod("web-3", "b"), pod("web-4", "b"),
	}
}

// pdbs compares the PodDisruptionBudgets of the shop: their names, what they keep and in which zone.
func (w *world) pdbs(want ...string) {
	w.t.Helper()
	var list policyv1.PodDisruptionBudgetList
	if err := w.client.List(context.Background(), &list, client.InNamespace(shop)); err != nil {
		w.t.Fatal(err)
	}
	var got []string
	for _, pdb := range list.Items {
		zone := "?"
		for _, e := range pdb.Spec.Selector.MatchExpressions {
			if e.Key == corev1.LabelTopologyZone {
				zone = strings.Join(e.Values, ",")
			}
		}
		owner := "no owner"
		if o := ownerOf(&pdb); o != nil {
			owner = o.Name
		}
		got = append(got, fmt.Sprintf("%s keeps %s in %s", owner, pdb.Spec.MinAvailable, zone))
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		w.t.Errorf("there is %q, want %q", got, want)
	}
}
