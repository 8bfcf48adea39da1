package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/scaledown/pacing"
	"vicinity.dev/vicinity/internal/scaledown/spread"
)

// batch is the number of costs that are written before the pods are read again. The next pods to go come first.
const batch = 50

// Reconcile writes the deletion costs of a workload.
func (r *reconciler) Reconcile(ctx context.Context, w workload) (reconcile.Result, error) {
	defer r.options.Syncs.Begin(w.String())()
	after, err := r.sync(ctx, w)
	result, outcome, err := shell.Finish(after, err)
	r.metrics.synced(outcome)
	return result, err
}

// sync returns after how long to look again, zero for never.
func (r *reconciler) sync(ctx context.Context, w workload) (time.Duration, error) {
	c, err := r.read(ctx, w)
	if err != nil {
		return 0, err
	}
	if c == nil || c.owner.GetDeletionTimestamp() != nil {
		r.notes.Forget(w)
		return 0, nil
	}
	if c.isUpdated() { // the deletion or the unmarking of a pod wakes it
		return 0, nil
	}
	if until := c.pacedUntil(r.clock.Now()); !until.IsZero() {
		return until.Sub(r.clock.Now()), r.withdraw(ctx, r.notes.Of(w, newNotes))
	}
	if c.key == "" {
		r.notes.Forget(w)
		return 0, r.clear(ctx, c)
	}
	n := r.notes.Of(w, newNotes)
	if r.isBehind(n, c) {
		return shell.BehindWait, nil
	}
	n.announce(r, c.owner, eventInvalid, c.invalid)
	if c.invalid != "" {
		n.misplaced.Store(0)
		return 0, nil
	}
	pods, wait, err := r.podsOf(ctx, n, c)
	if err != nil {
		return 0, err
	}
	plan := spread.NewPlan(pods)
	n.announce(r, c.owner, eventForeign, foreignMessage(pods))
	n.announce(r, c.owner, eventNoRoom, noRoomMessage(plan.Crowded))
	for i, change := range plan.Changes {
		if i == batch {
			return gatherTime, nil
		}
		if err := r.write(ctx, n, c, change.Pod, change.Cost); err != nil {
			return 0, err
		}
	}
	again, err := r.repair(ctx, n, c, pods)
	return shell.Sooner(wait, again), err
}

// current is a cached workload.
type current struct {
	workload
	owner   client.Object
	key     string // the node label that names domains, empty without the annotation
	invalid string // why the key is invalid
	repairs bool
	sets    []appsv1.ReplicaSet
	// pods has, by name, the pods that are neither terminating nor finished. terminating counts the terminating ones.
	pods        map[string]*corev1.Pod
	terminating int
}

func (c *current) hasPod(uid types.UID) bool {
	for _, pod := range c.pods {
		if pod.UID == uid {
			return true
		}
	}
	return false
}

// read reads a workload. It returns nil if the workload does not exist.
func (r *reconciler) read(ctx context.Context, w workload) (*current, error) {
	c := &current{workload: w, pods: map[string]*corev1.Pod{}}
	if w.kind == pacing.Deployment {
		c.owner = &appsv1.Deployment{}
	} else {
		c.owner = &appsv1.ReplicaSet{}
	}
	err := r.client.Get(ctx, w.NamespacedName, c.owner)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", w, err)
	}
	if err := r.readAnnotations(ctx, c); err != nil {
		return nil, err
	}
	if set, ok := c.owner.(*appsv1.ReplicaSet); ok {
		if workloadOf(set) != w {
			return nil, nil // a Deployment has adopted it
		}
		c.sets = []appsv1.ReplicaSet{*set}
	} else {
		var sets appsv1.ReplicaSetList
		if err := r.client.List(ctx, &sets, client.InNamespace(w.Namespace), client.MatchingFields{indexController: string(c.owner.GetUID())}); err != nil {
			return nil, fmt.Errorf("reading the ReplicaSets of %s: %w", w, err)
		}
		c.sets = sets.Items
	}
	return c, r.readPods(ctx, c)
}

