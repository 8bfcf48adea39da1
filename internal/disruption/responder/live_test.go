package responder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
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
	"vicinity.dev/vicinity/internal/disruption/requester"
	"vicinity.dev/vicinity/internal/disruption/reservation"
	"vicinity.dev/vicinity/internal/kit/lifecycle"
	"vicinity.dev/vicinity/test/requests"
	"vicinity.dev/vicinity/test/rig"
)

const (
	drain   = "example.com/drain"
	deleter = "example.com/deleter"
)

// cluster is a control plane that serves EvictionRequests, with nodes and pods that are only objects.
type cluster struct {
	rig.ControlPlane
	objects client.Client
}

func TestAgainstKubernetes(t *testing.T) {
	c := &cluster{ControlPlane: rig.Start(t)}
	log.SetLogger(logr.Discard())
	var err error
	if c.objects, err = client.New(c.Config(), client.Options{Scheme: newScheme(t)}); err != nil {
		t.Fatal(err)
	}
	detector := lifecycle.NewDetector(c.Discovery(), logr.Discard())
	detector.Look(t.Context())
	if !detector.Served() {
		t.Fatal("the API server does not serve EvictionRequests")
	}
	c.respond(detector.Served)

	t.Run("a pod is evicted by request, and another one waits", func(t *testing.T) { c.For(t).waits(t) })
	t.Run("a responder that deletes pods is held", func(t *testing.T) { c.For(t).deletes(t) })
}

func newScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return scheme
}

// respond runs the responder with a Ledger until the test ends.
func (c *cluster) respond(served func() bool) {
	c.Helper()
	cached := cache.Options{ByObject: map[client.Object]cache.ByObject{}}
	reservation.CacheOptions(&cached)
	options := manager.Options{Scheme: newScheme(c), Cache: cached, Metrics: metricsserver.Options{BindAddress: "0"}}
	mgr, err := manager.New(c.Config(), options)
	if err != nil {
		c.Fatal(err)
	}
	ledger, err := reservation.New(c.Context(), mgr, reservation.Options{})
	if err != nil {
		c.Fatal(err)
	}
	if err := Add(mgr, ledger, Options{Served: served, Workers: 4, Reports: 10}); err != nil {
		c.Fatal(err)
	}
	c.run(mgr.Start)
}

// run runs a function until the test ends.
func (c *cluster) run(do func(context.Context) error) {
	c.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := do(ctx); err != nil {
			c.Error(err)
		}
	})
	c.Cleanup(func() {
		cancel()
		ended.Wait()
	})
}

// For returns the cluster for a subtest.
func (c *cluster) For(t *testing.T) *cluster { return &cluster{c.ControlPlane.For(t), c.objects} }

// shop is a namespace with a budget of one pod, its pods, and the controller of requests.
type shop struct {
	*cluster
	namespace string
	asks      *requester.Requester
}

const budgetYAML = `
apiVersion: vicinity.dev/v1alpha1
kind: TopologyDisruptionBudget
metadata: {name: web}
spec: {selector: {matchLabels: {shop: web}}, maxUnavailable: 1}
`

// shop creates a namespace with a number of pods that name responders.
func (c *cluster) shop(name string, pods int, responders ...string) *shop {
	c.Helper()
	namespace, err := c.MakeNamespace(c.Context(), name)
	if err != nil {
		c.Fatal(err)
	}
	s := &shop{c, namespace, requester.New(c.Interface, func() bool { return true })}
	c.run(requests.New(c.Interface, namespace).Run)
	list := make([]string, len(responders))
	for i, responder := range responders {
		priority := cmp.Or(map[string]int{v1alpha1.EvictionResponder: v1alpha1.EvictionResponderPriority}[responder], 10000)
		list[i] = fmt.Sprintf("{name: %s, priority: %d}", responder, priority)
	}
	c.Make(namespace, fmt.Sprintf(`
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web}
spec:
  replicas: %d
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web, shop: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: web, image: web}]
      evictionResponders: [%s]
`, pods, strings.Join(list, ", ")))
	s.awaitReady(pods)
	return s
}

// pods returns the ready pods of the ReplicaSet, by name.
func (s *shop) pods(ctx context.Context) ([]*corev1.Pod, error) {
	list, err := s.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var ready []*corev1.Pod
	for i := range list.Items {
		if isReady(&list.Items[i]) {
			ready = append(ready, &list.Items[i])
		}
	}
	return ready, nil
}

