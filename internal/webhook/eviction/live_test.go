package eviction

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/reservation"
	"vicinity.dev/vicinity/internal/webhook/admission"
	"vicinity.dev/vicinity/internal/webhook/certificates"
	"vicinity.dev/vicinity/test/rig"
)

const (
	system = "vicinity-system"
	// hall is the label of nodes that divides them into domains here.
	hall = "example.com/hall"
	// keep is a finalizer by which a pod stays once it is deleted.
	keep = "example.com/keep"
)

// cluster is a control plane with the controllers of Kubernetes, and the webhooks served by this
// process. Nodes fake-1 and fake-2 are in hall a, and so on up to hall c.
type cluster struct {
	rig.ControlPlane
	objects client.Client
	metrics *admission.Metrics
	certs   *certificates.Certificates
	port    int

	// after is called when the webhook has decided, and the API server does not know yet.
	after *atomic.Pointer[func()]
	// veto has another validating webhook deny evictions.
	veto      *atomic.Bool
	namespace string
}

// on is the cluster for a part of a test, with a namespace of its own where evictions are checked.
func (c *cluster) on(t *testing.T) *cluster {
	part := *c
	part.ControlPlane = c.For(t)
	part.namespace = strings.ToLower(strings.ReplaceAll(t.Name()[strings.LastIndex(t.Name(), "/")+1:], "_", "-"))
	part.Make("", fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {vicinity.dev/disruption-budgets: \"true\"}}}", part.namespace))
	part.Await("the service account", func(ctx context.Context) (string, error) {
		_, err := part.CoreV1().ServiceAccounts(part.namespace).Get(ctx, "default", metav1.GetOptions{})
		return "", err
	})
	return &part
}

func live(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{
		ControlPlane: rig.Start(t), after: &atomic.Pointer[func()]{}, veto: &atomic.Bool{},
	}
	log.SetLogger(logr.Discard())
	scheme := runtime.NewScheme()
	err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme))
	if err != nil {
		t.Fatal(err)
	}
	if c.objects, err = client.New(c.Config(), client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	if c.metrics, err = admission.NewMetrics(prometheus.NewRegistry()); err != nil {
		t.Fatal(err)
	}
	c.Label(hall, rig.Halls(2))
	c.Make("", `
{apiVersion: v1, kind: Namespace, metadata: {name: vicinity-system}}
---
{apiVersion: v1, kind: Secret, metadata: {name: webhook, namespace: vicinity-system}}
`)
	c.serve(scheme)
	return c
}

// serve runs a manager with the webhook, and registers it as the chart does.
func (c *cluster) serve(scheme *runtime.Scheme) {
	c.Helper()
	listener, err := new(net.ListenConfig).Listen(c.Context(), "tcp", "localhost:0")
	if err != nil {
		c.Fatal(err)
	}
	c.port = listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		c.Fatal(err)
	}
	c.certs, err = certificates.New(certificates.Options{
		Secret: types.NamespacedName{Namespace: system, Name: "webhook"}, Names: []string{"localhost"},
		Mutating: []string{"vicinity"}, Validating: []string{"somebody-else"},
	})
	if err != nil {
		c.Fatal(err)
	}
	cached := cache.Options{}
	reservation.CacheOptions(&cached)
	mgr, err := manager.New(c.Config(), manager.Options{
		Scheme: scheme, Cache: cached, Metrics: metricsserver.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{Host: "localhost", Port: c.port, TLSOpts: []func(*tls.Config){c.certs.Configure}}),
	})
	if err != nil {
		c.Fatal(err)
	}
	if err := c.certs.Register(mgr); err != nil {
		c.Fatal(err)
	}
	ledger, err := reservation.New(c.Context(), mgr, reservation.Options{})
	if err != nil {
		c.Fatal(err)
	}
	server := mgr.GetWebhookServer()
	decide := admission.New(newJudge(ledger), options(c.metrics))
	server.Register(Path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		decide.ServeHTTP(answer, r)
		if f := c.after.Swap(nil); f != nil {
			(*f)()
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer.Body.Bytes())
	}))
	server.Register("/veto", admission.New(func() admission.Judge { return &vetoing{veto: c.veto} }, options(c.metrics)))
	c.configure()
	ctx, cancel := context.WithCancel(c.Context())
	var work sync.WaitGroup
	work.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			c.Error(err)
		}
	})
	c.Cleanup(func() {
		cancel()
		work.Wait()
	})
	c.Await("the certificates", func(context.Context) (string, error) { return "", c.certs.Ready(nil) })
	c.Await("the caches", func(context.Context) (string, error) { return "", ledger.Synced(nil) })
}

