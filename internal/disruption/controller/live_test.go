package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption/reservation"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/test/rig"
)

const livePods = 200

// cluster is a control plane with nodes and pods that are only objects.
type cluster struct {
	rig.ControlPlane
	objects client.Client
	running *reconciler
}

// TestAgainstKubernetes runs the controllers with a real API server and Kubernetes' own controllers, which compute the allowance of
// PodDisruptionBudgets.
func TestAgainstKubernetes(t *testing.T) {
	c := &cluster{ControlPlane: rig.Start(t)}
	log.SetLogger(logr.Discard())
	var err error
	if c.objects, err = client.New(c.Config(), client.Options{Scheme: testScheme(t)}); err != nil {
		t.Fatal(err)
	}
	c.Make("", "{apiVersion: v1, kind: Namespace, metadata: {name: "+shop+"}}")
	c.Await("the service account", func(ctx context.Context) (string, error) {
		_, err := c.CoreV1().ServiceAccounts(shop).Get(ctx, "default", metav1.GetOptions{})
		return "", err
	})
	c.Label(corev1.LabelTopologyZone, nil) // of the nodes that are there; the test has its own
	for _, zone := range []string{"a", "b"} {
		if err := c.objects.Create(t.Context(), node(zone)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.objects.Create(t.Context(), configuration()); err != nil {
		t.Fatal(err)
	}
	c.each(livePods, func(i int) error { return c.pod(fmt.Sprintf("web-%d", i), []string{"a", "b"}[i%2]) })
	stop := c.run(projectOptions())

	// The label and the status.
	budget := perZone("web", 3)
	budget.UID, budget.Generation = "", 0
	if err := c.objects.Create(t.Context(), budget); err != nil {
		t.Fatal(err)
	}
	c.awaitBudget("what it allows", func(b *v1alpha1.TopologyDisruptionBudget) bool {
		return b.Status.DisruptionsAllowed == 6 && b.Status.ExpectedPods == livePods && meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionEnforced)
	})
	c.awaitLabel(shop, true)
	c.awaitAllowedByPDBs(6)

	// Pods that change all at once cost few writes.
	before, begun := c.writes(), time.Now()
	c.each(livePods, func(i int) error { return c.ready(fmt.Sprintf("web-%d", i), false) })
	c.awaitBudget("no pod that is ready", func(b *v1alpha1.TopologyDisruptionBudget) bool {
		return b.Status.CurrentHealthy == 0 && b.Status.DisruptionsAllowed == 0
	})
	c.each(livePods, func(i int) error { return c.ready(fmt.Sprintf("web-%d", i), true) })
	c.awaitBudget("all pods", func(b *v1alpha1.TopologyDisruptionBudget) bool { return b.Status.DisruptionsAllowed == 6 })
	took := time.Since(begun)
	if wrote := c.writes() - before; wrote > took.Seconds()/gatherTime.Seconds()+2 {
		t.Errorf("%d changes of pods in %s cost %g writes of the status", 2*livePods, took.Round(time.Millisecond), wrote)
	}
	c.awaitAllowedByPDBs(6)
	stop()

	// A restart writes nothing.
	versions := c.versions()
	stop = c.run(projectOptions())
	c.Await("syncs after the restart", func(context.Context) (string, error) {
		if testutil.ToFloat64(c.running.metrics.syncs.WithLabelValues(string(shell.Done))) == 0 {
			return "no sync is done", nil
		}
		return "", nil
	})
	if wrote := c.writes(); wrote != 0 || c.versions() != versions {
		t.Errorf("a restart wrote %g statuses, and left %s of %s", wrote, c.versions(), versions)
	}

	// A deleted budget leaves nothing behind.
	if err := c.objects.Delete(t.Context(), budget); err != nil {
		t.Fatal(err)
	}
	c.awaitLabel(shop, false)
	c.awaitAllowedByPDBs()
	stop()
}

func configuration() *admissionv1.MutatingWebhookConfiguration {
	fail, none, marked := admissionv1.Fail, admissionv1.SideEffectClassNone, &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelBudgets: "true"}}
	rules := ofEvictions()
	rules[0].APIGroups, rules[0].APIVersions = []string{""}, []string{"v1"}
	return &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "vicinity"}, Webhooks: []admissionv1.MutatingWebhook{{
		Name: "eviction.vicinity.dev", ClientConfig: at(), Rules: rules, FailurePolicy: &fail, SideEffects: &none, NamespaceSelector: marked, AdmissionReviewVersions: []string{"v1"},
	}}}
}

// run runs the controllers until the returned function is called.
func (c *cluster) run(options Options) (stop func()) {
	c.Helper()
	cached := cache.Options{}
	reservation.CacheOptions(&cached)
	settings := manager.Options{Scheme: testScheme(c), Cache: cached, Metrics: metricsserver.Options{BindAddress: "0"}}
	settings.Controller.SkipNameValidation = new(true) // they run one after the other
	mgr, err := manager.New(c.Config(), settings)
	if err != nil {
		c.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.Context())
	ledger, err := reservation.New(ctx, mgr, reservation.Options{})
	if err != nil {
		c.Fatal(err)
	}
	recorder, err := shell.NewRecorder(ctx, mgr, "vicinity-controller")
	if err != nil {
		c.Fatal(err)
	}
	c.running = newReconciler(base{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), recorder: recorder, clock: clock.RealClock{}, options: options,
	}, ledger)
	if err := c.running.add(mgr); err != nil {
		c.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			c.Error(err)
		}
	}
}