func isReady(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func (s *shop) awaitReady(n int) {
	s.Helper()
	s.Await(fmt.Sprintf("%d ready pods", n), func(ctx context.Context) (string, error) {
		ready, err := s.pods(ctx)
		if len(ready) != n {
			return fmt.Sprintf("%d are", len(ready)), err
		}
		return "", err
	})
}

// ready returns the ready pods.
func (s *shop) ready() []*corev1.Pod {
	s.Helper()
	pods, err := s.pods(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	return pods
}

// request requests the eviction of a pod.
func (s *shop) request(pod *corev1.Pod) {
	s.Helper()
	if outcome, err := s.asks.Request(s.Context(), pod, drain, "a test"); err != nil || outcome.State != requester.Waiting {
		s.Fatalf("%+v, %v", outcome, err)
	}
}

// awaitGone waits until pods are gone.
func (s *shop) awaitGone(pods ...*corev1.Pod) {
	s.Helper()
	for _, pod := range pods {
		s.Await("pod "+pod.Name+" to go", func(ctx context.Context) (string, error) {
			now, err := s.CoreV1().Pods(s.namespace).Get(ctx, pod.Name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) || err == nil && now.UID != pod.UID {
				return "", nil
			}
			return "it is there", err
		})
	}
}

// isThere fails unless a pod still exists.
func (s *shop) isThere(pod *corev1.Pod) {
	s.Helper()
	now, err := s.CoreV1().Pods(s.namespace).Get(s.Context(), pod.Name, metav1.GetOptions{})
	if err != nil || now.UID != pod.UID || now.DeletionTimestamp != nil {
		s.Fatalf("pod %s has gone: %v", pod.Name, err)
	}
}

// awaitState waits until a responder of a pod has a state and reports a text.
func (s *shop) awaitState(pod *corev1.Pod, name string, state lifecyclev1alpha1.ResponderStateType, text string) {
	s.Helper()
	s.Await(fmt.Sprintf("responder %s to be %s and report %q", name, state, text), func(ctx context.Context) (string, error) {
		list, err := s.LifecycleV1alpha1().Evictions(s.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", err
		}
		found := "there is no Eviction"
		for i := range list.Items {
			if list.Items[i].Spec.Target.Pod.UID != pod.UID {
				continue
			}
			status := &list.Items[i].Status
			for at, responder := range status.TargetResponders {
				message := ""
				if m := status.Responders[at].Message; m != nil {
					message = *m
				}
				if responder.Name != name {
					continue
				}
				if responder.State == state && strings.HasPrefix(message, text) {
					return "", nil
				}
				found = fmt.Sprintf("it is %s and says %q", responder.State, message)
			}
		}
		return found, nil
	})
}

// budget returns the TopologyDisruptionBudget.
func (s *shop) budget(ctx context.Context) (*v1alpha1.TopologyDisruptionBudget, error) {
	budget := &v1alpha1.TopologyDisruptionBudget{}
	return budget, s.objects.Get(ctx, types.NamespacedName{Namespace: s.namespace, Name: "web"}, budget)
}

// awaitReservations waits until exactly these pods have reservations.
func (s *shop) awaitReservations(pods ...*corev1.Pod) {
	s.Helper()
	s.Await("reservations", func(ctx context.Context) (string, error) {
		budget, err := s.budget(ctx)
		if err != nil {
			return "", err
		}
		for _, pod := range pods {
			if !slices.ContainsFunc(budget.Status.Reservations, func(r v1alpha1.Reservation) bool { return r.UID == pod.UID }) {
				return fmt.Sprintf("%+v", budget.Status.Reservations), nil
			}
		}
		if len(budget.Status.Reservations) != len(pods) {
			return fmt.Sprintf("%+v", budget.Status.Reservations), nil
		}
		return "", nil
	})
}

// block makes a covered pod unready, until it is undone.
func (s *shop) block() (undo func()) {
	s.Helper()
	s.Make(s.namespace, "{apiVersion: v1, kind: Pod, metadata: {name: down, labels: {shop: web}}, spec: {nodeSelector: {none: such}, containers: [{name: web, image: web}]}}")
	return func() {
		s.Helper()
		if err := s.CoreV1().Pods(s.namespace).Delete(s.Context(), "down", metav1.DeleteOptions{}); err != nil {
			s.Fatal(err)
		}
	}
}

func (c *cluster) waits(t *testing.T) {
	s := c.shop("waits", 3, v1alpha1.EvictionResponder)
	undo := s.block()
	s.Make(s.namespace, budgetYAML)
	pods := s.ready()
	s.request(pods[0])
	s.awaitState(pods[0], v1alpha1.EvictionResponder, lifecyclev1alpha1.ResponderStateActive, "budget "+s.namespace+"/web: ")
	s.isThere(pods[0])
	outcome, err := s.asks.Request(t.Context(), pods[0], drain, "a test")
	if err != nil || outcome.State != requester.Waiting || len(outcome.Causes) != 1 || !strings.Contains(outcome.Causes[0], "budget "+s.namespace+"/web: ") {
		t.Errorf("%+v, %v", outcome, err)
	}
	undo()
	s.awaitGone(pods[0])
	if outcome, err := s.asks.Request(t.Context(), pods[0], drain, "a test"); err != nil || outcome.State != requester.Gone {
		t.Errorf("%+v, %v", outcome, err)
	}
}

// A responder that deletes pods does so only when the budget allows it. The pod counts as down however long that takes.
func (c *cluster) deletes(*testing.T) {
	s := c.shop("deletes", 3, v1alpha1.EvictionResponder, deleter)
	var late atomic.Bool
	s.run(requests.Deleter{Client: s.Interface, Namespace: s.namespace, Name: deleter, Before: func(string) bool { return late.Load() }}.Run)
	undo := s.block()
	s.Make(s.namespace, budgetYAML)
	pods := s.ready()
	s.request(pods[0])
	s.awaitState(pods[0], v1alpha1.EvictionResponder, lifecyclev1alpha1.ResponderStateActive, "budget "+s.namespace+"/web: ")
	s.awaitState(pods[0], deleter, lifecyclev1alpha1.ResponderStateInactive, "")
	undo()
	s.awaitState(pods[0], deleter, lifecyclev1alpha1.ResponderStateActive, "")
	s.awaitState(pods[0], v1alpha1.EvictionResponder, lifecyclev1alpha1.ResponderStateCompleted, "Admitted: budget "+s.namespace+"/web: ")
	s.awaitReservations(pods[0])
	s.request(pods[1])
	s.awaitState(pods[1], v1alpha1.EvictionResponder, lifecyclev1alpha1.ResponderStateActive, "budget "+s.namespace+"/web: ")
	s.isThere(pods[0])
	late.Store(true)
	s.awaitGone(pods[0], pods[1])
	s.isThere(pods[2])
}
