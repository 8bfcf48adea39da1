package scale

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"vicinity.dev/vicinity/api/v1alpha1"
	controller "vicinity.dev/vicinity/internal/controller/pacing"
	"vicinity.dev/vicinity/internal/pacing"
	"vicinity.dev/vicinity/internal/reservation"
	"vicinity.dev/vicinity/internal/webhook/admission"
	"vicinity.dev/vicinity/internal/webhook/certificates"
	"vicinity.dev/vicinity/test/rig"
)

const (
	system = "vicinity-system"
	user   = "system:serviceaccount:vicinity-system:vicinity-controller"
	hall   = "example.com/hall"
)

// cluster is a control plane with the controllers of Kubernetes, and this one with its webhooks. Nodes fake-1 and fake-2 are
// in hall a, and so on up to hall c.
type cluster struct {
	rig.ControlPlane
	objects   client.Client
	namespace string
	halls     map[string]string
}

// TestAgainstKubernetes has Kubernetes' own controllers scale workloads down that are paced.
func TestAgainstKubernetes(t *testing.T) {
	c := &cluster{ControlPlane: rig.Start(t), halls: rig.Halls(2)}
	log.SetLogger(logr.Discard())
	c.Label(hall, c.halls)
	c.serve()
	for name, test := range map[string]func(*cluster){
		"deny":  testDeny,
		"clamp": testClamp,
		"ended": testEnded,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(c.on(t))
		})
	}
}

// on is the cluster for a part of a test, with a namespace of its own.
func (c *cluster) on(t *testing.T) *cluster {
	part := *c
	part.ControlPlane = c.For(t)
	var err error
	if part.namespace, err = c.MakeNamespace(t.Context(), t.Name()[strings.LastIndex(t.Name(), "/")+1:]); err != nil {
		t.Fatal(err)
	}
	return &part
}

// serve runs a manager with the controller and the webhooks, and registers these as the chart does.
func (c *cluster) serve() {
	c.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		c.Fatal(err)
	}
	var err error
	if c.objects, err = client.New(c.Config(), client.Options{Scheme: scheme}); err != nil {
		c.Fatal(err)
	}
	c.Make("", `
{apiVersion: v1, kind: Namespace, metadata: {name: vicinity-system}}
---
{apiVersion: v1, kind: Secret, metadata: {name: webhook, namespace: vicinity-system}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: vicinity-scale-downs, namespace: vicinity-system}}
`)
	listener, err := new(net.ListenConfig).Listen(c.Context(), "tcp", "localhost:0")
	if err != nil {
		c.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		c.Fatal(err)
	}
	certs, err := certificates.New(certificates.Options{
		Secret: types.NamespacedName{Namespace: system, Name: "webhook"}, Names: []string{"localhost"}, Mutating: []string{"vicinity"},
	})
	if err != nil {
		c.Fatal(err)
	}
	config := c.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	cached := cache.Options{}
	reservation.CacheOptions(&cached)
	mgr, err := manager.New(config, manager.Options{
		Scheme: scheme, Cache: cached, Metrics: metricsserver.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{Host: "localhost", Port: port, TLSOpts: []func(*tls.Config){certs.Configure}}),
	})
	if err != nil {
		c.Fatal(err)
	}
	metrics, err := admission.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		c.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.Context())
	ledger, err := reservation.New(ctx, mgr, reservation.Options{})
	if err != nil {
		c.Fatal(err)
	}
	pacer := pacing.New(ledger, mgr.GetAPIReader(), mgr.GetClient())
	err = errors.Join(
		certs.Register(mgr), controller.Add(ctx, mgr, pacer, controller.Options{Workers: 4}),
		Register(mgr, Options{Pacer: pacer, User: user, Namespace: system, Metrics: metrics}),
	)
	if err != nil {
		c.Fatal(err)
	}
	c.register(port)
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
	c.Await("the certificates", func(context.Context) (string, error) { return "", certs.Ready(nil) })
	c.Await("the caches", func(context.Context) (string, error) { return "", ledger.Synced(nil) })
}

