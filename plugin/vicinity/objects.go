package vicinity

import (
	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/location"
)

// setNode locates clients by a node: those on its own network, and pods in its ranges.
func (c *cluster) setNode(n *corev1.Node) {
	node := location.OfNode(n)
	if len(node.Addresses) == 0 && len(n.Status.Addresses) > 0 || len(node.PodRanges) == 0 && len(n.Spec.PodCIDRs) > 0 && !location.IgnoresPodCIDRs(n) {
		malformedCount.WithLabelValues(resourceNodes).Inc()
	}
	c.where.SetNode(n.Name, node)
}

// setLocator locates a pod.
func (c *cluster) setLocator(l *v1alpha1.PodLocator) {
	pod := location.OfPod(l)
	if l.DeletionTimestamp == nil && len(pod.IPs) < len(l.IPs) {
		malformedCount.WithLabelValues(resourceLocators).Inc()
	}
	c.where.SetPod(l.Namespace, l.Name, pod)
}