// vetoing is the webhook of somebody else.
type vetoing struct {
	judge
	veto *atomic.Bool
}

func (v *vetoing) Judge(context.Context, *admission.Request) (admission.Verdict, error) {
	if v.veto.Load() {
		return admission.Verdict{Denial: &admission.Denial{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "vetoed"}}, nil
	}
	return admission.Verdict{}, nil
}

// configure registers the webhook, and one of somebody else.
func (c *cluster) configure() {
	c.Helper()
	const common = `
  admissionReviewVersions: [v1]
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [pods/eviction], operations: [CREATE], scope: Namespaced}]
  namespaceSelector: {matchExpressions: [{key: vicinity.dev/disruption-budgets, operator: In, values: ["true"]},
    {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, vicinity-system]}]}
  matchPolicy: Equivalent
  sideEffects: NoneOnDryRun
  failurePolicy: Fail
  timeoutSeconds: 10
`
	c.Make("", strings.ReplaceAll(`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: vicinity}
webhooks:
- name: eviction.vicinity.dev
  clientConfig: {url: "https://localhost:PORT/validate-eviction"}`+common+`
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: somebody-else}
webhooks:
- name: veto.example.com
  clientConfig: {url: "https://localhost:PORT/veto"}`+common, "PORT", fmt.Sprint(c.port)))
}

// pods makes pods that are ready, one on each of some nodes, which stay once they are deleted:
// as many that take long to end.
func (c *cluster) pods(nodes ...int) {
	c.Helper()
	for i, node := range nodes {
		c.Make(c.namespace, fmt.Sprintf(`
{apiVersion: v1, kind: Pod, metadata: {name: web-%d, labels: {app: web}, finalizers: [%s]}, spec: {
  nodeName: fake-%d, automountServiceAccountToken: false, containers: [{name: c, image: lab/sleep}]}}`, i, keep, node))
	}
	for i := range nodes {
		c.awaitPod(fmt.Sprintf("web-%d", i), isReady)
	}
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
}

func (c *cluster) awaitPod(name string, is func(*corev1.Pod) bool) {
	c.Helper()
	c.Await("pod "+name, func(ctx context.Context) (string, error) {
		pod, err := c.CoreV1().Pods(c.namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && !is(pod) {
			return fmt.Sprint(pod.Status), nil
		}
		return "", err
	})
}

// budget makes a budget for each hall, which decides once it is known.
func (c *cluster) budget(name, spec string) {
	c.Helper()
	c.Make(c.namespace, fmt.Sprintf(`
apiVersion: vicinity.dev/v1alpha1
kind: TopologyDisruptionBudget
metadata: {name: %s}
spec: {selector: {matchLabels: {app: web}}, nodeSelectorTerm: {matchExpressions: [{key: %s, operator: Exists}]}, %s}
`, name, hall, spec))
}

func (c *cluster) stored(budget string) *v1alpha1.TopologyDisruptionBudget {
	c.Helper()
	read := &v1alpha1.TopologyDisruptionBudget{}
	if err := c.objects.Get(c.Context(), client.ObjectKey{Namespace: c.namespace, Name: budget}, read); err != nil {
		c.Fatal(err)
	}
	return read
}

func (c *cluster) evict(pod string, change ...func(*policyv1.Eviction)) error {
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: pod}}
	for _, f := range change {
		f(eviction)
	}
	return c.PolicyV1().Evictions(c.namespace).Evict(c.Context(), eviction)
}

