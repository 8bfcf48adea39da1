package reservation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"vicinity.dev/vicinity/test/rig"
)

const (
	hall     = "example.com/hall"
	halls    = 3
	perHall  = 40
	mayBe    = 3 // down in each hall
	inFlight = 200
	evicted  = 300
)

// cluster is a control plane with the controllers of Kubernetes. Nodes fake-1 and fake-2 are in hall
// a, and so on up to hall c.
type cluster struct {
	rig.ControlPlane
}

func live(t testing.TB) *cluster {
	t.Helper()
	c := &cluster{ControlPlane: rig.Start(t)}
	log.SetLogger(logr.Discard())
	c.Label(hall, rig.Halls(2))
	c.Make("", "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}")
	return c
}

func hallOf(i int) string { return string('a' + rune(i)) }

// pods makes a StatefulSet in each hall, whose pods have names that come back and take a while to
// get ready, and waits for them.
func (c *cluster) pods() {
	c.Helper()
	for i := range halls {
		c.Make(shop, fmt.Sprintf(`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web-%[1]s}
spec:
  replicas: %[2]d
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: web, hall: %[1]s}}
  template:
    metadata: {labels: {app: web, hall: %[1]s}, annotations: {lab.vicinity.dev/start-time: 100ms}}
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 1
      nodeSelector: {%[3]s: %[1]s}
      containers: [{name: c, image: lab/sleep}]
`, hallOf(i), perHall, hall))
	}
	c.Await("the pods", func(ctx context.Context) (string, error) {
		list, err := c.AppsV1().StatefulSets(shop).List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", err
		}
		for _, set := range list.Items {
			if set.Status.ReadyReplicas != perHall {
				return fmt.Sprintf("%s has %d", set.Name, set.Status.ReadyReplicas), nil
			}
		}
		return "", nil
	})
}

// ledger runs a Ledger in a process of its own, but for the process. Changes of pods reach it late
// now and then if it is slow.
func (c *cluster) ledger(slow bool) *Ledger {
	c.Helper()
	cached := cache.Options{}
	CacheOptions(&cached)
	if slow {
		for object, by := range cached.ByObject {
			if _, ok := object.(*corev1.Pod); ok {
				transform := by.Transform
				by.Transform = func(object any) (any, error) {
					if rand.IntN(20) == 0 {
						time.Sleep(rand.N(150 * time.Millisecond))
					}
					return transform(object)
				}
				cached.ByObject[object] = by
			}
		}
	}
	mgr, err := manager.New(c.Config(), manager.Options{Scheme: testScheme(c), Cache: cached, Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		c.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.Context())
	l, err := New(ctx, mgr, Options{})
	if err != nil {
		c.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	c.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			c.Error(err)
		}
	})
	c.Await("the caches", func(context.Context) (string, error) {
		if err := l.Synced(nil); err != nil {
			return err.Error(), nil
		}
		return "", nil
	})
	return l
}

// history is what the API server says about pods, in the order in which it happened.
type history struct {
	mu      sync.Mutex
	pods    map[types.UID]*corev1.Pod
	healthy map[string]int // by hall
	least   map[string]int
}