func (r *reconciler) readPods(ctx context.Context, c *current) error {
	for i := range c.sets {
		var pods corev1.PodList
		if err := r.client.List(ctx, &pods, client.InNamespace(c.Namespace), client.MatchingFields{indexController: string(c.sets[i].UID)}); err != nil {
			return fmt.Errorf("reading the pods of %s: %w", c.workload, err)
		}
		for j := range pods.Items {
			switch pod := &pods.Items[j]; {
			case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
			case pod.DeletionTimestamp != nil:
				c.terminating++
			default:
				c.pods[pod.Name] = pod
			}
		}
	}
	return nil
}

// isUpdated reports whether a DomainRollout controls the costs of the workload.
func (c *current) isUpdated() bool {
	for _, pod := range c.pods {
		if pod.Annotations[v1alpha1.AnnotationDeletionCost] == v1alpha1.RolloutDeletionCost {
			return true
		}
	}
	return false
}

// pacedUntil returns until when a paced scale-down controls the costs of the workload, zero if none does.
func (c *current) pacedUntil(now time.Time) (last time.Time) {
	for _, pod := range c.pods {
		if until := pacing.GoesUntil(pod, now); until.After(last) {
			last = until
		}
	}
	return last
}

// readAnnotations reads the annotations of the workload, or of its namespace.
func (r *reconciler) readAnnotations(ctx context.Context, c *current) error {
	namespace, err := shell.ReadNamespace(ctx, r.client, c.Namespace)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	asked := func(annotation string) string {
		if value, found := c.owner.GetAnnotations()[annotation]; found {
			return value
		}
		return namespace.Annotations[annotation]
	}
	c.key = asked(v1alpha1.AnnotationKeepSpread)
	c.repairs = asked(v1alpha1.AnnotationRepairSpread) == "true"
	if faults := content.IsLabelKey(c.key); c.key != "" && len(faults) > 0 {
		c.invalid = fmt.Sprintf("%s: %.100q is not a label key, such as %s: %s", v1alpha1.AnnotationKeepSpread, c.key, corev1.LabelTopologyZone, strings.Join(faults, "; "))
	}
	return nil
}

// isBehind reports whether the cache lacks a write to the pods.
func (r *reconciler) isBehind(n *notes, c *current) bool {
	behind, there := false, map[types.UID]bool{}
	for _, pod := range c.pods {
		there[pod.UID] = true
		behind = behind || n.written[pod.UID].Pending(pod, r.clock.Now())
	}
	maps.DeleteFunc(n.written, func(uid types.UID, _ shell.Written) bool { return !there[uid] })
	return behind
}

// podsOf converts the pods for package spread. It also returns after how long a change of a budget counts.
func (r *reconciler) podsOf(ctx context.Context, n *notes, c *current) ([]spread.Pod, time.Duration, error) {
	nodes := map[string]*corev1.Node{}
	pods := make([]spread.Pod, 0, len(c.pods))
	for _, name := range slices.Sorted(maps.Keys(c.pods)) {
		pod := c.pods[name]
		node := nodes[pod.Spec.NodeName]
		if node == nil && pod.Spec.NodeName != "" {
			node = &corev1.Node{}
			if err := r.client.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, node); client.IgnoreNotFound(err) != nil {
				return nil, 0, fmt.Errorf("reading Node %s: %w", pod.Spec.NodeName, err)
			}
			nodes[pod.Spec.NodeName] = node
		}
		pods = append(pods, podOf(pod, node, c.key))
	}
	wait, err := r.block(ctx, n, c, pods, nodes)
	return pods, wait, err
}