// awaitDenial evicts a pod without doing it until the answer is a denial with some words: the
// webhooks have to see what was written first.
func (c *cluster) awaitDenial(pod, words string) {
	c.Helper()
	c.Await("a denial that says "+words, func(context.Context) (string, error) {
		err := c.evict(pod, func(e *policyv1.Eviction) {
			e.DeleteOptions = &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
		})
		if apierrors.IsTooManyRequests(err) && strings.Contains(err.Error(), words) {
			return "", nil
		}
		return fmt.Sprint(err), nil
	})
}

func (c *cluster) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func TestAgainstKubernetes(t *testing.T) {
	c := live(t)
	for name, test := range map[string]func(*cluster){
		"denial": denial, "replaced_pod": replacedPod, "veto": vetoed, "owner_of_another_kind": ownerOfAnotherKind,
	} {
		t.Run(name, func(t *testing.T) { test(c.on(t)) })
	}
}

// A denial is 429 with a cause, and without a time at which clients would try again silently.
func denial(c *cluster) {
	c.pods(1, 2, 3)
	c.budget("web", "maxUnavailable: 1")
	c.Await("the first eviction", func(context.Context) (string, error) { return "", c.evict("web-0") })
	c.awaitDenial("web-1", "budget "+c.namespace+"/web")
	var status *apierrors.StatusError
	if !errors.As(c.evict("web-1"), &status) {
		c.Fatal("the second eviction in the hall was not denied")
	}
	got := status.Status()
	if got.Code != http.StatusTooManyRequests || got.Reason != metav1.StatusReasonTooManyRequests || got.Details == nil || got.Details.RetryAfterSeconds != 0 ||
		!slices.ContainsFunc(got.Details.Causes, func(cause metav1.StatusCause) bool {
			return cause.Type == policyv1.DisruptionBudgetCause && cause.Message != ""
		}) {
		c.Errorf("the denial is %+v", got)
	}
	for _, word := range []string{"web-0", "a", "1"} {
		if !strings.Contains(got.Message, word) {
			c.Errorf("the denial does not say %q: %s", word, got.Message)
		}
	}
	if _, wait := apierrors.SuggestsClientDelay(status); wait {
		c.Error("the denial tells clients when to try again")
	}
	// Another hall has a budget of its own.
	c.must(c.evict("web-2"))
}

// awaitAllowed waits until the budget is known: a dry run of the eviction of each pod is allowed.
func (c *cluster) awaitAllowed(pods ...string) {
	c.Helper()
	dry := func(e *policyv1.Eviction) {
		e.DeleteOptions = &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	}
	c.Await("the budget", func(context.Context) (string, error) {
		for _, pod := range pods {
			if err := c.evict(pod, dry); err != nil {
				return "", err
			}
		}
		return "", nil
	})
}