// follow watches pods from what there is now.
func (c *cluster) follow() *history {
	c.Helper()
	h := &history{pods: map[types.UID]*corev1.Pod{}, healthy: map[string]int{}, least: map[string]int{}}
	list, err := c.CoreV1().Pods(shop).List(c.Context(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	for i := range list.Items {
		h.pods[list.Items[i].UID] = &list.Items[i]
		h.healthy[list.Items[i].Labels["hall"]]++
	}
	for hall, healthy := range h.healthy {
		h.least[hall] = healthy
	}
	events, err := c.CoreV1().Pods(shop).Watch(c.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		c.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var last runtime.Object
		for event := range events.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok {
				last = event.Object
				break
			}
			h.take(event.Type, pod)
		}
		// The test's end cancels its context, and with it the watch, which may say so.
		if c.Context().Err() == nil {
			c.Errorf("the watch of pods ended before the test, with %+v", last)
		}
	}()
	c.Cleanup(func() {
		events.Stop()
		<-done
	})
	return h
}

func (h *history) take(kind watch.EventType, pod *corev1.Pod) {
	h.mu.Lock()
	defer h.mu.Unlock()
	in := pod.Labels["hall"]
	if before := h.pods[pod.UID]; before != nil && isHealthy(before) {
		h.healthy[in]--
	}
	if kind == watch.Deleted {
		delete(h.pods, pod.UID)
	} else {
		if h.pods[pod.UID] = pod; isHealthy(pod) {
			h.healthy[in]++
		}
	}
	h.least[in] = min(h.least[in], h.healthy[in])
}

func isHealthy(pod *corev1.Pod) bool { return !isGoing(pod) && isReady(pod) }

// any is a pod that is healthy as far as is known.
func (h *history) any() *corev1.Pod {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, pod := range h.pods { // in any order
		if isHealthy(pod) {
			return pod
		}
	}
	return nil
}

// TestTwoLedgers has two of them decide about the same budget at once, one of which learns late
// what became of pods, and looks at what happened to the pods: at no time are more down in a
// domain than the budget allows.
func TestTwoLedgers(t *testing.T) {
	c := live(t)
	c.pods()
	c.Make(shop, fmt.Sprintf(`
apiVersion: vicinity.dev/v1alpha1
kind: TopologyDisruptionBudget
metadata: {name: web}
spec: {selector: {matchLabels: {app: web}}, nodeSelectorTerm: {matchExpressions: [{key: %s, operator: Exists}]}, maxUnavailable: %d}
`, hall, mayBe))
	ledgers := []*Ledger{c.ledger(false), c.ledger(true)}
	for _, l := range ledgers {
		c.Await("the budget", func(context.Context) (string, error) {
			if len(l.Covering(shop, map[string]string{"app": "web"})) == 0 {
				return "it is not known", nil
			}
			return "", nil
		})
	}
	h := c.follow()
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var done, denied, unanswered, requests atomic.Int64
	var work sync.WaitGroup
	for range inFlight {
		work.Go(func() {
			for ctx.Err() == nil && done.Load() < evicted {
				pod := h.any()
				if pod == nil {
					continue
				}
				n := requests.Add(1)
				switch admitted, err := c.evict(ctx, ledgers[n%2], pod, fmt.Sprint(n)); {
				case admitted:
					done.Add(1)
				case err == nil:
					denied.Add(1)
				case isUnanswered(err):
					unanswered.Add(1)
				case ctx.Err() == nil:
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	took := time.Since(begun)
	if done.Load() < evicted {
		t.Errorf("%d evictions in %s, and %d denied; there should be %d", done.Load(), took, denied.Load(), evicted)
	}
	for in, least := range h.least {
		if least < perHall-mayBe {
			t.Errorf("in hall %s there were only %d healthy pods of %d at a time, and %d may be down", in, least, perHall, mayBe)
		}
	}
	var writes, conflicts float64
	for _, l := range ledgers {
		writes += testutil.ToFloat64(l.metrics.writes.WithLabelValues(writeDone))
		conflicts += testutil.ToFloat64(l.metrics.writes.WithLabelValues(writeConflict))
	}
	t.Logf("%d evictions in %s, %d denied, %d not answered; %g writes and %g conflicts; at least healthy were %v of %d",
		done.Load(), took.Round(time.Millisecond), denied.Load(), unanswered.Load(), writes, conflicts, h.least, perHall)
}

// isUnanswered reports whether there was no answer since a cache was behind, or there was no time for
// one. A slow machine has more of these, and they let nothing through.
func isUnanswered(err error) bool {
	var behind *behindError
	return errors.As(err, &behind) || errors.Is(err, errReadyByNow) || errors.Is(err, context.DeadlineExceeded)
}

// evict evicts a pod as the API server does: it asks first, and deletes the pod of that UID.
func (c *cluster) evict(ctx context.Context, l *Ledger, pod *corev1.Pod, holder string) (bool, error) {
	short, cancel := context.WithTimeout(ctx, 2500*time.Millisecond)
	defer cancel()
	answer, err := l.Admit(short, Request{Pod: pod, Holder: holder})
	if err != nil || !answer.Allowed() {
		return false, err
	}
	err = c.PolicyV1().Evictions(shop).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: shop, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return false, nil // somebody else was first
	}
	return err == nil, err
}
