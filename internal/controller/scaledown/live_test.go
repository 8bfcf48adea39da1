package scaledown

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/controller/shell"
	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/internal/requester"
	"vicinity.dev/vicinity/internal/reservation"
	"vicinity.dev/vicinity/internal/spread"
	"vicinity.dev/vicinity/test/rig"
)

const hall = "example.com/hall"

var halls = []string{"a", "b", "c"}

// cluster is a control plane whose nodes, three in each hall, and pods are only objects.
type cluster struct {
	rig.ControlPlane
	namespace string
	nodes     map[string]*corev1.Node
	running   *reconciler
}

// TestAgainstKubernetes has Kubernetes' own controllers and scheduler scale and update Deployments.
func TestAgainstKubernetes(t *testing.T) {
	c := &cluster{ControlPlane: rig.Start(t)}
	log.SetLogger(logr.Discard())
	var err error
	if c.namespace, err = c.MakeNamespace(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	c.label()
	stop := c.run()

	c.skewed()
	c.awaitOrder()
	for replicas := 9; replicas > 0; replicas-- {
		want := best(c.halls(t.Context()), 1)
		c.scale(replicas)
		c.isSpread(want)
		c.awaitOrder()
	}

	// At once, after a restart, which writes nothing.
	c.skewed()
	c.awaitOrder()
	stop()
	stop = c.run()
	c.Await("a sync after the restart", func(context.Context) (string, error) {
		if n := testutil.ToFloat64(c.running.metrics.syncs.WithLabelValues(string(shell.Done))); n < 1 {
			return fmt.Sprintf("%v", n), nil
		}
		return "", nil
	})
	if n := c.writes(); n > 0 {
		t.Errorf("%v costs are written after a restart", n)
	}
	want := best(c.halls(t.Context()), 7)
	c.scale(3)
	c.isSpread(want)

	// A cost that another owner set stays, and those of Vicinity go when they are not asked for.
	pods := c.pods(t.Context())
	c.patch(&pods[0], map[string]any{"metadata": map[string]any{"annotations": map[string]any{corev1.PodDeletionCost: "7"}}})
	c.patch(c.deployment(), map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationKeepSpread: nil}}})
	c.Await("the costs to go", func(ctx context.Context) (string, error) {
		for _, pod := range c.pods(ctx) {
			_, mark := pod.Annotations[v1alpha1.AnnotationDeletionCost]
			if cost := pod.Annotations[corev1.PodDeletionCost]; mark || (cost == "7") != (pod.Name == pods[0].Name) || cost != "" && cost != "7" {
				return fmt.Sprintf("%s has %v", pod.Name, pod.Annotations), nil
			}
		}
		return "", nil
	})

	// A rolling update of twelve pods that are all in two halls, since the third was drained. The pods that
	// are not where they should be after it are repaired.
	c.patch(c.deployment(), map[string]any{"metadata": map[string]any{"annotations": map[string]any{
		v1alpha1.AnnotationKeepSpread: hall, v1alpha1.AnnotationRepairSpread: "true",
	}}})
	c.open("a", "b")
	c.scale(0)
	c.scale(12)
	c.open(halls...)
	c.awaitOrder()
	before := c.writes()
	c.patch(c.deployment(), map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"version": "2"}}}}})
	c.Await("the update", func(ctx context.Context) (string, error) {
		return c.missing(ctx, 12, "2")
	})
	c.Logf("after the rolling update: %v, with %v writes of costs", c.halls(t.Context()), c.writes()-before)
	c.Await("the best spread", func(ctx context.Context) (string, error) {
		if missing, err := c.missing(ctx, 12, "2"); missing != "" || err != nil {
			return missing, err
		}
		counts := c.halls(ctx)
		for _, h := range halls {
			if counts[h] != 4 {
				return fmt.Sprint(counts), nil
			}
		}
		return "", nil
	})
	stop()
}

// run runs the controller until it is told to stop.
func (c *cluster) run() (stop func()) {
	c.Helper()
	cached := cache.Options{ByObject: map[client.Object]cache.ByObject{}}
	reservation.CacheOptions(&cached)
	options := manager.Options{Scheme: testScheme(c), Cache: cached, Metrics: metricsserver.Options{BindAddress: "0"}}
	options.Controller.SkipNameValidation = new(true) // they run one after the other
	mgr, err := manager.New(c.Config(), options)
	if err != nil {
		c.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := addIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		c.Fatal(err)
	}
	recorder, err := shell.NewRecorder(ctx, mgr, "vicinity-controller")
	if err != nil {
		c.Fatal(err)
	}
	c.running = newReconciler(reconciler{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), evictor: requester.New(c.Interface, func() bool { return false }),
		recorder: recorder, clock: clock.RealClock{}, options: testOptions(), quiet: time.Second,
	})
	if err := c.running.add(mgr); err != nil {
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

// writes are those of costs since the controller began.
func (c *cluster) writes() float64 {
	return testutil.ToFloat64(c.running.metrics.writes.WithLabelValues(string(shell.Done)))
}

// label puts the nodes in halls.
func (c *cluster) label() {
	c.Helper()
	nodes, err := c.CoreV1().Nodes().List(c.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) < 9 {
		c.Fatalf("%d nodes, %v", len(nodes.Items), err)
	}
	c.nodes = map[string]*corev1.Node{}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		h := halls[i%len(halls)]
		c.patch(node, map[string]any{"metadata": map[string]any{"labels": map[string]any{hall: h}}})
		node.Labels[hall] = h
		c.nodes[node.Name] = node
	}
}