// An operator's object says by its subresource scale how many pods there are: one that it has not
// made yet is missing.
func ownerOfAnotherKind(c *cluster) {
	c.Make("", `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: caches.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Cache, plural: caches, singular: cache, listKind: CacheList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {
      spec: {type: object, properties: {replicas: {type: integer}}}, status: {type: object, properties: {replicas: {type: integer}}}}}}
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
`)
	owner := &unstructured.Unstructured{}
	c.Await("the object of an operator", func(ctx context.Context) (string, error) {
		owner.Object = map[string]any{
			"apiVersion": "example.com/v1", "kind": "Cache", "spec": map[string]any{"replicas": int64(3)},
			"metadata": map[string]any{"name": "web", "namespace": c.namespace},
		}
		return "", c.objects.Create(ctx, owner)
	})
	for i := range 2 {
		c.Make(c.namespace, fmt.Sprintf(`
{apiVersion: v1, kind: Pod, metadata: {name: web-%d, labels: {app: web}, ownerReferences: [
  {apiVersion: example.com/v1, kind: Cache, name: web, uid: %s, controller: true}]}, spec: {
  nodeName: fake-%d, automountServiceAccountToken: false, containers: [{name: c, image: lab/sleep}]}}`, i, owner.GetUID(), i+1))
	}
	for i := range 2 {
		c.awaitPod(fmt.Sprintf("web-%d", i), isReady)
	}
	c.Make(c.namespace, `
apiVersion: vicinity.dev/v1alpha1
kind: TopologyDisruptionBudget
metadata: {name: web}
spec: {selector: {matchLabels: {app: web}}, maxUnavailable: 1}
`)
	c.awaitDenial("web-0", "1 pod is missing")
	c.must(c.objects.Patch(c.Context(), owner, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":2}}`))))
	c.Await("the eviction of a pod of which there are as many as there should be", func(context.Context) (string, error) {
		if err := c.evict("web-0"); err != nil {
			return err.Error(), nil
		}
		return "", nil
	})
}

// A pod that takes the place of the one that the eviction was for is not evicted.
func replacedPod(c *cluster) {
	c.pods(1)
	c.budget("web", "maxUnavailable: 1")
	c.awaitAllowed("web-0")
	replace := func() {
		ctx := c.Context()
		_, err := c.CoreV1().Pods(c.namespace).Patch(ctx, "web-0", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		err = errors.Join(err, c.CoreV1().Pods(c.namespace).Delete(ctx, "web-0", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
		_, made := c.CoreV1().Pods(c.namespace).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "web-0", Labels: map[string]string{"app": "web"}},
			Spec:       corev1.PodSpec{NodeName: "fake-1", AutomountServiceAccountToken: new(bool), Containers: []corev1.Container{{Name: "c", Image: "lab/sleep"}}},
		}, metav1.CreateOptions{})
		if err := errors.Join(err, made); err != nil {
			c.Error(err)
		}
	}
	c.after.Store(&replace)
	if err := c.evict("web-0"); !apierrors.IsConflict(err) {
		c.Errorf("the eviction of a pod that was replaced when it was decided about: %v", err)
	}
	c.awaitPod("web-0", func(pod *corev1.Pod) bool { return isReady(pod) && pod.DeletionTimestamp == nil })
	// Nor is one whose UID is not the one that a client chose.
	other := types.UID("11111111-2222-3333-4444-555555555555")
	if err := c.evict("web-0", func(e *policyv1.Eviction) {
		e.DeleteOptions = &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}}
	}); !apierrors.IsConflict(err) {
		c.Errorf("the eviction of a pod with the UID of another one: %v", err)
	}
}

// Where somebody else denies what was admitted, the reservation ends when it would have anyway,
// however often it is tried again.
func vetoed(c *cluster) {
	c.pods(1)
	c.budget("web", "maxUnavailable: 1")
	c.awaitAllowed("web-0")
	c.veto.Store(true)
	defer c.veto.Store(false)
	if err := c.evict("web-0"); !apierrors.IsForbidden(err) {
		c.Fatalf("the eviction that another webhook denies: %v", err)
	}
	var first []v1alpha1.Reservation
	c.Await("the reservation", func(context.Context) (string, error) {
		if first = c.stored("web").Status.Reservations; len(first) != 1 {
			return fmt.Sprint(first), nil
		}
		return "", nil
	})
	for range 3 {
		if err := c.evict("web-0"); !apierrors.IsForbidden(err) {
			c.Fatalf("the next try: %v", err)
		}
	}
	again := c.stored("web").Status.Reservations
	if len(again) != 1 || again[0].UID != first[0].UID || !again[0].Expires.Equal(&first[0].Expires) {
		c.Errorf("the reservation was %+v, and is %+v after more tries", first, again)
	}
}
