// Package scheduling asks Kubernetes' own rules which nodes a pod fits.
package scheduling

import (
	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
)

// IsKeptOff reports whether a taint keeps a pod off a node: any that the function accepts, or any at all without one.
func IsKeptOff(spec *corev1.PodSpec, node *corev1.Node, accepts func(*corev1.Taint) bool) bool {
	_, found := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, spec.Tolerations, func(taint *corev1.Taint) bool {
		return taint.Effect != corev1.TaintEffectPreferNoSchedule && (accepts == nil || accepts(taint))
	}, true)
	return found
}