// podOf converts a pod for package spread. A node without the label is in the domain "".
func podOf(pod *corev1.Pod, node *corev1.Node, key string) spread.Pod {
	p := pacing.RankedPod(pod)
	if node != nil {
		p.Domain = node.Labels[key]
	}
	return p
}

// write writes the deletion cost of a pod.
func (r *reconciler) write(ctx context.Context, n *notes, c *current, name string, cost int32) error {
	pod, value := c.pods[name], strconv.Itoa(int(cost))
	written, err := r.patch(ctx, c, pod, &value)
	if err != nil {
		return fmt.Errorf("writing the deletion cost of Pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	note := n.written[pod.UID]
	note.Note(written, r.clock.Now())
	n.written[pod.UID] = note
	log.FromContext(ctx).V(1).Info("ordered", "pod", pod.Name, "cost", cost)
	return nil
}

// clear removes the controller's costs from the pods of a workload.
func (r *reconciler) clear(ctx context.Context, c *current) error {
	for _, name := range slices.Sorted(maps.Keys(c.pods)) {
		pod := c.pods[name]
		_, written := pod.Annotations[v1alpha1.AnnotationDeletionCost]
		_, marked := pod.Annotations[v1alpha1.AnnotationGoesUntil]
		if !written && !marked {
			continue
		}
		if _, err := r.patch(ctx, c, pod, nil); err != nil {
			return fmt.Errorf("removing the deletion cost of Pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	return nil
}

// patch sets or removes the cost of a pod that is unchanged since it was read. It does not remove the cost of another owner.
// It writes nothing if a paced scale-down has started meanwhile.
func (r *reconciler) patch(ctx context.Context, c *current, pod *corev1.Pod, cost *string) (*corev1.Pod, error) {
	annotations := map[string]*string{v1alpha1.AnnotationDeletionCost: cost, v1alpha1.AnnotationGoesUntil: nil}
	if cost != nil || pod.Annotations[corev1.PodDeletionCost] == pod.Annotations[v1alpha1.AnnotationDeletionCost] {
		annotations[corev1.PodDeletionCost] = cost
	}
	if err := r.limiter.Wait(ctx); err != nil {
		return nil, err
	}
	now := &current{workload: c.workload, sets: c.sets, pods: map[string]*corev1.Pod{}}
	if err := r.readPods(ctx, now); err != nil {
		return nil, err
	}
	if !now.pacedUntil(r.clock.Now()).IsZero() {
		return nil, shell.ErrChanged
	}
	return shell.AnnotatePod(ctx, r.client, pod, annotations)
}

// Reasons of events of workloads.
const (
	eventInvalid    = "KeepSpreadInvalid"
	eventForeign    = "DeletionCostKept"
	eventNoRoom     = "DeletionCostsHaveNoRoom"
	eventRepair     = "SpreadRepair"
	eventRepairEnds = "SpreadRepairEnds"
)

// announce writes an event about a workload, once while the message stays.
func (n *notes) announce(r *reconciler, owner client.Object, reason, message string) {
	if message == "" {
		delete(n.announced, reason)
		return
	}
	if n.announced[reason] {
		return
	}
	n.announced[reason] = true
	r.recorder.Eventf(owner, nil, corev1.EventTypeWarning, reason, "KeepSpread", "%s", message)
}

func foreignMessage(pods []spread.Pod) string {
	var names []string
	for i := range pods {
		if pods[i].Foreign {
			names = append(names, pods[i].Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("Another owner set %s on %d pods, such as %s. These costs stay, and only the other pods are ordered to keep the spread. Remove the annotation from the pods and their template to order all",
		corev1.PodDeletionCost, len(names), names[0])
}

func noRoomMessage(sets []string) string {
	if len(sets) == 0 {
		return ""
	}
	return fmt.Sprintf("The spread of ReplicaSet %s is not kept: the values of %s that other owners set leave no room for the other pods between them. Remove these values, or set them thousands apart",
		strings.Join(sets, ", "), corev1.PodDeletionCost)
}
