package rollout

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
)

const gatedDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: db}
spec:
  replicas: 9
  selector: {matchLabels: {app: db}}
  strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 0, maxSurge: 3}}
  template:
    metadata: {labels: {app: db, version: "1"}, annotations: {lab.vicinity.dev/start-time: 200ms}}
    spec:
      terminationGracePeriodSeconds: 0
      schedulingGates: [{name: vicinity.dev/rollout}]
      containers: [{name: c, image: "registry.example/c"}]
      topologySpreadConstraints:
        - {maxSkew: 1, topologyKey: HALL, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: db}}}
      tolerations: [{operator: Exists}]
      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: HALL, operator: Exists}]}]}}}
`

// witness sees which ready pods go, in the order in which they do, and how few are ready.
type witness struct {
	*cluster
	mu    sync.Mutex
	pods  map[string]*corev1.Pod // by name
	gone  []string               // hall and version
	least int
}

func (c *cluster) witness() *witness {
	c.Helper()
	w := &witness{cluster: c, pods: map[string]*corev1.Pod{}}
	ctx, cancel := context.WithCancel(context.Background())
	known, events := c.follow(ctx)
	for i := range known {
		w.pods[known[i].Name] = &known[i]
	}
	w.least = w.ready()
	var ended sync.WaitGroup
	ended.Go(func() {
		for e := range events.ResultChan() {
			if pod, ok := e.Object.(*corev1.Pod); ok {
				w.see(pod, e.Type == watch.Deleted)
			}
		}
	})
	c.Cleanup(func() {
		cancel()
		events.Stop()
		ended.Wait()
	})
	return w
}

// follow returns the pods that there are, and what happens to them from then on.
func (c *cluster) follow(ctx context.Context) ([]corev1.Pod, watch.Interface) {
	c.Helper()
	var list corev1.PodList
	if err := c.api.List(ctx, &list, client.InNamespace(c.namespace)); err != nil {
		c.Fatal(err)
	}
	from := &client.ListOptions{Namespace: c.namespace, Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}}
	events, err := c.api.Watch(ctx, &corev1.PodList{}, from)
	if err != nil {
		c.Fatal(err)
	}
	return list.Items, events
}

func serves(pod *corev1.Pod) bool { p := podOf(pod); return p.Ready && !p.Terminating }

func (w *witness) see(pod *corev1.Pod, deleted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if before := w.pods[pod.Name]; before != nil && serves(before) && (deleted || pod.DeletionTimestamp != nil) {
		w.gone = append(w.gone, w.halls[before.Spec.NodeName]+before.Labels["version"])
	}
	if w.pods[pod.Name] = pod; deleted {
		delete(w.pods, pod.Name)
	}
	w.least = min(w.least, w.ready())
}

func (w *witness) ready() (pods int) {
	for _, pod := range w.pods {
		if serves(pod) {
			pods++
		}
	}
	return pods
}

// since returns the halls and versions of ready pods that went since the last look, each as often as it was its turn,
// and how few pods were ready at the least.
func (w *witness) since() (gone []string, least int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	gone, least = slices.Compact(w.gone), w.least
	w.gone, w.least = nil, w.ready()
	return gone, least
}

// went compares what went since the last look.
func (w *witness) went(what string, want ...string) {
	w.Helper()
	gone, least := w.since()
	if !slices.Equal(gone, want) || least < 9 {
		w.Errorf("%s: ready pods of %v went, want %v; %d were ready at the least", what, gone, want, least)
	}
}

func (c *cluster) deployment() *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "db"}}
}

// count says what is missing of a number of ready pods of a version in some halls, and of any others.
func (c *cluster) count(ctx context.Context, version string, want int, in ...string) string {
	pods, err := c.pods(ctx)
	if err != nil {
		return err.Error()
	}
	ready, all, held := 0, 0, 0
	for i := range pods {
		pod := &pods[i]
		if serves(pod) {
			all++
			if pod.Labels["version"] == version && slices.Contains(in, c.halls[pod.Spec.NodeName]) {
				ready++
			}
		}
		if isHeld(pod) {
			held++
		}
	}
	if ready == want {
		return ""
	}
	d := c.rollout()
	if err := c.api.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d pods of version %s are ready in %v, not %d, of %d; %d are held; %s: %s", ready, version, in, want, all, held, d.Status.Phase, d.Status.WaitingFor)
}

func (c *cluster) counted(version string, want int, in ...string) {
	c.Helper()
	c.Await(fmt.Sprintf("%d pods of version %s", want, version), func(ctx context.Context) (string, error) {
		return c.count(ctx, version, want, in...), nil
	})
}

// settled waits until the Deployment has nothing left to do.
func (c *cluster) settled(version string) {
	c.Helper()
	c.counted(version, 9, halls...)
	c.phase(v1alpha1.PhaseComplete)
	c.Await("pods that are too many to go", func(ctx context.Context) (string, error) {
		pods, err := c.pods(ctx)
		if len(pods) == 9 {
			return "", err
		}
		return fmt.Sprintf("there are %d", len(pods)), err
	})
}

// updatesDeployment takes a Deployment from revision to revision.
func (c *cluster) updatesDeployment() {
	c.Make(c.namespace, fmt.Sprintf(rolloutManifest, v1alpha1.KindDeployment))
	stop := c.run()
	c.Make(c.namespace, strings.ReplaceAll(gatedDeployment, "HALL", hall))
	c.settled("1")
	w := c.witness()

	c.template(v1alpha1.KindDeployment, "2", false)
	c.settled("2")
	w.went("version 2", "b1", "a1", "c1")

	c.template(v1alpha1.KindDeployment, "3", false)
	stop()
	c.restarting(func(ctx context.Context) string { return c.count(ctx, "3", 9, halls...) })
	stop = c.run()
	c.settled("3")
	w.went("with restarts", "b2", "a2", "c2")

	// A new revision while only hall b has the one before. Its pods there are of the ReplicaSet that is not the first to
	// be made smaller.
	c.spec(map[string]any{"pauseBefore": []string{"a"}})
	c.template(v1alpha1.KindDeployment, "4", false)
	c.phase(v1alpha1.PhasePaused)
	w.went("version 4 in hall b", "b3")
	c.template(v1alpha1.KindDeployment, "5", false)
	c.Await("version 5 in hall b alone", func(ctx context.Context) (string, error) { return c.count(ctx, "4", 0, halls...), nil })
	d := c.phase(v1alpha1.PhasePaused)
	if gone, least := w.since(); !slices.Equal(gone, []string{"b4"}) || least < 7 {
		c.Errorf("version 5: ready pods of %v went, and %d were ready at the least", gone, least)
	}

	// What dies in mid-rollout comes back at once, and what is asked for besides does.
	for _, version := range []string{"3", "5"} {
		c.kill(version)
	}
	c.Await("the dead ones", func(ctx context.Context) (string, error) { return c.readyPods(ctx, 9) })
	c.patch(c.deployment(), map[string]any{"spec": map[string]any{"replicas": 12}})
	c.Await("three more", func(ctx context.Context) (string, error) { return c.readyPods(ctx, 12) })
	c.patch(c.deployment(), map[string]any{"spec": map[string]any{"replicas": 9}})
	c.Await("three less", func(ctx context.Context) (string, error) { return c.readyPods(ctx, 9) })
	if phase := c.phase(v1alpha1.PhasePaused); phase.Status.Revision != d.Status.Revision {
		c.Errorf("the revision is %s", phase.Status.Revision)
	}
	w.since()
	c.isUnfollowed()
	if gone, least := w.since(); len(gone) != 1 || least < 8 {
		c.Errorf("without a DomainRollout: ready pods of %v went, and %d were ready at the least", gone, least)
	}
	c.Make(c.namespace, fmt.Sprintf(rolloutManifest, v1alpha1.KindDeployment))
	c.settled("5")
	if gone, least := w.since(); least < 9 || slices.ContainsFunc(gone, func(went string) bool { return !strings.HasSuffix(went, "3") }) {
		c.Errorf("the rest of version 5: ready pods of %v went, and %d were ready at the least", gone, least)
	}

	c.failsInSecondHall(w)
	stop()
}

// failsInSecondHall has a revision that hall a has no room for, and rolls back.
func (c *cluster) failsInSecondHall(w *witness) {
	good := c.phase(v1alpha1.PhaseComplete).Status.Revision
	c.spec(map[string]any{"pauseBefore": nil, "healthGate": map[string]any{"progressDeadline": "5s"}})
	c.template(v1alpha1.KindDeployment, "6", true)
	d := c.rollout()
	c.Await("the scheduler's words", func(ctx context.Context) (string, error) {
		if err := c.api.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			return "", err
		}
		if !strings.Contains(d.Status.WaitingFor, "Insufficient "+bed) {
			return d.Status.WaitingFor, nil
		}
		return "", nil
	})
	d = c.phase(v1alpha1.PhaseFailed)
	if d.Status.Failure == nil || d.Status.Failure.Domain != "a" || !meta.IsStatusConditionFalse(d.Status.Conditions, v1alpha1.ConditionHealthy) || d.Status.PreviousRevision != good {
		c.Errorf("the failure is reported as %+v", d.Status)
	}
	gone, least := w.since()
	if least < 9 || slices.ContainsFunc(gone, func(went string) bool { return went != "b5" }) {
		c.Errorf("version 6: ready pods of %v went; %d were ready at the least", gone, least)
	}
	// An old pod that dies while the rollout has failed comes back.
	c.kill("5")
	c.Await("the dead one", func(ctx context.Context) (string, error) { return c.readyPods(ctx, 9) })
	w.since()
	c.spec(map[string]any{"stop": map[string]any{"revision": d.Status.Revision, "action": "Rollback"}, "healthGate": nil})
	c.settled("5")
	if d = c.phase(v1alpha1.PhaseComplete); d.Status.Revision != good {
		c.Errorf("the rollback ends with %s, not %s", d.Status.Revision, good)
	}
	if gone, least := w.since(); least < 9 || slices.ContainsFunc(gone, func(went string) bool { return went != "b6" }) {
		c.Errorf("the rollback: ready pods of %v went; %d were ready at the least", gone, least)
	}
}

// isUnfollowed deletes the DomainRollout in mid-rollout: a pod that dies comes back, and nothing else is replaced.
func (c *cluster) isUnfollowed() {
	c.Helper()
	if err := c.api.Delete(c.Context(), c.rollout()); err != nil {
		c.Fatal(err)
	}
	c.kill("3")
	c.Await("the dead one", func(ctx context.Context) (string, error) { return c.readyPods(ctx, 9) })
	c.Await("the event", func(ctx context.Context) (string, error) {
		list, err := c.EventsV1().Events(c.namespace).List(ctx, metav1.ListOptions{})
		if err == nil && !slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool { return e.Reason == "NoDomainRollout" && e.Regarding.Name == "db" }) {
			return "there is none", nil
		}
		return "", err
	})
}

// isPaused pauses the Deployment before its first pod is released.
func (c *cluster) isPaused(w *witness) {
	c.spec(map[string]any{"paused": true})
	c.template(v1alpha1.KindDeployment, "3", false)
	d := c.phase(v1alpha1.PhasePaused)
	c.patch(c.deployment(), map[string]any{"spec": map[string]any{"paused": true}})
	c.spec(map[string]any{"paused": nil})
	c.Await("the words", func(ctx context.Context) (string, error) {
		err := c.api.Get(ctx, client.ObjectKeyFromObject(d), d)
		if strings.Contains(d.Status.WaitingFor, "kubectl rollout resume deployment db") {
			return "", err
		}
		return d.Status.WaitingFor, err
	})
	w.went("nothing while it is paused")
	if said := c.count(c.Context(), "3", 0, halls...); said != "" {
		c.Error(said)
	}
	c.patch(c.deployment(), map[string]any{"spec": map[string]any{"paused": nil}})
	c.settled("3")
	w.went("version 3", "b2", "a2", "c2")
}

// kill deletes a ready pod of a version.
func (c *cluster) kill(version string) {
	c.Helper()
	pods, err := c.pods(c.Context())
	at := slices.IndexFunc(pods, func(p corev1.Pod) bool { return serves(&p) && p.Labels["version"] == version })
	if err != nil || at < 0 {
		c.Fatalf("no pod of version %s to kill: %v", version, err)
	}
	if err := c.api.Delete(c.Context(), &pods[at]); err != nil {
		c.Fatal(err)
	}
}

func (c *cluster) readyPods(ctx context.Context, want int) (missing string, err error) {
	pods, err := c.pods(ctx)
	ready := 0
	for i := range pods {
		if serves(&pods[i]) {
			ready++
		}
	}
	if ready == want {
		return "", err
	}
	return fmt.Sprintf("%d are ready", ready), err
}

// restarting ends the controller whenever the pods have changed a little, until nothing is missing.
func (c *cluster) restarting(missing func(context.Context) string) {
	c.Helper()
	restarts := 0
	for deadline := time.Now().Add(2 * time.Minute); missing(c.Context()) != ""; restarts++ {
		if time.Now().After(deadline) {
			c.Fatalf("not done after %d restarts: %s", restarts, missing(c.Context()))
		}
		ctx, cancel := context.WithCancel(c.Context())
		stop := c.run()
		_, changes := c.follow(ctx)
		for n := 1 + restarts%5; n > 0; {
			select {
			case <-changes.ResultChan():
				n--
			case <-time.After(3 * time.Second):
				n = 0
			}
		}
		cancel()
		stop()
	}
	c.Logf("%d restarts", restarts)
}

const zoneBudget = `
apiVersion: vicinity.dev/v1alpha1
kind: TopologyDisruptionBudget
metadata: {name: db}
spec:
  selector: {matchLabels: {app: db}}
  maxUnavailable: 0
  nodeSelectorTerm: {matchExpressions: [{key: HALL, operator: Exists}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: db}
spec:
  selector: {matchLabels: {app: db}}
  minAvailable: 9
`

// isAskedFor updates a Deployment under budgets of both kinds that let nothing go, until they are edited.
func (c *cluster) isAskedFor() {
	c.Make(c.namespace, fmt.Sprintf(rolloutManifest, v1alpha1.KindDeployment))
	stop := c.run()
	c.Make(c.namespace, strings.ReplaceAll(gatedDeployment, "HALL", hall))
	c.settled("1")
	c.Make(c.namespace, strings.ReplaceAll(zoneBudget, "HALL", hall))
	w := c.witness()
	c.template(v1alpha1.KindDeployment, "2", false)
	refused := func(words string) {
		c.Helper()
		d := c.rollout()
		c.Await("the refusal of "+words, func(ctx context.Context) (string, error) {
			err := c.api.Get(ctx, client.ObjectKeyFromObject(d), d)
			if strings.Contains(d.Status.WaitingFor, words) {
				return "", err
			}
			return d.Status.WaitingFor, err
		})
	}
	refused("disruption budget")
	if err := c.api.Delete(c.Context(), &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "db"}}); err != nil {
		c.Fatal(err)
	}
	refused("budget")
	w.went("nothing")
	if said := c.count(c.Context(), "2", 0, halls...); said != "" {
		c.Error(said)
	}
	budget := &v1alpha1.TopologyDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "db"}}
	c.patch(budget, map[string]any{"spec": map[string]any{"maxUnavailable": 1}})
	c.settled("2")
	w.went("version 2", "b1", "a1", "c1")
	c.isPaused(w)
	stop()
}
