package locator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	"vicinity.dev/vicinity/test/rig"
)

const livePods = 200

// cluster is a control plane whose nodes and pods are only objects.
type cluster struct {
	rig.ControlPlane
	objects   client.Client
	namespace string
	running   *reconciler
}

// TestAgainstKubernetes runs the controller with a real API server and Kubernetes' own
// controllers, which delete what a pod owns.
func TestAgainstKubernetes(t *testing.T) {
	c := &cluster{ControlPlane: rig.Start(t)}
	log.SetLogger(logr.Discard())
	var err error
	if c.objects, err = client.New(c.Config(), client.Options{Scheme: testScheme(t)}); err != nil {
		t.Fatal(err)
	}
	if c.namespace, err = c.MakeNamespace(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	c.Make("", "{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {topology.kubernetes.io/zone: a}}}\n---\n{apiVersion: v1, kind: Node, metadata: {name: n2, labels: {topology.kubernetes.io/zone: b}}}\n")
	stop := c.run()

	c.each(livePods, func(i int) error { return c.pod(fmt.Sprintf("web-%d", i), "n1", fmt.Sprintf("10.9.0.%d", i), false) })
	if err := errors.Join(c.pod("host", "n1", "192.0.2.1", true), c.pod("other", "n2", "10.8.0.1", false)); err != nil {
		t.Fatal(err)
	}
	c.awaitLocated("a PodLocator for each pod but that on the host network", livePods+1, func(l *v1alpha1.PodLocator) bool {
		return len(l.IPs) == 1 && l.NodeName != "" && (l.NodeLabels["topology.kubernetes.io/zone"] == "a") == (l.NodeName == "n1")
	})
	c.wrote(livePods+1, 0, 0)

	c.Make("", "{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {topology.kubernetes.io/zone: c}}}")
	c.awaitLocated("the zone to which the node was moved", livePods+1, func(l *v1alpha1.PodLocator) bool {
		return l.NodeName == "n2" || l.NodeLabels["topology.kubernetes.io/zone"] == "c"
	})
	c.wrote(livePods+1, livePods, 0)
	stop()

	stop = c.run()
	c.Await("a sync of each pod after the restart", func(context.Context) (string, error) {
		if n := c.syncs(); n < livePods+1 {
			return fmt.Sprintf("%v", n), nil
		}
		return "", nil
	})
	c.wrote(0, 0, 0)

	// A pod that finishes, one that is deleted, and a node that is deleted and comes back.
	if err := c.status("web-0", `{"status":{"phase":"Succeeded"}}`); err != nil {
		t.Fatal(err)
	}
	if err := c.CoreV1().Pods(c.namespace).Delete(t.Context(), "web-1", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		t.Fatal(err)
	}
	c.awaitGone("web-0")
	c.awaitGone("web-1")
	if err := c.CoreV1().Nodes().Delete(t.Context(), "n2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitLocator("other", func(l *v1alpha1.PodLocator) bool {
		return l.NodeName == "" && len(l.NodeLabels) == 0 && len(l.IPs) == 1
	})
	c.Make("", "{apiVersion: v1, kind: Node, metadata: {name: n2, labels: {topology.kubernetes.io/zone: d}}}")
	c.awaitLocator("other", func(l *v1alpha1.PodLocator) bool {
		return l.NodeName == "n2" && l.NodeLabels["topology.kubernetes.io/zone"] == "d"
	})

	// What anybody else makes of a PodLocator is put right.
	forged := &v1alpha1.PodLocator{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "web-2"}}
	if err := c.objects.Patch(t.Context(), forged, client.RawPatch(types.MergePatchType, []byte(`{"ips":["10.0.0.1"],"nodeName":"n2"}`))); err != nil {
		t.Fatal(err)
	}
	c.awaitLocator("web-2", func(l *v1alpha1.PodLocator) bool { return l.NodeName == "n1" && l.IPs[0] == "10.9.0.2" })
	if err := c.objects.Delete(t.Context(), forged); err != nil {
		t.Fatal(err)
	}
	c.awaitLocator("web-2", func(l *v1alpha1.PodLocator) bool { return l.NodeName == "n1" && l.UID != forged.UID })
	stop()

	// The garbage collector learns of PodLocators some time after their definition.
	c.Make(c.namespace, "{apiVersion: vicinity.dev/v1alpha1, kind: PodLocator, metadata: {name: owned, ownerReferences: [{apiVersion: v1, kind: Pod, name: none, uid: none}]}}")
	c.awaitGone("owned")
	// Who deletes a pod can leave behind what it owns. What was not made for a pod stays.
	orphan := metav1.DeletePropagationOrphan
	if err := c.CoreV1().Pods(c.namespace).Delete(t.Context(), "web-3", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), PropagationPolicy: &orphan}); err != nil {
		t.Fatal(err)
	}
	c.Make(c.namespace, "{apiVersion: vicinity.dev/v1alpha1, kind: PodLocator, metadata: {name: vm}, ips: [192.0.2.9], nodeLabels: {topology.kubernetes.io/zone: a}}")
	c.awaitLocator("web-3", func(l *v1alpha1.PodLocator) bool { return len(l.OwnerReferences) == 0 })
	stop = c.run()
	c.awaitGone("web-3")
	c.awaitLocator("vm", func(*v1alpha1.PodLocator) bool { return true })
	stop()

	// Switched off, the controller removes what it made.
	mgr := c.manager(cache.Options{})
	options := testOptions()
	options.Mode = Off
	if err := Add(t.Context(), mgr, options); err != nil {
		t.Fatal(err)
	}
	stop = c.start(t.Context(), mgr)
	c.awaitLocated("no PodLocator but that which the controller did not make", 1, func(l *v1alpha1.PodLocator) bool { return l.Name == "vm" })
	stop()
}