// open has only the nodes of some halls take pods.
func (c *cluster) open(open ...string) {
	c.Helper()
	for _, node := range c.nodes {
		c.patch(node, map[string]any{"spec": map[string]any{"unschedulable": !slices.Contains(open, node.Labels[hall])}})
	}
}

// patch applies a merge patch.
func (c *cluster) patch(object client.Object, patch map[string]any) {
	c.Helper()
	body, err := json.Marshal(patch)
	if err != nil {
		c.Fatal(err)
	}
	switch object.(type) {
	case *corev1.Node:
		_, err = c.CoreV1().Nodes().Patch(c.Context(), object.GetName(), types.MergePatchType, body, metav1.PatchOptions{})
	case *corev1.Pod:
		_, err = c.CoreV1().Pods(c.namespace).Patch(c.Context(), object.GetName(), types.MergePatchType, body, metav1.PatchOptions{})
	default:
		_, err = c.AppsV1().Deployments(c.namespace).Patch(c.Context(), object.GetName(), types.MergePatchType, body, metav1.PatchOptions{})
	}
	if err != nil {
		c.Fatal(err)
	}
}

func (c *cluster) deployment() *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
}

// skewed makes a Deployment of ten pods, six in hall a, three in b and one in c.
func (c *cluster) skewed() {
	c.Helper()
	c.Make(c.namespace, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, annotations: {vicinity.dev/keep-spread: example.com/hall}}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web, version: "1"}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: web, image: web}]
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: example.com/hall, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: web}}}
`)
	c.Await("ten pods in three halls", func(ctx context.Context) (string, error) {
		c.scale(0)
		for _, step := range []struct {
			hall     string
			replicas int
		}{{"a", 6}, {"b", 9}, {"c", 10}} {
			c.open(step.hall)
			c.scale(step.replicas)
		}
		c.open(halls...)
		// The scheduler may not have seen in time which nodes are open.
		if counts := c.halls(ctx); counts["a"] != 6 || counts["b"] != 3 || counts["c"] != 1 {
			return fmt.Sprint(counts), nil
		}
		return "", nil
	})
}

// scale scales the Deployment, and waits until it has so many pods that are ready, and no others.
func (c *cluster) scale(replicas int) {
	c.Helper()
	c.patch(c.deployment(), map[string]any{"spec": map[string]any{"replicas": replicas}})
	c.Await(fmt.Sprintf("%d pods", replicas), func(ctx context.Context) (string, error) { return c.missing(ctx, replicas, "1") })
}

// missing says what keeps so many pods of a version from being all that there are.
func (c *cluster) missing(ctx context.Context, replicas int, version string) (string, error) {
	pods := c.pods(ctx)
	for i := range pods {
		if pods[i].DeletionTimestamp != nil || !kube.PodReady(&pods[i]) || pods[i].Labels["version"] != version {
			return pods[i].Name + " is not as it should be", nil
		}
	}
	if len(pods) != replicas {
		return fmt.Sprintf("there are %d", len(pods)), nil
	}
	return "", nil
}

func (c *cluster) pods(ctx context.Context) []corev1.Pod {
	c.Helper()
	pods, err := c.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return pods.Items
}

// halls are the numbers of pods. One that is in the place of an evicted pod may not be scheduled yet.
func (c *cluster) halls(ctx context.Context) map[string]int {
	c.Helper()
	counts := map[string]int{}
	for _, pod := range c.pods(ctx) {
		if node := c.nodes[pod.Spec.NodeName]; node != nil {
			counts[node.Labels[hall]]++
		}
	}
	return counts
}

// best are the numbers of pods of halls, the largest first, after some of the fullest one at the time have gone.
func best(counts map[string]int, removed int) []int {
	left := slices.Collect(maps.Values(counts))
	for range removed {
		slices.Sort(left)
		left[len(left)-1]--
	}
	return sorted(left)
}

func sorted(counts []int) []int {
	counts = slices.DeleteFunc(counts, func(n int) bool { return n == 0 })
	slices.SortFunc(counts, func(a, b int) int { return b - a })
	return counts
}

func (c *cluster) isSpread(want []int) {
	c.Helper()
	if got := sorted(slices.Collect(maps.Values(c.halls(c.Context())))); !slices.Equal(got, want) {
		c.Errorf("the pods are spread %v, want %v", got, want)
	}
}

// awaitOrder waits until no cost is wrong.
func (c *cluster) awaitOrder() {
	c.Helper()
	c.Await("the order of the pods", func(ctx context.Context) (string, error) {
		var pods []spread.Pod
		for _, pod := range c.pods(ctx) {
			pods = append(pods, podOf(&pod, c.nodes[pod.Spec.NodeName], hall))
		}
		if plan := spread.NewPlan(pods); len(plan.Changes) > 0 {
			return fmt.Sprintf("%d are wrong", len(plan.Changes)), nil
		}
		return "", nil
	})
}
