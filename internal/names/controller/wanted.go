package controller

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/names/location"
)

// wanted returns the PodLocator of a pod on a node, nil if the pod needs none. pod and node may be nil.
func wanted(pod *corev1.Pod, node *corev1.Node, keys labelKeys, mode Mode) *v1alpha1.PodLocator {
	if pod == nil || !location.HasOwnAddress(pod) || mode == Auto && node != nil && inRanges(pod, node) {
		return nil
	}
	created := pod.CreationTimestamp // a copy: the client writes into the object that it creates
	locator := &v1alpha1.PodLocator{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name,
			Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByController},
			// Not BlockOwnerDeletion, which needs rights to pods.
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
		},
		PodCreationTimestamp: &created,
	}
	for _, ip := range pod.Status.PodIPs {
		locator.IPs = append(locator.IPs, ip.IP)
	}
	if node != nil {
		locator.NodeName, locator.NodeLabels = node.Name, keys.of(node)
	}
	return locator
}

// inRanges reports whether all addresses of a pod lie in the ranges of its node.
func inRanges(pod *corev1.Pod, node *corev1.Node) bool {
	ranges := location.PodRanges(node)
	for _, ip := range pod.Status.PodIPs {
		address, err := netip.ParseAddr(ip.IP)
		if err != nil || !slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(address) }) {
			return false
		}
	}
	return true
}

// isUpToDate reports whether a PodLocator has the wanted content. It may have more labels of the node: an unused key is not worth a
// write for each pod.
func isUpToDate(locator, want *v1alpha1.PodLocator, node *corev1.Node) bool {
	if !isManaged(locator) || !slices.Equal(locator.IPs, want.IPs) || locator.NodeName != want.NodeName ||
		!locator.PodCreationTimestamp.Equal(want.PodCreationTimestamp) {
		return false
	}
	for key, value := range want.NodeLabels {
		if has, found := locator.NodeLabels[key]; !found || has != value {
			return false
		}
	}
	for key, value := range locator.NodeLabels {
		if node == nil {
			return false
		}
		if has, found := node.Labels[key]; !found || has != value {
			return false
		}
	}
	return true
}

// updated returns a PodLocator with the wanted content.
func updated(locator, want *v1alpha1.PodLocator) *v1alpha1.PodLocator {
	after := locator.DeepCopy()
	after.IPs, after.NodeName, after.NodeLabels = want.IPs, want.NodeName, maps.Clone(want.NodeLabels)
	after.PodCreationTimestamp = want.PodCreationTimestamp.DeepCopy()
	metav1.SetMetaDataLabel(&after.ObjectMeta, v1alpha1.LabelManagedBy, v1alpha1.ManagedByController)
	return after
}

// isManaged reports whether the controller made a PodLocator. Its pod may no longer own it: a pod can be deleted with
// propagationPolicy Orphan.
func isManaged(locator *v1alpha1.PodLocator) bool {
	return locator.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedByController
}

// isOwnedBy reports whether a pod is an owner of a PodLocator.
func isOwnedBy(locator *v1alpha1.PodLocator, pod *corev1.Pod) bool {
	return slices.ContainsFunc(locator.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.UID == pod.UID })
}
