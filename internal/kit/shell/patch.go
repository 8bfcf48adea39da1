// Package shell is the kit of the reconcilers: watches, notes of what they sync, writes that do not overwrite what they have not
// seen, caches that are behind those writes, objects that end, conditions, events, metrics, waiting, bursts of changes, and a
// health check of syncs that hang. It decides nothing.
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

// ErrChanged says that an object is not what it was when it was read, or is gone. The
// sync has to begin again with what the cache will show.
var ErrChanged = errors.New("the object has changed")

// IsChanged reports whether an error is or wraps ErrChanged.
func IsChanged(err error) bool { return errors.Is(err, ErrChanged) }

// Operation is one of a JSON patch.
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Add is the operation that gives a member a value, whether or not it has one.
func Add(path string, value any) Operation { return Operation{"add", path, value} }

// Replace is the operation that gives a member that is there another value.
func Replace(path string, value any) Operation { return Operation{"replace", path, value} }

// Remove is the operation that takes a member away that is there.
func Remove(path string) Operation { return Operation{"remove", path, nil} }

// Test is the operation that fails unless a member has a value.
func Test(path string, value any) Operation { return Operation{"test", path, value} }

// Pointer is the path of an operation to a member, whose names may have slashes.
func Pointer(names ...string) string {
	path := ""
	for _, name := range names {
		path += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
	}
	return path
}

// Guard is the operation that fails unless the object is still the one that was read. An
// object of the same name that was made later has another resource version, too.
func Guard(object client.Object) Operation {
	return Test("/metadata/resourceVersion", object.GetResourceVersion())
}

// SetLabel is a guarded patch that gives an object a label, or takes one that it has off if
// there is no value.
func SetLabel(object client.Object, label, value string) []Operation {
	return set(object, "labels", object.GetLabels(), label, value)
}

// SetAnnotation is SetLabel for an annotation.
func SetAnnotation(object client.Object, annotation, value string) []Operation {
	return set(object, "annotations", object.GetAnnotations(), annotation, value)
}

func set(object client.Object, kind string, before map[string]string, name, value string) []Operation {
	path := Pointer("metadata", kind, name)
	change := Add(path, value)
	switch {
	case value == "":
		change = Remove(path)
	case before == nil:
		change = Add(Pointer("metadata", kind), map[string]string{name: value})
	}
	return []Operation{Guard(object), change}
}

// patcher is the part of a client that patches.
type patcher interface {
	Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error
}

// Patch applies a guarded patch to an object, which becomes what the API server stores. The
// error is ErrChanged if the guard fails or the object is gone.
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

// Delete deletes an object if it is the one that was read. The error is ErrChanged if it
// is not.
func Delete(ctx context.Context, c deleter, object client.Object) error {
	uid, version := object.GetUID(), object.GetResourceVersion()
	return Changed(c.Delete(ctx, object, client.Preconditions{UID: &uid, ResourceVersion: &version}))
}

// Changed is the error of a write that the API server checks for conflicts by itself:
// ErrChanged for a conflict or an object that is gone.
func Changed(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return ErrChanged
	}
	return err
}

// testFailed is what an API server answers to a patch whose test fails. It does not say
// more, and uses the words for nothing else that it finds invalid: of a result that
// breaks a rule it says which field of what, and of one that an admission webhook
// refuses, which webhook.
var testFailed = apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", "", 0, false).Status().Message

// isGuardFailed recognizes a test that failed.
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
