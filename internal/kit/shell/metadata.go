package shell

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NewNamespaceMetadata returns an object to read the metadata of a Namespace into, which is all that
// the cache has.
func NewNamespaceMetadata() *metav1.PartialObjectMetadata {
	object := new(metav1.PartialObjectMetadata)
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return object
}
