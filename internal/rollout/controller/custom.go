package controller

import (
	"context"
	"fmt"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/rollout"
)

const (
	// customTime is the interval of reading a workload of a kind that is not of Kubernetes.
	customTime = 10 * time.Second
	// lateTime is how long such a workload may create pods of an old revision after it has announced a new one.
	lateTime = time.Minute
)

// readCustom reads a workload by the contract in docs/rollouts.md. It reads live: a watch needs more rights, and fails for as long as the
// kind is not served.
func (r *reconciler) readCustom(ctx context.Context, d *v1alpha1.DomainRollout) (*target, error) {
	ref, w := d.Spec.TargetRef, &unstructured.Unstructured{}
	w.SetAPIVersion(ref.APIVersion)
	w.SetKind(ref.Kind)
	t := &target{object: w, kind: rollout.InPlace, isCustom: true}
	err := r.live.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: ref.Name}, w)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	var scale *autoscalingv1.Scale
	if err == nil {
		scale, err = shell.Scale(ctx, r.client, w)
	}
	switch {
	case meta.IsNoMatchError(err):
		t.problem = &problem{reasonKind, fmt.Sprintf("the cluster serves no %s of %s; install its CustomResourceDefinition, or make a DomainRollout with the right kind", ref.Kind, ref.APIVersion)}
	case apierrors.IsForbidden(err):
		t.problem = &problem{reasonForbidden, fmt.Sprintf("%v. Create a ClusterRole with this right and the label %s: \"true\"", err, v1alpha1.LabelAggregate)}
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		t.problem = &problem{reasonKind, fmt.Sprintf("%s %s has no subresource scale, so the number of its pods is unknown; add the subresource to its CustomResourceDefinition", ref.Kind, ref.Name)}
	case apierrors.IsInternalError(err) && w.GetUID() != "": // the object exists
		t.problem = &problem{reasonKind, fmt.Sprintf("the subresource scale of %s %s fails, so the number of its pods is unknown: %s; set its number of replicas", ref.Kind, ref.Name, plaintext.Of(err.Error()))}
	case err != nil:
		return nil, fmt.Errorf("reading %s %s/%s: %w", ref.Kind, d.Namespace, ref.Name, err)
	default:
		t.desired, t.problem = int(scale.Spec.Replicas), checkCustom(ref, w)
	}
	observed, _, _ := unstructured.NestedInt64(w.Object, "status", "observedGeneration")
	revision, _, _ := unstructured.NestedString(w.Object, "status", "updateRevision")
	if observed == w.GetGeneration() && len(validation.IsValidLabelValue(revision)) == 0 {
		t.revision = revision
	}
	return t, nil
}

// checkCustom says why a workload replaces pods in its own order, or replaces evicted ones by pods of an old revision. It is nil if it does
// neither.
func checkCustom(ref v1alpha1.RolloutTarget, w *unstructured.Unstructured) *problem {
	strategy, _, _ := unstructured.NestedMap(w.Object, "spec", "updateStrategy")
	if strategy["type"] != "OnDelete" && strategy["paused"] != true {
		p := notOnDelete(ref)
		p.message += ", or its spec.updateStrategy.paused to true"
		return p
	}
	switch partition := strategy["partition"]; partition {
	case nil, int64(0), "0", "0%":
		return nil
	default:
		return &problem{reasonStrategy, fmt.Sprintf("spec.updateStrategy.partition of %s %s is %s, so it replaces evicted pods by pods of the old revision; set it to 0", ref.Kind, ref.Name, plaintext.Of(fmt.Sprint(partition)))}
	}
}

// outdatedPod says that the workload created a pod of another revision than it announced. Without this check each eviction would make
// another such pod.
func (v *view) outdatedPod(d *v1alpha1.DomainRollout) *problem {
	if !v.isCustom || d.Status.Revision != v.revision {
		return nil
	}
	var began time.Time
	for _, h := range d.Status.History {
		switch rollout.EventType(h.Event) {
		case rollout.RolloutBegan, rollout.RolloutRestarted, rollout.RollbackBegan:
			began = h.Time.Time
		}
	}
	if began.IsZero() && len(d.Status.History) > 0 {
		began = d.Status.History[0].Time.Time // the beginning was cut off, and was earlier
	}
	for i := range v.state.Pods {
		p := &v.state.Pods[i]
		if began.IsZero() || p.Terminating || p.Revision == v.revision || !v.pods[p.UID].CreationTimestamp.After(began.Add(lateTime)) {
			continue
		}
		return &problem{reasonKind, fmt.Sprintf("%s %s created pod %s with the label controller-revision-hash=%q, and its status.updateRevision is %q. Correct its controller, then delete the pod",
			d.Spec.TargetRef.Kind, d.Spec.TargetRef.Name, p.Name, p.Revision, v.revision)}
	}
	return nil
}
