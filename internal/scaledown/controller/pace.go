package controller

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/scaledown/pacing"
)

const (
	// paceGatherTime is how long a workload gathers changes of pods and budgets.
	paceGatherTime = time.Second
	// firstWait and longestWait bound the wait for the next look without changes.
	firstWait, longestWait = 2 * time.Second, 20 * time.Second
	// holdEvery is the interval of extending reservations of slow pods. Together with longestWait it is shorter than a reservation.
	holdEvery = 30 * time.Second
)

// holder is the holder of extended reservations.
const holder = "scale-down"

// eventPaced is the reason of events of workloads.
const eventPaced = "ScaleDownPaced"

// pacer is the used part of pacing.Pacer.
type pacer interface {
	Ask(context.Context, pacing.Question) (pacing.Answer, error)
	Hold(context.Context, pacing.Workload, string) error
}

// AddPacing adds the controller of paced scale-downs to a manager, whose cache must have reservation.CacheOptions.
func AddPacing(ctx context.Context, mgr manager.Manager, asks *pacing.Pacer, options Options) error {
	recorder, err := shell.NewRecorder(ctx, mgr, "vicinity-controller")
	if err != nil {
		return err
	}
	r := newStepper(stepper{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), pacer: asks, recorder: recorder, clock: clock.RealClock{}, options: options,
	})
	if err := shell.Register(r.steps, r.underway); err != nil {
		return err
	}
	b := builder.TypedControllerManagedBy[workload](mgr).
		Named("pacing").
		Watches(&corev1.Pod{}, shell.OnEvent(r.podChanged, nil)).
		Watches(&v1alpha1.TopologyDisruptionBudget{}, shell.OnEvent(wakeNoted(r.notes, paceGatherTime), nil)).
		WithOptions(controller.TypedOptions[workload]{MaxConcurrentReconciles: options.Workers})
	for _, kind := range pacing.Kinds() {
		b = b.Watches(kind.New(), shell.OnEvent(func(_ context.Context, object client.Object, q queue) {
			w := workload{client.ObjectKeyFromObject(object), kind}
			if isNoted(object) || r.notes.Has(w) {
				q.Add(w)
			}
		}, nil))
	}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("adding the controller of paced scale-downs: %w", err)
	}
	return nil
}

func (r *stepper) podChanged(ctx context.Context, pod client.Object, q queue) {
	if w, found := r.ofPod(ctx, pod); found {
		q.AddAfter(w, paceGatherTime)
	}
}

// stepper continues scale-downs.
type stepper struct {
	client   client.Client
	live     client.Reader // without a cache
	pacer    pacer
	recorder events.EventRecorder
	clock    clock.PassiveClock
	options  Options
	notes    *shell.Notes[workload, pace]

	steps    *prometheus.CounterVec
	underway prometheus.GaugeFunc
}

func newStepper(r stepper) *stepper {
	r.notes = &shell.Notes[workload, pace]{}
	r.steps = shell.NewCounter("vicinity_pacing_steps_total", "Steps of scale-downs that budgets allowed only in part, by result.",
		"result", shell.Outcomes()...)
	r.underway = shell.NewGauge("vicinity_pacing_workloads", "Workloads whose scale-down waits for budgets.", func() int { return len(r.notes.Keys()) })
	return &r
}

// pace is the memory of a running scale-down.
type pace struct {
	uid       types.UID
	backoff   shell.Backoff
	held      time.Time
	announced string
}

// Reconcile continues the scale-down of a workload.
func (r *stepper) Reconcile(ctx context.Context, w workload) (reconcile.Result, error) {
	defer r.options.Syncs.Begin("pacing " + w.String())()
	after, err := r.sync(ctx, w)
	result, _, err := shell.Finish(after, err)
	return result, err
}

// sync returns after how long to look again, zero for never.
func (r *stepper) sync(ctx context.Context, w workload) (time.Duration, error) {
	c, err := pacing.Read(ctx, r.live, w.kind, w.NamespacedName)
	if err != nil {
		return 0, err
	}
	if c == nil || c.Object.GetDeletionTimestamp() != nil || !isNoted(c.Object) {
		r.notes.Forget(w)
		return 0, nil
	}
	end, err := r.endOf(ctx, c)
	if err != nil {
		return 0, err
	}
	if end != "" {
		if _, err := r.patch(ctx, c, nil); err != nil {
			return 0, err
		}
		r.notes.Forget(w)
		r.recorder.Eventf(c.Object, nil, corev1.EventTypeNormal, eventPaced, "ScaleDown", "%s", end)
		return 0, nil
	}
	n := r.notes.Of(w, func() *pace { return &pace{} })
	if uid := c.Object.GetUID(); n.uid != uid { // another workload of the name
		*n = pace{uid: uid}
	}
	if r.clock.Since(n.held) >= holdEvery {
		if err := r.pacer.Hold(ctx, *c, holder); err != nil {
			return 0, err
		}
		n.held = r.clock.Now()
	}
	return r.step(ctx, n, c)
}

