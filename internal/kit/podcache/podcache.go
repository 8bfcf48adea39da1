// Package podcache configures which pods a manager's cache has, and which fields. One cache of pods serves all features of a process.
// It keeps what the most demanding feature needs.
package podcache

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// Need is the need of a feature.
type Need int

// The needs. A greater one includes the smaller ones.
const (
	// Addresses needs the pods on a node that have their own addresses.
	Addresses Need = iota + 1
	// Disruption needs all pods, with the fields that evictions depend on.
	Disruption
)

// Add adds pods to a manager's cache, unless the cache already meets the need. The cache returns objects without a copy.
func Add(options *cache.Options, need Need) {
	for object, has := range options.ByObject {
		if _, ok := object.(*corev1.Pod); !ok {
			continue
		}
		if has.Field == nil {
			return // the cache has all pods
		}
		delete(options.ByObject, object)
	}
	shared := true
	by := cache.ByObject{Transform: keepDisruption, UnsafeDisableDeepCopy: &shared}
	if need == Addresses {
		// A finished pod counts as deleted: it has released its addresses.
		by.Transform, by.Field = keepLocation, fields.AndSelectors(
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

// keepLocation keeps the fields that locate a pod.
func keepLocation(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil // a tombstone
	}
	return copyLocation(pod), nil
}

func copyLocation(pod *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, CreationTimestamp: pod.CreationTimestamp,
		},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName, HostNetwork: pod.Spec.HostNetwork},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, PodIPs: pod.Status.PodIPs},
	}
}

// keepDisruption also keeps the fields that evictions and the ranking of ReplicaSets depend on.
func keepDisruption(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil // a tombstone
	}
	kept := copyLocation(pod)
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
			// Messages and probe times are unused, and differ for each pod.
			kept.Status.Conditions = append(kept.Status.Conditions, corev1.PodCondition{
				Type: condition.Type, Status: condition.Status, Reason: condition.Reason, LastTransitionTime: condition.LastTransitionTime,
			})
		}
	}
	return kept, nil
}
