package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/requester"
	"vicinity.dev/vicinity/internal/reservation"
	"vicinity.dev/vicinity/test/requests"
	"vicinity.dev/vicinity/test/rig"
)

const hall = "example.com/hall"

var halls = []string{"a", "b", "c"}

// cluster is a control plane with three nodes in each hall, whose pods are ready at once and run nothing.
type cluster struct {
	rig.ControlPlane
	api       client.WithWatch
	namespace string
	halls     map[string]string // by node

	seen *order
}

// order has the halls in which pods were evicted, each as often as it was its turn.
type order struct {
	mu    sync.Mutex
	halls []string
}

// TestAgainstKubernetes has Kubernetes' own controllers and scheduler replace the pods.
func TestAgainstKubernetes(t *testing.T) {
	c := &cluster{seen: &order{}, ControlPlane: rig.Start(t)}
	log.SetLogger(logr.Discard())
	var err error
	if c.api, err = client.NewWithWatch(c.Config(), client.Options{Scheme: testScheme(t)}); err != nil {
		t.Fatal(err)
	}
	c.halls = rig.Halls(3)
	c.Label(hall, c.halls)
	t.Run("a controller that crashes", func(t *testing.T) { c.in(t, "crashes").survives() })
	t.Run("a budget that is edited", func(t *testing.T) { c.in(t, "budget").isHeld() })
	t.Run("pods with responders", func(t *testing.T) { c.in(t, "responders").isAnswered() })
}

// in is the cluster for a subtest with a namespace of its own.
func (c *cluster) in(t *testing.T, namespace string) *cluster {
	t.Helper()
	inner := *c
	inner.ControlPlane = c.For(t)
	var err error
	if inner.namespace, err = c.MakeNamespace(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	return &inner
}

const heldBudget = `
apiVersion: vicinity.dev/v1alpha1
kind: TopologyDisruptionBudget
metadata: {name: db}
spec:
  selector: {matchLabels: {app: db}}
  maxUnavailable: 0
  nodeSelectorTerm: {matchExpressions: [{key: HALL, operator: NotIn, values: [b]}]}
`

// isHeld updates a set that makes its pods in order, under a budget that lets go those of the first hall only, until it
// is edited.
func (c *cluster) isHeld() {
	c.Make(c.namespace, strings.ReplaceAll(strings.Replace(statefulSet, "Parallel", "OrderedReady", 1), "HALL", hall))
	c.Make(c.namespace, strings.ReplaceAll(heldBudget, "HALL", hall))
	c.Make(c.namespace, rolloutManifest)
	c.updated("1")
	c.run()
	c.completes()
	c.hallsInOrder()
	c.template("2")
	c.denied("b")
	c.edit("b", "a")
	c.denied("b", "a")
	budget := &v1alpha1.TopologyDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "db"}}
	if err := c.api.Delete(c.Context(), budget); err != nil {
		c.Fatal(err)
	}
	c.updated("2")
	c.completes()
	if got := c.hallsInOrder(); !slices.Equal(got, []string{"b", "a", "c"}) {
		c.Errorf("halls are updated as %v", got)
	}
}

// edit has the budget let pods of some halls go.
func (c *cluster) edit(halls ...string) {
	c.Helper()
	budget := &v1alpha1.TopologyDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "db"}}
	c.patch(budget, map[string]any{"spec": map[string]any{"nodeSelectorTerm": map[string]any{"matchExpressions": []any{
		map[string]any{"key": hall, "operator": "NotIn", "values": halls},
	}}}})
}

// denied waits until some halls have version 2, and the rollout says that the budget denies the rest.
func (c *cluster) denied(updated ...string) {
	c.Helper()
	d := c.rollout()
	c.Await("a denial", func(ctx context.Context) (string, error) {
		if missing := c.missingIn(ctx, "2", updated...); missing != "" {
			return missing, nil
		}
		if err := c.api.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			return "", err
		}
		if !strings.Contains(d.Status.WaitingFor, "budget "+c.namespace+"/db") {
			return fmt.Sprintf("%s: %s", d.Status.Phase, d.Status.WaitingFor), nil
		}
		return "", nil
	})
	for _, other := range halls {
		if !slices.Contains(updated, other) {
			if pods, err := c.pods(c.Context()); err != nil || slices.ContainsFunc(pods, func(p corev1.Pod) bool { return c.halls[p.Spec.NodeName] == other && p.Labels["version"] == "2" }) {
				c.Errorf("hall %s is updated, and its budget denies it; %v", other, err)
			}
		}
	}
}

// deleter is a responder.
const deleter = "example.com/deleter"