func isNoted(object client.Object) bool {
	_, wanted := object.GetAnnotations()[v1alpha1.AnnotationWantedReplicas]
	_, paced := object.GetAnnotations()[v1alpha1.AnnotationPacedReplicas]
	return wanted || paced
}

// endOf says why a scale-down ends. It is empty if it continues.
func (r *stepper) endOf(ctx context.Context, c *pacing.Workload) (string, error) {
	switch {
	case c.Wanted == nil:
		return fmt.Sprintf("%s=%.100q is not a number of replicas; scale down again", v1alpha1.AnnotationWantedReplicas, c.Object.GetAnnotations()[v1alpha1.AnnotationWantedReplicas]), nil
	case c.Replicas <= *c.Wanted:
		return fmt.Sprintf("The scale-down to %d is complete", *c.Wanted), nil
	case c.Paced != nil && c.Replicas > *c.Paced:
		return fmt.Sprintf("The workload was set to %d replicas, so the scale-down to %d stops", c.Replicas, *c.Wanted), nil
	}
	switch mode, err := pacing.ReadMode(ctx, r.client, *c); {
	case err != nil:
		return "", err
	case mode != v1alpha1.PaceClamp:
		return fmt.Sprintf("%s is no longer %s here, so the scale-down to %d stops at %d", v1alpha1.PaceScaleDown, v1alpha1.PaceClamp, *c.Wanted, c.Replicas), nil
	}
	return "", nil
}

// step scales down as far as budgets allow now.
func (r *stepper) step(ctx context.Context, n *pace, c *pacing.Workload) (time.Duration, error) {
	answer, err := r.pacer.Ask(ctx, pacing.Question{Workload: *c, Wanted: *c.Wanted, DryRun: true})
	if err != nil {
		return 0, err
	}
	moved := false
	if answer.Replicas < c.Replicas {
		written, err := r.patch(ctx, c, c.Wanted)
		r.steps.WithLabelValues(string(shell.OutcomeOf(err))).Inc()
		if err != nil {
			return 0, err
		}
		moved = written.Replicas < c.Replicas
		c.Replicas = written.Replicas
		log.FromContext(ctx).V(1).Info("scaled down", "kind", c.Kind, "replicas", written.Replicas, "wanted", *c.Wanted)
	}
	r.announce(n, c, answer.Denial)
	if moved {
		n.backoff = shell.Backoff{}
	}
	n.backoff.Fail(r.clock.Now(), firstWait, longestWait)
	return wait.Jitter(n.backoff.Wait(r.clock.Now()), 0.5), nil
}

// announce writes an event once for each wanted number.
func (r *stepper) announce(n *pace, c *pacing.Workload, denial string) {
	wanted := fmt.Sprint(*c.Wanted)
	if denial == "" || c.Replicas <= *c.Wanted || n.announced == wanted {
		return
	}
	n.announced = wanted
	r.recorder.Eventf(c.Object, nil, corev1.EventTypeNormal, eventPaced, "ScaleDown",
		"The scale-down to %d is at %d, and continues as budgets allow it. %s", *c.Wanted, c.Replicas, denial)
}

// patch writes the wanted replicas of a workload, which may be unchanged. It fails if the workload has changed. The webhook turns the
// write into a step, and patch returns the stored workload.
func (r *stepper) patch(ctx context.Context, c *pacing.Workload, wanted *int32) (pacing.Workload, error) {
	annotations := map[string]*string{v1alpha1.AnnotationWantedReplicas: nil}
	if wanted == nil {
		annotations[v1alpha1.AnnotationPacedReplicas] = nil
	} else {
		annotations[v1alpha1.AnnotationWantedReplicas] = new(fmt.Sprint(*wanted))
	}
	written, err := pacing.Annotate(ctx, r.client, *c, annotations)
	if err != nil {
		return written, fmt.Errorf("continuing the scale-down of %s: %w", c, shell.Changed(err))
	}
	return written, nil
}

// ofPod returns the workload of a pod, and whether its scale-down is running.
func (r *stepper) ofPod(ctx context.Context, pod client.Object) (workload, bool) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || !strings.HasPrefix(owner.APIVersion, appsv1.GroupName+"/") {
		return workload{}, false
	}
	w := workload{types.NamespacedName{Namespace: pod.GetNamespace(), Name: owner.Name}, pacing.Kind(owner.Kind)}
	if w.kind == pacing.ReplicaSet {
		set := &appsv1.ReplicaSet{}
		if err := r.client.Get(ctx, w.NamespacedName, set); err == nil && pacing.Of(set).OfDeployment() {
			w.kind, w.Name = pacing.Deployment, metav1.GetControllerOf(set).Name
		}
	}
	return w, r.notes.Has(w)
}
