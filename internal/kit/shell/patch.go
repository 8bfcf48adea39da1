// Package shell is the kit of the reconcilers: watches, notes, guarded writes, caches that are behind those writes, conditions,
// events, metrics, backoff, bursts of changes, and a health check for syncs that hang. It decides nothing.
package shell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrChanged reports that an object has changed since it was read, or is gone. The sync must start again from the cache.
var ErrChanged = errors.New("the object has changed")

// IsChanged reports whether an error is or wraps ErrChanged.
func IsChanged(err error) bool { return errors.Is(err, ErrChanged) }

// Operation is an operation of a JSON patch.
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Add sets a member, whether or not it exists.
func Add(path string, value any) Operation { return Operation{"add", path, value} }

// Replace sets a member that exists.
func Replace(path string, value any) Operation { return Operation{"replace", path, value} }

// Remove removes a member that exists.
func Remove(path string) Operation { return Operation{"remove", path, nil} }

// Test fails the patch unless a member has the value.
func Test(path string, value any) Operation { return Operation{"test", path, value} }

// Pointer makes the path of an operation. Names may contain slashes.
func Pointer(names ...string) string {
	path := ""
	for _, name := range names {
		path += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
	}
	return path
}

// Guard fails the patch unless the object is unchanged since it was read. A later object of the same name has another resource
// version, too.
func Guard(object client.Object) Operation {
	return Test("/metadata/resourceVersion", object.GetResourceVersion())
}

// SetLabel sets a label, or removes an existing one if the value is empty. A patch may set only one label this way: on an object without
// labels, a second one would replace the first.
func SetLabel(object client.Object, label, value string) Operation {
	return set("labels", object.GetLabels(), label, value)
}

// SetAnnotation is SetLabel for an annotation.
func SetAnnotation(object client.Object, annotation, value string) Operation {
	return set("annotations", object.GetAnnotations(), annotation, value)
}

func set(kind string, before map[string]string, name, value string) Operation {
	path := Pointer("metadata", kind, name)
	switch {
	case value == "":
		return Remove(path)
	case len(before) == 0:
		return Add(Pointer("metadata", kind), map[string]string{name: value})
	}
	return Add(path, value)
}

// patcher is the part of a client that patches.
type patcher interface {
	Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error
}

// Patch applies a guarded patch and updates the object to the stored one. It returns ErrChanged if the guard fails or the object is
// gone.
func Patch(ctx context.Context, c patcher, object client.Object, operations []Operation) error {
	body, err := json.Marshal(operations)
	if err != nil {
		return err
	}
	err = c.Patch(ctx, object, client.RawPatch(types.JSONPatchType, body))
	if isGuardFailed(err) {
		return ErrChanged
	}
	return Changed(err)
}

// deleter is the part of a client that deletes.
type deleter interface {
	Delete(context.Context, client.Object, ...client.DeleteOption) error
}

// Delete deletes an object that is unchanged since it was read. Otherwise it returns ErrChanged.
func Delete(ctx context.Context, c deleter, object client.Object) error {
	uid, version := object.GetUID(), object.GetResourceVersion()
	return Changed(c.Delete(ctx, object, client.Preconditions{UID: &uid, ResourceVersion: &version}))
}

// Changed maps a conflict or a missing object to ErrChanged. It is for writes that the API server checks for conflicts itself.
func Changed(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return ErrChanged
	}
	return err
}

// testFailed is the API server's whole message for a patch whose test fails. Other invalid patches have other messages: a broken rule
// names the field, and a refusal by a webhook names the webhook.
var testFailed = apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", "", 0, false).Status().Message

func isGuardFailed(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) {
		return false
	}
	details := status.Status().Details
	return (details == nil || details.Kind == "") && status.Status().Message == testFailed
}

// Annotate sets annotations of an object and removes those whose value is nil. It fails with a conflict if the stored object has
// another UID or, unless the read one has none, another resource version. Into written it puts the object as stored.
//
// It is a merge patch: a JSON patch depends on whether the object has any annotations, and the cache drops most of them from pods.
func Annotate(ctx context.Context, c patcher, read, written client.Object, annotations map[string]*string) error {
	metadata := map[string]any{"uid": read.GetUID(), "annotations": annotations}
	if version := read.GetResourceVersion(); version != "" {
		metadata["resourceVersion"] = version
	}
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	written.SetNamespace(read.GetNamespace())
	written.SetName(read.GetName())
	return c.Patch(ctx, written, client.RawPatch(types.MergePatchType, body))
}

// AnnotatePod is Annotate for a pod. It returns the pod as stored, and ErrChanged if the pod has changed or is gone.
func AnnotatePod(ctx context.Context, c patcher, pod *corev1.Pod, annotations map[string]*string) (*corev1.Pod, error) {
	written := &corev1.Pod{}
	return written, Changed(Annotate(ctx, c, pod, written, annotations))
}

// NamespaceMetadata makes an empty Namespace for reads and watches of metadata alone.
func NamespaceMetadata() *metav1.PartialObjectMetadata {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return namespace
}

// ReadNamespace reads the metadata of a namespace. With an error it returns empty metadata.
func ReadNamespace(ctx context.Context, c client.Reader, name string) (*metav1.PartialObjectMetadata, error) {
	namespace := NamespaceMetadata()
	if err := c.Get(ctx, types.NamespacedName{Name: name}, namespace); err != nil {
		return namespace, fmt.Errorf("reading Namespace %s: %w", name, err)
	}
	return namespace, nil
}

// Pointers returns pointers to the items of a list.
func Pointers[T any](items []T) []*T {
	list := make([]*T, len(items))
	for i := range items {
		list[i] = &items[i]
	}
	return list
}
