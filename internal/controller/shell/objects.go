package shell

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// IsReady reports whether a pod is ready.
func IsReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// AnnotatePod gives a pod annotations, and takes those off that are nil. It returns the pod as the API server stores it. The error is
// ErrChanged if the pod is not what it was when it was read. The cache keeps few annotations of a pod, so that it does not tell
// whether there are any, which a JSON patch has to know.
func AnnotatePod(ctx context.Context, c patcher, pod *corev1.Pod, annotations map[string]*string) (*corev1.Pod, error) {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "resourceVersion": pod.ResourceVersion, "annotations": annotations,
	}})
	if err != nil {
		return nil, err
	}
	written := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	return written, Changed(c.Patch(ctx, written, client.RawPatch(types.MergePatchType, body)))
}

// ReadNamespace reads the metadata of a namespace. They are empty beside an error.
func ReadNamespace(ctx context.Context, c client.Reader, name string) (*metav1.PartialObjectMetadata, error) {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := c.Get(ctx, types.NamespacedName{Name: name}, namespace); err != nil {
		return namespace, fmt.Errorf("reading Namespace %s: %w", name, err)
	}
	return namespace, nil
}
