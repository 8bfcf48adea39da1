package eviction

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/built"
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

func (c *cluster) awaitGone(name string) {
	c.Helper()
	c.Await("the end of pod "+name, func(ctx context.Context) (string, error) {
		_, err := c.CoreV1().Pods(c.namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return name, err
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

// reserved are the pods with reservations in a budget.
func (c *cluster) reserved(budget string) (pods []string) {
	c.Helper()
	for _, r := range c.stored(budget).Status.Reservations {
		pods = append(pods, r.Pod)
	}
	return pods
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
		"denial": denial, "drain": drain, "dry_runs": dryRuns, "missing_pod": missingPod, "nothing_to_lose": nothingToLose,
		"replaced_pod": replacedPod, "native_budget": nativeBudget, "two_native_budgets": twoNativeBudgets, "veto": vetoed,
		"budget_changes": budgetChanges, "thousand_budgets": thousandBudgets, "two_budgets": twoBudgets,
		"owner_of_another_kind": ownerOfAnotherKind,
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

// kubectl drain waits for the budget instead of failing.
func drain(c *cluster) {
	kubectl, err := built.Program("kubectl")
	c.must(err)
	c.pods(6, 6) // no other test has pods there
	c.budget("web", "maxUnavailable: 1")
	c.awaitAllowed("web-0", "web-1")
	config := filepath.Join(c.TempDir(), "kubeconfig")
	c.must(os.WriteFile(config, c.kubeconfig(), 0o600))
	command := exec.CommandContext(c.Context(), kubectl, "--kubeconfig="+config, "drain", "fake-6", "--pod-selector=app=web", "--force", "--timeout=100s")
	var said bytes.Buffer
	command.Stdout, command.Stderr = &said, &said
	c.must(command.Start())
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	// One of them goes, and the other when the first is gone.
	c.Await("a pod that ends", func(ctx context.Context) (string, error) {
		list, err := c.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", err
		}
		for _, pod := range list.Items {
			if pod.DeletionTimestamp != nil {
				_, err := c.CoreV1().Pods(c.namespace).Patch(ctx, pod.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
				if err := client.IgnoreNotFound(err); err != nil {
					return "", err
				}
			}
		}
		if len(list.Items) > 0 {
			return fmt.Sprintf("%d pods", len(list.Items)), nil
		}
		return "", nil
	})
	if err := <-ended; err != nil || !strings.Contains(said.String(), "will retry after 5s") {
		c.Errorf("kubectl drain: %v\n%s", err, &said)
	}
	c.must(exec.CommandContext(c.Context(), kubectl, "--kubeconfig="+config, "uncordon", "fake-6").Run())
}

// awaitDenialOnce waits until the budget is known, by which of two pods only one may be evicted at
// a time; and neither is.
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

// kubeconfig is one of the administrator for kubectl.
func (c *cluster) kubeconfig() []byte {
	config := c.Config()
	return fmt.Appendf(nil, `
apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test}}]
clusters: [{name: test, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: test, user: {client-certificate-data: %s, client-key-data: %s}}]
`, config.Host, encoded(config.CAData), encoded(config.CertData), encoded(config.KeyData))
}

func encoded(data []byte) string { return base64.StdEncoding.EncodeToString(data) }

// Neither form of a dry run reserves anything, and both are denied as an eviction would be.
func dryRuns(c *cluster) {
	c.pods(1, 2)
	c.budget("web", "maxUnavailable: 1")
	inQuery := func(pod string) error {
		return c.CoreV1().RESTClient().Post().Namespace(c.namespace).Resource("pods").Name(pod).SubResource("eviction").Param("dryRun", metav1.DryRunAll).
			Body(&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod}}).Do(c.Context()).Error()
	}
	inBody := func(pod string) error {
		return c.evict(pod, func(e *policyv1.Eviction) {
			e.DeleteOptions = &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
		})
	}
	for _, dry := range []func(string) error{inQuery, inBody} {
		for _, pod := range []string{"web-0", "web-1"} {
			c.must(dry(pod))
		}
	}
	if reserved := c.reserved("web"); reserved != nil {
		c.Errorf("dry runs reserved %q", reserved)
	}
	c.Await("an eviction", func(context.Context) (string, error) { return "", c.evict("web-0") })
	c.awaitDenial("web-1", "budget "+c.namespace+"/web")
	for _, dry := range []func(string) error{inQuery, inBody} {
		if err := dry("web-1"); !apierrors.IsTooManyRequests(err) {
			c.Errorf("a dry run of what the budget denies: %v", err)
		}
	}
}

// That a pod does not exist is said by the API server.
func missingPod(c *cluster) {
	c.budget("web", "maxUnavailable: 0")
	if err := c.evict("none"); !apierrors.IsNotFound(err) {
		c.Errorf("the eviction of a pod that does not exist: %v", err)
	}
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

// Pods that are pending, finished or terminating are let go by a budget that keeps all.
func nothingToLose(c *cluster) {
	c.pods(1, 3)
	c.budget("web", "maxUnavailable: 0")
	c.awaitDenial("web-0", "budget")
	c.Make(c.namespace, `
{apiVersion: v1, kind: Pod, metadata: {name: pending, labels: {app: web}}, spec: {nodeSelector: {no: "where"}, automountServiceAccountToken: false, containers: [{name: c, image: lab/sleep}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: finished, labels: {app: web}}, spec: {nodeName: fake-3, automountServiceAccountToken: false, containers: [{name: c, image: lab/sleep}]}}`)
	c.awaitPod("finished", isReady)
	_, err := c.CoreV1().Pods(c.namespace).Patch(c.Context(), "finished", types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
	c.must(err)
	for _, pod := range []string{"pending", "finished"} {
		// The eviction of a pod that is not known to be finished yet is denied, to be tried again.
		c.Await("the eviction of the pod that is "+pod, func(context.Context) (string, error) {
			if err := c.evict(pod); err != nil && !apierrors.IsNotFound(err) {
				return err.Error(), nil
			}
			return "", nil
		})
		c.awaitGone(pod)
	}
	c.must(c.CoreV1().Pods(c.namespace).Delete(c.Context(), "web-0", metav1.DeleteOptions{}))
	c.Await("the eviction of the pod that terminates", func(context.Context) (string, error) {
		if err := c.evict("web-0"); err != nil {
			return err.Error(), nil
		}
		return "", nil
	})
	if err := c.evict("web-1"); !apierrors.IsTooManyRequests(err) {
		c.Errorf("the eviction of the pod that is healthy: %v", err)
	}
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

// What a PodDisruptionBudget is going to refuse takes nothing from other budgets.
func nativeBudget(c *cluster) {
	c.pods(1, 3)
	c.budget("web", "maxUnavailable: 1")
	c.Make(c.namespace, `{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: native}, spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}}`)
	c.awaitDenial("web-0", "PodDisruptionBudget native")
	if err := c.evict("web-0"); !apierrors.IsTooManyRequests(err) || !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) {
		c.Errorf("the eviction that a PodDisruptionBudget refuses: %v", err)
	}
	if reserved := c.reserved("web"); reserved != nil {
		c.Errorf("what the PodDisruptionBudget refuses reserved %q", reserved)
	}
}

// Kubernetes evicts no pod with two PodDisruptionBudgets: the answer is its own, and says which.
func twoNativeBudgets(c *cluster) {
	c.pods(1, 3)
	c.budget("web", "maxUnavailable: 1")
	for _, name := range []string{"native", "other"} {
		c.Make(c.namespace, fmt.Sprintf(`{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: %s}, spec: {maxUnavailable: 1, selector: {matchLabels: {app: web}}}}`, name))
	}
	c.Await("a refusal that names both", func(context.Context) (string, error) {
		err := c.evict("web-0", func(e *policyv1.Eviction) {
			e.DeleteOptions = &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
		})
		var status *apierrors.StatusError
		if errors.As(err, &status) && status.ErrStatus.Code == http.StatusInternalServerError && strings.Contains(err.Error(), "native, other") {
			return "", nil
		}
		return fmt.Sprint(err), nil
	})
	if err := c.evict("web-0"); err == nil {
		c.Error("a pod with two PodDisruptionBudgets was evicted")
	}
	if reserved := c.reserved("web"); reserved != nil {
		c.Errorf("a pod with two PodDisruptionBudgets reserved %q", reserved)
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

// A budget counts as it is stored when it is asked, and not at all once it is deleted.
func budgetChanges(c *cluster) {
	c.pods(1, 1, 2, 2)
	c.budget("web", "maxUnavailable: 1")
	c.awaitAllowed("web-0")
	c.must(c.evict("web-0"))
	if err := c.evict("web-1"); !apierrors.IsTooManyRequests(err) {
		c.Fatalf("the eviction beyond the budget: %v", err)
	}
	c.budget("web", "maxUnavailable: 2")
	c.Await("what the new budget allows", func(context.Context) (string, error) {
		if err := c.evict("web-1"); err != nil {
			return err.Error(), nil
		}
		return "", nil
	})
	c.awaitDenial("web-2", "budget")
	c.must(c.objects.Delete(c.Context(), c.stored("web")))
	c.Await("an eviction without a budget", func(context.Context) (string, error) {
		if err := c.evict("web-2"); err != nil {
			return err.Error(), nil
		}
		return "", nil
	})
	c.must(c.evict("web-3"))
}

// A thousand budgets of a namespace cost a pod that one of them covers no time.
func thousandBudgets(c *cluster) {
	const budgets = 1000
	var work sync.WaitGroup
	next := make(chan int)
	for range 16 {
		work.Go(func() {
			for i := range next {
				budget := &v1alpha1.TopologyDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: fmt.Sprintf("b-%d", i)}}
				budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "all", "shard": fmt.Sprint(i)}}
				budget.Spec.MaxUnavailable = new(intstr.FromInt32(1))
				if err := c.objects.Create(c.Context(), budget); err != nil {
					c.Error(err)
				}
			}
		})
	}
	for i := range budgets {
		next <- i
	}
	close(next)
	work.Wait()
	for i := range 2 {
		c.Make(c.namespace, fmt.Sprintf(`
{apiVersion: v1, kind: Pod, metadata: {name: web-%d, labels: {tier: all, shard: "7"}, finalizers: [%s]}, spec: {
  nodeName: fake-1, automountServiceAccountToken: false, containers: [{name: c, image: lab/sleep}]}}`, i, keep))
	}
	for i := range 2 {
		c.awaitPod(fmt.Sprintf("web-%d", i), isReady)
	}
	c.awaitAllowed("web-0", "web-1")
	begin := time.Now()
	c.must(c.evict("web-0"))
	took := time.Since(begin)
	if err := c.evict("web-1"); !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), "/b-7") {
		c.Errorf("the eviction beyond one of %d budgets: %v", budgets, err)
	}
	c.Logf("an eviction beside %d budgets took %s", budgets, took.Round(time.Millisecond))
}

// What is reserved in one budget is given up if another one denies it.
func twoBudgets(c *cluster) {
	c.pods(1, 3)
	c.budget("a", "maxUnavailable: 1")
	c.budget("b", "maxUnavailable: 1, maxUnavailableTotal: 1")
	c.awaitAllowed("web-0")
	c.must(c.evict("web-1"))
	c.awaitDenial("web-0", "/b")
	if err := c.evict("web-0"); !apierrors.IsTooManyRequests(err) {
		c.Fatalf("the eviction that the second budget denies: %v", err)
	}
	c.Await("a budget without the reservation", func(context.Context) (string, error) {
		for _, budget := range []string{"a", "b"} {
			if reserved := c.reserved(budget); slices.Contains(reserved, "web-0") {
				return fmt.Sprintf("%s has %q", budget, reserved), nil
			}
		}
		return "", nil
	})
}