func (c *cluster) register(port int) {
	c.Helper()
	hooks := ""
	for _, kind := range pacing.Kinds() {
		resource := strings.ToLower(string(kind)) + "s"
		hooks += fmt.Sprintf(`
- name: %[1]s.scale.vicinity.dev
  clientConfig: {url: "https://localhost:%[2]d%[3]s"}
  admissionReviewVersions: [v1]
  rules: [{apiGroups: [apps], apiVersions: [v1], resources: [%[1]s, %[1]s/scale], operations: [UPDATE], scope: Namespaced}]
  namespaceSelector: {matchExpressions: [{key: vicinity.dev/pace-scale-down, operator: Exists}]}
  matchConditions:
  - name: scales-down
    expression: >-
      request.?subResource.orValue('') == 'scale' ? object.spec.?replicas.orValue(0) <= oldObject.spec.?replicas.orValue(0) :
      object.spec.?replicas.orValue(1) < oldObject.spec.?replicas.orValue(1) ||
      request.userInfo.username == '%[4]s' && object.metadata.?annotations[?'vicinity.dev/wanted-replicas'].hasValue()
  - name: of-no-deployment
    expression: >-
      !object.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false) && o.kind == 'Deployment')
  matchPolicy: Equivalent
  sideEffects: NoneOnDryRun
  reinvocationPolicy: Never
  failurePolicy: Fail
  timeoutSeconds: 5`, resource, port, Path(kind), user)
	}
	c.Make("", "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\nmetadata: {name: vicinity}\nwebhooks:"+hooks)
}

const (
	// pods stay once they are deleted, by a finalizer: as those that take long to end.
	pods = `
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, finalizers: [example.com/keep]}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: web, image: web}]
      topologySpreadConstraints: [{maxSkew: 1, topologyKey: example.com/hall, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}]
`
	// oneOfAHall allows one pod of each hall to be down.
	oneOfAHall = `
{apiVersion: vicinity.dev/v1alpha1, kind: TopologyDisruptionBudget, metadata: {name: web}, spec: {
  maxUnavailable: 1, selector: {matchLabels: {app: web}}, nodeSelectorTerm: {matchExpressions: [{key: example.com/hall, operator: Exists}]}}}
`
)

