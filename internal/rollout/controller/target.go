package controller

import (
	"context"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/rollout"
)

// Reasons of the condition Valid.
const (
	reasonValid       = "Valid"
	reasonNotFound    = v1alpha1.ReasonTargetNotFound
	reasonNotOnDelete = "NotOnDelete"
	reasonTooLarge    = "TooLarge"
	reasonStrategy    = "StrategyUnsupported"
	reasonNotGated    = "NotGated"
	reasonTaken       = "TargetTaken"
	reasonNoDomain    = "UnknownDomain"
	reasonKind        = "KindUnsupported"
	reasonForbidden   = "NotPermitted"
)

// maxPods bounds the pods of a target, because each step reads all of them.
const maxPods = 10_000

// problem says why a target cannot be updated.
type problem struct{ reason, message string }

// target is the workload of a DomainRollout.
type target struct {
	object client.Object
	// problem says why the controller of the workload replaces pods in its own order. It is nil if it does not.
	problem *problem
	kind    rollout.Kind
	// revision is the revision of new pods. It is empty while the workload's controller has not observed the last change.
	revision string
	isStuck  bool           // the workload's controller has not observed the last change for a long time
	slots    []rollout.Slot // of a StatefulSet
	desired  int            // pods
	// deployment is nil for other kinds.
	deployment *deployment
	isCustom   bool
}

// readTarget reads the workload. It returns nil if the workload does not exist.
func (r *reconciler) readTarget(ctx context.Context, reader client.Reader, d *v1alpha1.DomainRollout) (*target, error) {
	if rollout.IsCustom(d.Spec.TargetRef) {
		return r.readCustom(ctx, d)
	}
	return readTarget(ctx, reader, d)
}

// readTarget reads a workload of a kind of Kubernetes.
func readTarget(ctx context.Context, reader client.Reader, d *v1alpha1.DomainRollout) (*target, error) {
	key := client.ObjectKey{Namespace: d.Namespace, Name: d.Spec.TargetRef.Name}
	var object client.Object = &appsv1.StatefulSet{}
	switch d.Spec.TargetRef.Kind {
	case v1alpha1.KindDaemonSet:
		object = &appsv1.DaemonSet{}
	case v1alpha1.KindDeployment:
		object = &appsv1.Deployment{}
	}
	switch err := reader.Get(ctx, key, object); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading %s %s: %w", d.Spec.TargetRef.Kind, key, err)
	}
	t := &target{object: object, problem: notOnDelete(d.Spec.TargetRef)}
	var err error
	switch w := object.(type) {
	case *appsv1.StatefulSet:
		t.readStatefulSet(w)
	case *appsv1.DaemonSet:
		err = t.readDaemonSet(ctx, reader, w)
	case *appsv1.Deployment:
		err = t.readDeployment(ctx, reader, w)
	}
	return t, err
}

func (t *target) readStatefulSet(w *appsv1.StatefulSet) {
	if w.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
		t.problem = nil
	}
	t.kind = rollout.Ordered
	if w.Spec.PodManagementPolicy == appsv1.ParallelPodManagement {
		t.kind = rollout.InPlace
	}
	first, replicas := int(ptr.Deref(w.Spec.Ordinals, appsv1.StatefulSetOrdinals{}).Start), int(ptr.Deref(w.Spec.Replicas, 1))
	if t.desired = replicas; replicas > maxPods {
		return
	}
	for ordinal := first; ordinal < first+replicas; ordinal++ {
		t.slots = append(t.slots, rollout.Slot{Name: w.Name + "-" + strconv.Itoa(ordinal)})
	}
	if w.Status.ObservedGeneration == w.Generation {
		t.revision = w.Status.UpdateRevision
	}
}

// readDaemonSet finds the revision by its number: the revision of the template has the highest.
func (t *target) readDaemonSet(ctx context.Context, reader client.Reader, w *appsv1.DaemonSet) error {
	if w.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
		t.problem = nil
	}
	t.kind, t.desired = rollout.InPlace, int(w.Status.DesiredNumberScheduled)
	if w.Status.ObservedGeneration != w.Generation {
		return nil
	}
	var newest int64
	return eachRevision(ctx, reader, w, func(r *appsv1.ControllerRevision) {
		if r.Revision > newest {
			newest, t.revision = r.Revision, revisionName(r)
		}
	})
}

// eachRevision calls a function for each revision of a workload.
func eachRevision(ctx context.Context, reader client.Reader, owner client.Object, do func(*appsv1.ControllerRevision)) error {
	var list appsv1.ControllerRevisionList
	if err := reader.List(ctx, &list, client.InNamespace(owner.GetNamespace())); err != nil {
		return fmt.Errorf("reading the revisions of %s/%s: %w", owner.GetNamespace(), owner.GetName(), err)
	}
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], owner) {
			do(&list.Items[i])
		}
	}
	return nil
}

// revisionName returns a revision as in the label of pods: its name for a StatefulSet, otherwise its hash.
func revisionName(r *appsv1.ControllerRevision) string {
	if owner := metav1.GetControllerOfNoCopy(r); owner != nil && owner.Kind == v1alpha1.KindStatefulSet {
		return r.Name
	}
	return r.Labels[appsv1.ControllerRevisionHashLabelKey]
}

func notOnDelete(ref v1alpha1.RolloutTarget) *problem {
	return &problem{reasonNotOnDelete, fmt.Sprintf("%s %s replaces its pods by itself, without asking a budget; set its spec.updateStrategy.type to OnDelete", ref.Kind, ref.Name)}
}

// check says why a target cannot be updated, nil if it can.
func (r *reconciler) check(ctx context.Context, d *v1alpha1.DomainRollout, t *target) (*problem, error) {
	ref := d.Spec.TargetRef
	if t == nil {
		return &problem{reasonNotFound, fmt.Sprintf("there is no %s %s in namespace %s; make it, or delete this DomainRollout", ref.Kind, ref.Name, d.Namespace)}, nil
	}
	switch {
	case t.problem != nil:
		return t.problem, nil
	case t.desired > maxPods:
		return &problem{reasonTooLarge, fmt.Sprintf("%s %s has %d pods, but at most %d can be updated by domain; split it", ref.Kind, ref.Name, t.desired, maxPods)}, nil
	}
	var all v1alpha1.DomainRolloutList
	if err := r.client.List(ctx, &all, client.InNamespace(d.Namespace)); err != nil {
		return nil, fmt.Errorf("reading the DomainRollouts of %s: %w", d.Namespace, err)
	}
	for i := range all.Items {
		other := &all.Items[i]
		if other.UID == d.UID || rollout.Normal(other.Spec.TargetRef) != rollout.Normal(ref) || other.DeletionTimestamp != nil || !isBefore(other, d) {
			continue
		}
		return &problem{reasonTaken, fmt.Sprintf("%s %s is already updated by the older DomainRollout %s; delete one of them", ref.Kind, ref.Name, other.Name)}, nil
	}
	return nil, nil
}

// isBefore is the order of DomainRollouts with one target.
func isBefore(a, b *v1alpha1.DomainRollout) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}

// nodeOf returns the node that a pod is on, or must be on.
func nodeOf(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" || pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return pod.Spec.NodeName
	}
	required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		return ""
	}
	for _, term := range required.NodeSelectorTerms {
		for _, field := range term.MatchFields { // written by the DaemonSet controller
			if field.Key == metav1.ObjectNameField && field.Operator == corev1.NodeSelectorOpIn && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}