// run runs a controller until it is told to stop.
func (c *cluster) run() (stop func()) {
	c.Helper()
	cached := cache.Options{ByObject: map[client.Object]cache.ByObject{}}
	CacheOptions(&cached)
	mgr := c.manager(cached)
	ctx, cancel := context.WithCancel(c.Context())
	if err := addIndex(ctx, mgr.GetFieldIndexer()); err != nil {
		c.Fatal(err)
	}
	recorder, err := shell.NewRecorder(ctx, mgr, "vicinity-controller")
	if err != nil {
		c.Fatal(err)
	}
	c.running = newReconciler(mgr.GetClient(), recorder, clock.RealClock{}, testOptions())
	if err := c.running.add(mgr); err != nil {
		c.Fatal(err)
	}
	end := c.start(ctx, mgr)
	return func() {
		cancel()
		end()
	}
}

func (c *cluster) manager(cached cache.Options) manager.Manager {
	c.Helper()
	options := manager.Options{Scheme: testScheme(c), Cache: cached, Metrics: metricsserver.Options{BindAddress: "0"}}
	options.Controller.SkipNameValidation = new(true) // they run one after the other
	mgr, err := manager.New(c.Config(), options)
	if err != nil {
		c.Fatal(err)
	}
	return mgr
}

// start starts a manager, which runs until it is told to stop.
func (c *cluster) start(ctx context.Context, mgr manager.Manager) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			c.Error(err)
		}
	}
}

// each does something so many times, some at a time.
func (c *cluster) each(n int, do func(int) error) {
	c.Helper()
	numbers := make(chan int, n)
	for i := range n {
		numbers <- i
	}
	close(numbers)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for i := range numbers {
				if err := do(i); err != nil {
					c.Error(err)
				}
			}
		})
	}
	workers.Wait()
	if c.Failed() {
		c.FailNow()
	}
}

// pod makes a pod that runs on a node, as a kubelet tells it: first without an address.
func (c *cluster) pod(name, node, ip string, hostNetwork bool) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name},
		Spec: corev1.PodSpec{
			NodeName: node, HostNetwork: hostNetwork, AutomountServiceAccountToken: new(false),
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers:  []corev1.Container{{Name: "main", Image: "none"}},
		},
	}
	if _, err := c.CoreV1().Pods(c.namespace).Create(c.Context(), pod, metav1.CreateOptions{}); err != nil {
		return err
	}
	return c.status(name, fmt.Sprintf(`{"status":{"phase":"Running","podIP":%q,"podIPs":[{"ip":%q}]}}`, ip, ip))
}

func (c *cluster) status(pod, patch string) error {
	_, err := c.CoreV1().Pods(c.namespace).Patch(c.Context(), pod, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	return err
}

// awaitLocated waits until there are so many PodLocators and all of them are as they should be.
func (c *cluster) awaitLocated(what string, want int, right func(*v1alpha1.PodLocator) bool) {
	c.Helper()
	c.Await(what, func(ctx context.Context) (string, error) {
		var list v1alpha1.PodLocatorList
		if err := c.objects.List(ctx, &list); err != nil {
			return "", err
		}
		n := 0
		for i := range list.Items {
			if right(&list.Items[i]) {
				n++
			}
		}
		if n != want || n != len(list.Items) {
			return fmt.Sprintf("%d of %d are right, want %d", n, len(list.Items), want), nil
		}
		return "", nil
	})
}

func (c *cluster) awaitLocator(name string, right func(*v1alpha1.PodLocator) bool) {
	c.Helper()
	c.Await("the PodLocator of "+name, func(ctx context.Context) (string, error) {
		locator := &v1alpha1.PodLocator{}
		err := c.objects.Get(ctx, types.NamespacedName{Namespace: c.namespace, Name: name}, locator)
		switch {
		case apierrors.IsNotFound(err):
			return "there is none", nil
		case err != nil:
			return "", err
		case !right(locator):
			return fmt.Sprintf("%v on %q with %v", locator.IPs, locator.NodeName, locator.NodeLabels), nil
		}
		return "", nil
	})
}

func (c *cluster) awaitGone(name string) {
	c.Helper()
	c.Await("the PodLocator of "+name+" to go", func(ctx context.Context) (string, error) {
		err := c.objects.Get(ctx, types.NamespacedName{Namespace: c.namespace, Name: name}, &v1alpha1.PodLocator{})
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return "it is there", err
	})
}

// wrote compares the writes of the controller that runs with those that there should be, and
// sees that none failed.
func (c *cluster) wrote(created, updated, deleted int) {
	c.Helper()
	for operation, want := range map[string]int{operationCreate: created, operationUpdate: updated, operationDelete: deleted} {
		done := func() int {
			return int(testutil.ToFloat64(c.running.metrics.writes.WithLabelValues(operation, string(shell.Done))))
		}
		// The last one is counted once the API server has answered.
		c.Await(fmt.Sprintf("%d writes by %s", want, operation), func(context.Context) (string, error) {
			if got := done(); got < want {
				return fmt.Sprintf("there are %d", got), nil
			}
			return "", nil
		})
		if got := done(); got != want {
			c.Errorf("%s: %d writes, want %d", operation, got, want)
		}
		for _, outcome := range []shell.Outcome{shell.Conflict, shell.Failed} {
			if got := testutil.ToFloat64(c.running.metrics.writes.WithLabelValues(operation, string(outcome))); got != 0 {
				c.Errorf("%s: %v writes ended with %s", operation, got, outcome)
			}
		}
	}
}

func (c *cluster) syncs() float64 {
	return testutil.ToFloat64(c.running.metrics.syncs.WithLabelValues(string(shell.Done)))
}