// start makes nine pods of a workload, three in each hall, in a namespace with a mode.
func (c *cluster) start(kind, mode string) {
	c.Helper()
	if mode != "" {
		c.Make("", fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {vicinity.dev/pace-scale-down: %s}}}`, c.namespace, mode))
	}
	c.Make(c.namespace, oneOfAHall)
	c.Make(c.namespace, fmt.Sprintf(
		"apiVersion: apps/v1\nkind: %s\nmetadata: {name: web}\nspec:\n  replicas: 9%s%s", kind, map[string]string{"StatefulSet": "\n  serviceName: web\n  podManagementPolicy: Parallel"}[kind], pods))
	c.Await("nine pods", func(ctx context.Context) (string, error) {
		list, err := c.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", err
		}
		ready := 0
		for i := range list.Items {
			if slices.ContainsFunc(list.Items[i].Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			}) {
				ready++
			}
		}
		if ready != 9 {
			return fmt.Sprintf("%d are ready", ready), nil
		}
		return "", nil
	})
}

// going are the pods of each workload that are being deleted, by hall.
func (c *cluster) going(ctx context.Context) map[string][]string {
	c.Helper()
	list, err := c.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		c.Error(err)
		return nil
	}
	found := map[string][]string{}
	for i := range list.Items {
		if pod := &list.Items[i]; pod.DeletionTimestamp != nil {
			place := c.halls[pod.Spec.NodeName] + " " + pod.Labels["part"]
			found[place] = append(found[place], pod.Name)
		}
	}
	return found
}

// paced are the pods that are being deleted, of which no two may be of one workload and in one hall.
func (c *cluster) paced(ctx context.Context) (names []string) {
	c.Helper()
	for place, of := range c.going(ctx) {
		if len(of) > 1 {
			c.Errorf("%v go at once in hall %s", of, place)
		}
		names = append(names, of...)
	}
	return names
}

// awaitGoing waits until so many pods are being deleted.
func (c *cluster) awaitGoing(n int) {
	c.Helper()
	c.Await(fmt.Sprintf("%d pods to be deleted", n), func(ctx context.Context) (string, error) {
		if going := c.paced(ctx); len(going) != n {
			return fmt.Sprint(going), nil
		}
		return "", nil
	})
}

// release lets the pods go that are being deleted.
func (c *cluster) release() {
	c.Helper()
	for _, names := range c.going(c.Context()) {
		for _, name := range names {
			_, err := c.CoreV1().Pods(c.namespace).Patch(c.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				c.Fatal(err)
			}
		}
	}
}

// releaseUntil lets pods go until the workload has so many replicas.
func (c *cluster) releaseUntil(kind pacing.Kind, replicas int32) {
	c.Helper()
	c.Await(fmt.Sprintf("%d replicas", replicas), func(ctx context.Context) (string, error) {
		going := c.paced(ctx)
		c.release()
		w, err := pacing.Read(ctx, c.objects, kind, types.NamespacedName{Namespace: c.namespace, Name: "web"})
		if err != nil || w == nil {
			return "", err
		}
		if w.Replicas < replicas {
			c.Errorf("it has %d replicas, fewer than %d", w.Replicas, replicas)
		}
		list, err := c.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", err
		}
		// The pods that are too many may not be going yet.
		if n := len(list.Items); n != int(replicas) || w.Replicas != replicas || w.Wanted != nil || w.Paced != nil {
			return fmt.Sprintf("%d replicas, %d pods, annotations %v, going %v", w.Replicas, n, w.Object.GetAnnotations(), going), nil
		}
		return "", nil
	})
}

// read is the workload now.
func (c *cluster) read(kind pacing.Kind) pacing.Workload {
	c.Helper()
	w, err := pacing.Read(c.Context(), c.objects, kind, types.NamespacedName{Namespace: c.namespace, Name: "web"})
	if err != nil || w == nil {
		c.Fatalf("%v, %v", w, err)
	}
	return *w
}

// has checks the replicas of a Deployment whose scale-down is not under way.
func (c *cluster) has(replicas int32) {
	c.Helper()
	if w := c.read(pacing.Deployment); w.Replicas != replicas || w.Wanted != nil {
		c.Errorf("it has %d replicas and %v, want %d and no more wanted", w.Replicas, w.Object.GetAnnotations(), replicas)
	}
}

// awaitWanted waits until the annotation says how many are wanted.
func (c *cluster) awaitWanted(kind pacing.Kind, wanted string) {
	c.Helper()
	c.Await("wanted replicas "+wanted, func(context.Context) (string, error) {
		if w := c.read(kind); w.Object.GetAnnotations()[v1alpha1.AnnotationWantedReplicas] != wanted {
			return fmt.Sprintf("%d replicas, %v", w.Replicas, w.Object.GetAnnotations()), nil
		}
		return "", nil
	})
}

// scale writes the subresource, as autoscalers do, and tries again if the status has changed meanwhile.
func (c *cluster) scale(replicas int32, options metav1.UpdateOptions) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error { return c.scaleOnce(replicas, options) })
}

func (c *cluster) scaleOnce(replicas int32, options metav1.UpdateOptions) error {
	scale, err := c.AppsV1().Deployments(c.namespace).GetScale(c.Context(), "web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	_, err = c.AppsV1().Deployments(c.namespace).UpdateScale(c.Context(), "web", &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "web", ResourceVersion: scale.ResourceVersion}, Spec: autoscalingv1.ScaleSpec{Replicas: replicas},
	}, options)
	return err
}

// edit changes the replicas in the Deployment itself.
func (c *cluster) edit(replicas int32) error {
	return c.objects.Patch(c.Context(), c.read(pacing.Deployment).Object, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)))
}

func (c *cluster) reservations() int {
	c.Helper()
	budget := &v1alpha1.TopologyDisruptionBudget{}
	if err := c.objects.Get(c.Context(), types.NamespacedName{Namespace: c.namespace, Name: "web"}, budget); err != nil {
		c.Fatal(err)
	}
	return len(budget.Status.Reservations)
}

func testDeny(c *cluster) {
	c.start("Deployment", v1alpha1.PaceDeny)
	for _, err := range []error{c.scale(3, metav1.UpdateOptions{}), c.edit(3), c.scale(3, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})} {
		if !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), "asked for 3") || !strings.Contains(err.Error(), "web") {
			c.Errorf("the answer is %v", err)
		}
	}
	c.has(9)
	if n := c.reservations(); n > 0 {
		c.Errorf("%d evictions are reserved for scale-downs that were refused", n)
	}
	// A dry run of what is allowed reserves nothing, and the write itself does, exactly what goes.
	if err := c.scale(8, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil || c.reservations() > 0 {
		c.Errorf("a dry run says %v, and %d are reserved", err, c.reservations())
	}
	if err := c.scale(8, metav1.UpdateOptions{}); err != nil {
		c.Error(err)
	}
	c.awaitGoing(1)
	if err := c.scale(9, metav1.UpdateOptions{}); err != nil {
		c.Errorf("a scale-up: %v", err)
	}
	if err := c.scale(8, metav1.UpdateOptions{}); !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), "still being deleted") {
		c.Errorf("a second scale-down while a pod goes: %v", err)
	}
	c.release()
}

func testClamp(c *cluster) {
	c.start("Deployment", v1alpha1.PaceClamp)
	if err := c.scale(3, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil || c.reservations() > 0 {
		c.Errorf("a dry run says %v, and %d are reserved", err, c.reservations())
	}
	if err := c.scale(3, metav1.UpdateOptions{}); err != nil {
		c.Fatal(err)
	}
	c.awaitWanted(pacing.Deployment, "3")
	if w := c.read(pacing.Deployment); w.Replicas < 6 || w.Replicas > 8 {
		c.Errorf("it has %d replicas", w.Replicas)
	}
	// The same number again changes nothing, by either way.
	before := c.read(pacing.Deployment)
	if err := errors.Join(c.scale(3, metav1.UpdateOptions{}), c.edit(3)); err != nil {
		c.Error(err)
	}
	if after := c.read(pacing.Deployment); after.Replicas > before.Replicas || *after.Wanted != 3 {
		c.Errorf("it has %d replicas after the same number again, and had %d", after.Replicas, before.Replicas)
	}
	c.releaseUntil(pacing.Deployment, 3)

	// A larger number ends a scale-down.
	if err := c.scale(9, metav1.UpdateOptions{}); err != nil {
		c.Fatal(err)
	}
	c.Await("nine pods", func(ctx context.Context) (string, error) {
		d, err := c.AppsV1().Deployments(c.namespace).Get(ctx, "web", metav1.GetOptions{})
		if err == nil && d.Status.ReadyReplicas != 9 {
			return fmt.Sprint(d.Status.ReadyReplicas), nil
		}
		return "", err
	})
	if err := c.edit(1); err != nil {
		c.Fatal(err)
	}
	if w := c.read(pacing.Deployment); w.Wanted == nil || *w.Wanted != 1 || w.Replicas >= 9 || w.Replicas < 6 {
		c.Errorf("a write of the object itself leaves %d replicas and %v", w.Replicas, w.Object.GetAnnotations())
	}
	if err := c.edit(9); err != nil {
		c.Fatal(err)
	}
	c.awaitWanted(pacing.Deployment, "")
	c.has(9)
	c.release()
}

// testEnded: a process has stored what is wanted, and ended.
func testEnded(c *cluster) {
	c.start("Deployment", v1alpha1.PaceClamp)
	w := c.read(pacing.Deployment)
	ended := newRecords(c.objects, c.objects, system, logr.Discard())
	what := record{Request: "1", Kind: pacing.Deployment, Namespace: c.namespace, Name: "web", UID: w.Object.GetUID(), Replicas: 9, Wanted: new(int32(3))}
	if _, err := ended.store(c.Context(), what); err != nil {
		c.Fatal(err)
	}
	c.awaitWanted(pacing.Deployment, "3")
	c.releaseUntil(pacing.Deployment, 3)
	c.Await("the record to go", func(ctx context.Context) (string, error) {
		all, err := ended.stored(ctx)
		return all[string(what.UID)], err
	})
}
