package eviction

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption/reservation"
	"vicinity.dev/vicinity/internal/kit/admission"
	"vicinity.dev/vicinity/test/rig"
)

// cluster is a control plane with the controllers of Kubernetes, and the webhook in this process.
type cluster struct {
	rig.ControlPlane
	// after is called when the webhook has decided, and the API server does not know yet.
	after *atomic.Pointer[func()]
}

func live(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{ControlPlane: rig.Start(t), after: &atomic.Pointer[func()]{}}
	log.SetLogger(logr.Discard())
	scheme := runtime.NewScheme()
	c.must(errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	cached := cache.Options{}
	reservation.CacheOptions(&cached)
	mgr, err := manager.New(c.Config(), manager.Options{Scheme: scheme, Cache: cached, Metrics: metricsserver.Options{BindAddress: "0"}})
	c.must(err)
	ledger, err := reservation.New(c.Context(), mgr, reservation.Options{})
	c.must(err)
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
	c.Await("the caches", func(context.Context) (string, error) { return "", ledger.Synced(nil) })
	c.serve(ledger)
	c.Make("", "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {vicinity.dev/disruption-budgets: \"true\"}}}")
	c.Await("the service account", func(ctx context.Context) (string, error) {
		_, err := c.CoreV1().ServiceAccounts("shop").Get(ctx, "default", metav1.GetOptions{})
		return "", err
	})
	return c
}

// serve serves the webhook, and registers it as the chart does.
func (c *cluster) serve(l ledger) {
	c.Helper()
	metrics, err := admission.NewMetrics(prometheus.NewRegistry())
	c.must(err)
	decide := admission.New(newJudge(l), options(metrics))
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		decide.ServeHTTP(answer, r)
		if f := c.after.Swap(nil); f != nil {
			(*f)()
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer.Body.Bytes())
	}))
	c.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	c.Make("", fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: vicinity}
webhooks:
- name: eviction.vicinity.dev
  clientConfig: {url: %q, caBundle: %s}
  admissionReviewVersions: [v1]
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [pods/eviction], operations: [CREATE], scope: Namespaced}]
  namespaceSelector: {matchExpressions: [{key: vicinity.dev/disruption-budgets, operator: In, values: ["true"]}]}
  matchPolicy: Equivalent
  sideEffects: NoneOnDryRun
  failurePolicy: Fail
  timeoutSeconds: 10
`, server.URL+Path, base64.StdEncoding.EncodeToString(authority)))
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
}

func (c *cluster) awaitPod(name string, is func(*corev1.Pod) bool) {
	c.Helper()
	c.Await("pod "+name, func(ctx context.Context) (string, error) {
		pod, err := c.CoreV1().Pods("shop").Get(ctx, name, metav1.GetOptions{})
		if err == nil && !is(pod) {
			return fmt.Sprint(pod.Status), nil
		}
		return "", err
	})
}

// pod creates a ready pod.
func (c *cluster) pod(name string) {
	c.Helper()
	c.Make("shop", fmt.Sprintf(`
{apiVersion: v1, kind: Pod, metadata: {name: %s, labels: {app: web}}, spec: {
  nodeName: fake-1, automountServiceAccountToken: false, containers: [{name: c, image: lab/sleep}]}}`, name))
	c.awaitPod(name, isReady)
}

// budget creates a budget of one pod.
func (c *cluster) budget() {
	c.Helper()
	c.Make("shop", `
apiVersion: vicinity.dev/v1alpha1
kind: TopologyDisruptionBudget
metadata: {name: web}
spec: {selector: {matchLabels: {app: web}}, maxUnavailable: 1}
`)
}

func (c *cluster) evict(pod string, change ...func(*policyv1.Eviction)) error {
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: pod}}
	for _, f := range change {
		f(eviction)
	}
	return c.PolicyV1().Evictions("shop").Evict(c.Context(), eviction)
}

func (c *cluster) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// A pod that replaces the target of an eviction is not evicted.
func TestReplacedPod(t *testing.T) {
	c := live(t)
	c.pod("web-0")
	c.budget()
	c.Await("the budget", func(context.Context) (string, error) {
		return "", c.evict("web-0", func(e *policyv1.Eviction) {
			e.DeleteOptions = &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
		})
	})
	replace := func() {
		ctx := c.Context()
		err := c.CoreV1().Pods("shop").Delete(ctx, "web-0", metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		_, made := c.CoreV1().Pods("shop").Create(ctx, &corev1.Pod{
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