// isAnswered updates pods whose evictions another one answers.
func (c *cluster) isAnswered() {
	set := strings.Replace(statefulSet, "      tolerations:", "      evictionResponders: [{name: "+deleter+", priority: 10000}]\n      tolerations:", 1)
	c.Make(c.namespace, strings.ReplaceAll(set, "HALL", hall))
	c.Make(c.namespace, rolloutManifest)
	c.updated("1")
	c.run()
	c.completes()
	c.template("2")
	c.requested(lifecyclev1alpha1.EvictionRequestIntentEviction)
	c.spec(map[string]any{"paused": true})
	c.requested(lifecyclev1alpha1.EvictionRequestIntentWithdrawn)
	c.spec(map[string]any{"paused": nil})
	c.requested(lifecyclev1alpha1.EvictionRequestIntentEviction)
	if err := c.api.Delete(c.Context(), c.rollout()); err != nil {
		c.Fatal(err)
	}
	c.requested(lifecyclev1alpha1.EvictionRequestIntentWithdrawn)
	// Only now is there a controller of requests.
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	c.Cleanup(func() {
		cancel()
		ended.Wait()
	})
	for _, run := range []func(context.Context) error{
		requests.New(c.Interface, c.namespace).Run,
		requests.Deleter{Client: c.Interface, Namespace: c.namespace, Name: deleter}.Run,
	} {
		ended.Go(func() {
			if err := run(ctx); err != nil {
				c.Error(err)
			}
		})
	}
	c.Make(c.namespace, rolloutManifest)
	c.updated("2")
	c.completes()
}

// requested waits until all EvictionRequests, of which there are some, have an intent.
func (c *cluster) requested(intent lifecyclev1alpha1.EvictionRequestIntent) {
	c.Helper()
	c.Await(fmt.Sprintf("requests with the intent %s", intent), func(ctx context.Context) (string, error) {
		list, err := c.LifecycleV1alpha1().EvictionRequests(c.namespace).List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) == 0 {
			return "there are none", err
		}
		for i := range list.Items {
			if r := &list.Items[i]; r.Spec.Intent != intent {
				return fmt.Sprintf("%s has %s", r.Name, r.Spec.Intent), nil
			}
		}
		return "", nil
	})
}

// survives updates a StatefulSet with a controller that ends again and again.
func (c *cluster) survives() {
	c.Make(c.namespace, strings.ReplaceAll(statefulSet, "HALL", hall))
	c.Make(c.namespace, rolloutManifest)
	c.updated("1")
	stop := c.run()
	c.completes()
	stop()
	c.hallsInOrder() // those of another workload
	c.template("2")
	c.crashing("2")
	c.run()
	c.completes()
	if got := c.hallsInOrder(); !slices.Equal(got, []string{"b", "a", "c"}) {
		c.Errorf("halls are updated as %v", got)
	}
}

const statefulSet = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 9
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: db}}
  serviceName: db
  updateStrategy: {type: OnDelete}
  template:
    metadata: {labels: {app: db, version: "1"}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: c, image: "registry.example/c"}]
      topologySpreadConstraints:
        - {maxSkew: 1, topologyKey: HALL, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: db}}}
      tolerations: [{operator: Exists}]
      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: HALL, operator: Exists}]}]}}}
`

const rolloutManifest = `
apiVersion: vicinity.dev/v1alpha1
kind: DomainRollout
metadata: {name: db}
spec:
  targetRef: {kind: StatefulSet, name: db}
  topologyKey: ` + hall + `
  order: [b, a]
  maxUnavailable: 2
