// Package podcache says which pods a manager's cache has, and what of each. One cache of pods
// serves all features of a process, and no feature gets less than it needs from another's choice.
package podcache

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// Need is what a feature needs of pods.
type Need int

// The needs. The greater has all of the smaller.
const (
	// Addresses are those of pods with addresses of their own on a node.
	Addresses Need = iota + 1
	// Disruption is all pods, with what says whether they may be evicted.
	Disruption
)

// Add adds pods to a manager's cache, unless it has what is needed already. Objects are handed
// out uncopied.
func Add(options *cache.Options, need Need) {
	for object, has := range options.ByObject {
		if _, ok := object.(*corev1.Pod); !ok {
			continue
		}
		if has.Field == nil {
			return // all of them
		}
		delete(options.ByObject, object)
	}
	shared := true
	by := cache.ByObject{Transform: trimmed, UnsafeDisableDeepCopy: &shared}
	if need == Addresses {
		// A pod that finishes is as one that is deleted: it has given its addresses back.
		by.Transform, by.Field = located, fields.AndSelectors(
			fields.OneTermEqualSelector("spec.hostNetwork", "false"),
			fields.OneTermNotEqualSelector("spec.nodeName", ""),
			fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
			fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
		)
	}
	if options.ByObject == nil {
		options.ByObject = map[client.Object]cache.ByObject{}
	}
	options.ByObject[&corev1.Pod{}] = by
}

// located keeps of a pod what says where it is.
func located(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil // a tombstone
	}
	return where(pod), nil
}

func where(pod *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, CreationTimestamp: pod.CreationTimestamp,
		},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName, HostNetwork: pod.Spec.HostNetwork},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, PodIPs: pod.Status.PodIPs},
	}
}

// trimmed keeps of a pod besides what says whether it may be evicted, by whom, and when its ReplicaSet
// deletes it.
func trimmed(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil // a tombstone
	}
	kept := where(pod)
	kept.Labels, kept.OwnerReferences, kept.DeletionTimestamp = pod.Labels, pod.OwnerReferences, pod.DeletionTimestamp
	kept.Spec.NodeSelector, kept.Spec.SchedulingGroup = pod.Spec.NodeSelector, pod.Spec.SchedulingGroup
	if affinity := pod.Spec.Affinity; affinity != nil && affinity.NodeAffinity != nil {
		kept.Spec.Affinity = &corev1.Affinity{NodeAffinity: affinity.NodeAffinity}
	}
	kept.Spec.EvictionResponders, kept.Spec.SchedulingGates = pod.Spec.EvictionResponders, pod.Spec.SchedulingGates
	kept.Annotations = v1alpha1.OwnAnnotations(pod.Annotations)
	if cost, found := pod.Annotations[corev1.PodDeletionCost]; found {
		if kept.Annotations == nil {
			kept.Annotations = map[string]string{}
		}
		kept.Annotations[corev1.PodDeletionCost] = cost
	}
	for i := range pod.Status.Conditions {
		switch condition := pod.Status.Conditions[i]; condition.Type {
		case corev1.PodReady, corev1.PodScheduled, corev1.DisruptionTarget:
			// Messages and probe times are of no use here, and differ for each pod.
			kept.Status.Conditions = append(kept.Status.Conditions, corev1.PodCondition{
				Type: condition.Type, Status: condition.Status, Reason: condition.Reason, LastTransitionTime: condition.LastTransitionTime,
			})
		}
	}
	return kept, nil
}