// each calls a function a number of times, some concurrently.
func (c *cluster) each(n int, do func(int) error) {
	c.Helper()
	var work errgroup.Group
	work.SetLimit(8)
	for i := range n {
		work.Go(func() error { return do(i) })
	}
	if err := work.Wait(); err != nil {
		c.Error(err)
	}
}

// pod creates a ready pod on the node of a zone.
func (c *cluster) pod(name, zone string) error {
	made := pod(name, zone)
	made.UID, made.OwnerReferences = "", nil
	made.Spec.Containers = []corev1.Container{{Name: "web", Image: "web"}}
	made.Spec.AutomountServiceAccountToken = new(false)
	made.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	return errors.Join(c.objects.Create(c.Context(), made), c.ready(name, true))
}

func (c *cluster) ready(name string, is bool) error {
	value := corev1.ConditionFalse
	if is {
		value = corev1.ConditionTrue
	}
	patch := fmt.Sprintf(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":%q,"lastTransitionTime":%q}]}}`, value, time.Now().UTC().Format(time.RFC3339))
	_, err := c.CoreV1().Pods(shop).Patch(c.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	return err
}

func (c *cluster) writes() float64 { return testutil.ToFloat64(c.running.metrics.writes) }

func (c *cluster) awaitBudget(what string, is func(*v1alpha1.TopologyDisruptionBudget) bool) {
	c.Helper()
	c.Await(what, func(ctx context.Context) (string, error) {
		read := &v1alpha1.TopologyDisruptionBudget{}
		if err := c.objects.Get(ctx, client.ObjectKey{Namespace: shop, Name: "web"}, read); err != nil {
			return "", err
		}
		if !is(read) {
			return fmt.Sprintf("%+v", read.Status), nil
		}
		return "", nil
	})
}

func (c *cluster) awaitLabel(name string, want bool) {
	c.Helper()
	c.Await(fmt.Sprintf("the label of %s: %t", name, want), func(ctx context.Context) (string, error) {
		read := namespace(name)
		if err := c.objects.Get(ctx, client.ObjectKeyFromObject(read), read); err != nil {
			return "", err
		}
		if got := read.Labels[v1alpha1.LabelBudgets] == "true"; got != want {
			return fmt.Sprint(read.Labels), nil
		}
		return "", nil
	})
}

// awaitAllowedByPDBs waits until the PodDisruptionBudgets of both zones together allow as much as the budget. Without a number there must be
// none.
func (c *cluster) awaitAllowedByPDBs(numbers ...int32) {
	c.Helper()
	c.Await(fmt.Sprintf("PodDisruptionBudgets that allow %v", numbers), func(ctx context.Context) (string, error) {
		var list policyv1.PodDisruptionBudgetList
		if err := c.objects.List(ctx, &list, client.InNamespace(shop)); err != nil {
			return "", err
		}
		texts, sum := []string{}, int32(0)
		for _, pdb := range list.Items {
			texts = append(texts, fmt.Sprintf("%s keeps %s and allows %d", pdb.Name, pdb.Spec.MinAvailable, pdb.Status.DisruptionsAllowed))
			sum += pdb.Status.DisruptionsAllowed
		}
		if len(numbers) == 0 {
			return strings.Join(texts, ", "), nil
		}
		want := numbers[0]
		read := &v1alpha1.TopologyDisruptionBudget{}
		if err := c.objects.Get(ctx, client.ObjectKey{Namespace: shop, Name: "web"}, read); err != nil {
			return "", err
		}
		if len(list.Items) != 2 || sum != want || read.Status.DisruptionsAllowed != want {
			return fmt.Sprintf("%s; the budget allows %d", strings.Join(texts, ", "), read.Status.DisruptionsAllowed), nil
		}
		return "", nil
	})
}

// versions returns the versions of all objects that the controllers write.
func (c *cluster) versions() string {
	c.Helper()
	var texts []string
	read := &v1alpha1.TopologyDisruptionBudget{}
	if err := c.objects.Get(c.Context(), client.ObjectKey{Namespace: shop, Name: "web"}, read); err != nil {
		c.Fatal(err)
	}
	texts = append(texts, read.ResourceVersion)
	labelled := namespace(shop)
	if err := c.objects.Get(c.Context(), client.ObjectKeyFromObject(labelled), labelled); err != nil && !apierrors.IsNotFound(err) {
		c.Fatal(err)
	}
	var list policyv1.PodDisruptionBudgetList
	if err := c.objects.List(c.Context(), &list, client.InNamespace(shop)); err != nil {
		c.Fatal(err)
	}
	for i := range list.Items {
		texts = append(texts, fmt.Sprint(list.Items[i].Name, " ", list.Items[i].Generation))
	}
	return strings.Join(append(texts, labelled.ResourceVersion), ", ")
}