`

func testScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return scheme
}

// run runs the controller until it is told to stop.
func (c *cluster) run() (stop func()) {
	c.Helper()
	return c.start(nil)
}

// start runs the controller. The function, if given, says of each eviction whether it is requested.
func (c *cluster) start(before func() bool) (stop func()) {
	c.Helper()
	cached := cache.Options{ByObject: map[client.Object]cache.ByObject{}}
	reservation.CacheOptions(&cached)
	CacheOptions(&cached)
	options := manager.Options{Scheme: testScheme(c), Cache: cached, Metrics: metricsserver.Options{BindAddress: "0"}}
	options.Controller.SkipNameValidation = new(true) // they run one after the other
	mgr, err := manager.New(c.Config(), options)
	if err != nil {
		c.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ledger, err := reservation.New(ctx, mgr, reservation.Options{})
	if err != nil {
		c.Fatal(err)
	}
	evicts := &spy{cluster: c, evictor: requester.New(c.Interface, func() bool { return true }), ledger: ledger, before: before}
	running, err := assemble(ctx, mgr, evicts, Options{Workers: 2, Budgets: ledger})
	if err != nil {
		c.Fatal(err)
	}
	if err := running.add(mgr); err != nil {
		c.Fatal(err)
	}
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			c.Error(err)
		}
	})
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			ended.Wait()
		})
	}
	c.Cleanup(stop)
	return stop
}

// crashing restarts the controller at every eviction that it is about to request, until all pods have a version:
// what it stored before is all that the next one knows.
func (c *cluster) crashing(version string) {
	c.Helper()
	restarts := 0
	for deadline := time.Now().Add(2 * time.Minute); c.missing(c.Context(), version) != ""; restarts++ {
		if time.Now().After(deadline) {
			c.Fatalf("not done after %d restarts: %s", restarts, c.missing(c.Context(), version))
		}
		crash := make(chan struct{}, 1)
		allowed := 1
		stop := c.start(func() bool {
			if allowed--; allowed >= 0 {
				return true
			}
			select {
			case crash <- struct{}{}:
			default:
			}
			return false
		})
		c.Await("a crash", func(ctx context.Context) (string, error) {
			select {
			case <-crash:
				return "", nil
			default:
			}
			if c.missing(ctx, version) == "" {
				return "", nil
			}
			return "none yet", nil
		})
		stop()
	}
	c.Logf("%d restarts", restarts)
}

// spy notes in which order the halls are evicted, and asks budgets as the webhook of evictions does.
type spy struct {
	*cluster
	evictor
	ledger *reservation.Ledger
	before func() bool
}

// errCrash is the end of a controller between the write of a status and what it says.
var errCrash = errors.New("the controller ends")

// Request implements evictor.
func (s *spy) Request(ctx context.Context, pod *corev1.Pod, name, reason string) (requester.Outcome, error) {
	if s.before != nil && !s.before() {
		return requester.Outcome{}, errCrash
	}
	if len(pod.Spec.EvictionResponders) == 0 {
		answer, err := s.ledger.Admit(ctx, reservation.Request{Pod: pod, Holder: name})
		if err != nil {
			return requester.Outcome{}, err
		}
		if !answer.Allowed() {
			return requester.Outcome{State: requester.Denied, Causes: []string{answer.Denial}}, nil
		}
	}
	outcome, err := s.evictor.Request(ctx, pod, name, reason)
	if err == nil && outcome.State == requester.Evicted {
		s.seen.mu.Lock()
		defer s.seen.mu.Unlock()
		if h, last := s.halls[pod.Spec.NodeName], len(s.seen.halls)-1; last < 0 || s.seen.halls[last] != h {
			s.seen.halls = append(s.seen.halls, h)
		}
	}
	return outcome, err
}

// hallsInOrder are the halls since the last look.
func (c *cluster) hallsInOrder() []string {
	c.seen.mu.Lock()
	defer c.seen.mu.Unlock()
	found := c.seen.halls
	c.seen.halls = nil
	return found
}

// patch applies a merge patch.
func (c *cluster) patch(object client.Object, patch map[string]any) {
	c.Helper()
	body, err := json.Marshal(patch)
	if err == nil {
		err = c.api.Patch(c.Context(), object, client.RawPatch(types.MergePatchType, body))
	}
	if err != nil {
		c.Fatal(err)
	}
}

func (c *cluster) spec(spec map[string]any) {
	c.Helper()
	c.patch(c.rollout(), map[string]any{"spec": spec})
}

func (c *cluster) rollout() *v1alpha1.DomainRollout {
	return &v1alpha1.DomainRollout{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "db"}}
}

// template gives the set a version.
func (c *cluster) template(version string) {
	c.Helper()
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "db"}}
	c.patch(set, map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"version": version}}}}})
}

func (c *cluster) pods(ctx context.Context) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := c.api.List(ctx, &list, client.InNamespace(c.namespace))
	return list.Items, err
}

// missing says what is not of a version and ready.
func (c *cluster) missing(ctx context.Context, version string) string {
	return c.missingIn(ctx, version, halls...)
}

func (c *cluster) missingIn(ctx context.Context, version string, in ...string) string {
	pods, err := c.pods(ctx)
	if err != nil {
		return err.Error()
	}
	ready := 0
	for i := range pods {
		if p := podOf(&pods[i]); p.Ready && !p.Terminating && pods[i].Labels["version"] == version && slices.Contains(in, c.halls[pods[i].Spec.NodeName]) {
			ready++
		}
	}
	if want := 3 * len(in); ready != want {
		d := c.rollout()
		if err := c.api.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil && !apierrors.IsNotFound(err) {
			return err.Error()
		}
		return fmt.Sprintf("%d of %d pods are of version %s and ready; %s: %s", ready, want, version, d.Status.Phase, d.Status.WaitingFor)
	}
	return ""
}

func (c *cluster) updated(version string) {
	c.Helper()
	c.Await("version "+version, func(ctx context.Context) (string, error) { return c.missing(ctx, version), nil })
}

// completes waits until the rollout is complete.
func (c *cluster) completes() {
	c.Helper()
	d := c.rollout()
	c.Await("the end of the rollout", func(ctx context.Context) (string, error) {
		if err := c.api.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			return "", err
		}
		if d.Status.Phase != v1alpha1.PhaseComplete {
			return fmt.Sprintf("%s: %s", d.Status.Phase, d.Status.WaitingFor), nil
		}
		return "", nil
	})
}
