package routing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/routing"
)

// errChanged says that an object is not what it was when it was read. Reading it
// again is all there is to do.
var errChanged = errors.New("the object has changed")

func isChanged(err error) bool { return errors.Is(err, errChanged) }

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// guard is the operation that fails unless the object is the one that was read.
func guard(object client.Object) operation {
	return operation{"test", "/metadata/resourceVersion", object.GetResourceVersion()}
}

// hintPatch changes the hints of a slice's endpoints where they differ, what the slice
// says of those that are held, its label, and nothing else. Endpoints have no names, only places: the guard makes sure of them.
func hintPatch(write routing.Write) []operation {
	patch := []operation{guard(write.Slice)}
	for i := range write.Endpoints {
		before, after := write.Slice.Endpoints[i].Hints, write.Endpoints[i].Hints
		if before == after {
			continue
		}
		path := fmt.Sprintf("/endpoints/%d/hints", i)
		switch {
		case after != nil && before != nil:
			patch = append(patch, operation{"replace", path, after})
		case after != nil:
			patch = append(patch, operation{"add", path, after})
		default:
			patch = append(patch, operation{"remove", path, nil})
		}
	}
	return append(append(patch, heldPatch(write)...), markPatch(write)...)
}

// markPatch gives a slice the label for routed slices, or takes it off, where Kubernetes
// does not copy it. A slice of a Service has labels.
func markPatch(write routing.Write) []operation {
	path := "/metadata/labels/" + strings.ReplaceAll(v1alpha1.LabelRouted, "/", "~1")
	switch {
	case !routing.IsForeign(write.Slice) || write.Marked == routing.IsMarked(write.Slice):
		return nil
	case write.Marked:
		return []operation{{"add", path, "true"}}
	}
	return []operation{{"remove", path, nil}}
}

// heldPatch brings the annotation of a slice to what it should be.
func heldPatch(write routing.Write) []operation {
	before, found := write.Slice.Annotations[v1alpha1.AnnotationHeld]
	// The slash of a key is written like this in a path.
	path := "/metadata/annotations/" + strings.ReplaceAll(v1alpha1.AnnotationHeld, "/", "~1")
	switch {
	case write.Held == before:
		return nil
	case write.Held == "":
		return []operation{{"remove", path, nil}}
	case found || len(write.Slice.Annotations) > 0:
		return []operation{{"add", path, write.Held}}
	}
	return []operation{{"add", "/metadata/annotations", map[string]string{v1alpha1.AnnotationHeld: write.Held}}}
}

// writeHints makes one write and returns what is stored then.
func (r *reconciler) writeHints(ctx context.Context, write routing.Write) (*discoveryv1.EndpointSlice, error) {
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: write.Slice.Namespace, Name: write.Slice.Name}}
	if err := patch(ctx, r.client, slice, hintPatch(write)); err != nil {
		return nil, fmt.Errorf("writing hints of EndpointSlice %s: %w", write.Slice.Name, err)
	}
	return slice, nil
}

// patch applies a guarded patch to an object, which becomes what the API server says
// it is then. The error is errChanged if the guard fails or the object is gone.
func patch(ctx context.Context, c client.Client, object client.Object, operations []operation) error {
	body, err := json.Marshal(operations)
	if err != nil {
		return err
	}
	err = c.Patch(ctx, object, client.RawPatch(types.JSONPatchType, body))
	if guardFailed(err) {
		return errChanged
	}
	return err
}

// testFailed is what an API server answers to a patch whose test fails. It does not say
// more, and uses the words for nothing else that it finds invalid: of a result that
// breaks a rule it says which field of what, and of one that an admission webhook
// refuses, which webhook.
var testFailed = apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", "", 0, false).Status().Message

// guardFailed recognizes a test that failed. What it does not recognize is an error,
// after which the next attempt comes later and later.
func guardFailed(err error) bool {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) {
		return false
	}
	details := status.Status().Details
	return (details == nil || details.Kind == "") && status.Status().Message == testFailed
}

// behind reports whether an object in a cache is older than a write.
func behind(object client.Object, written string) bool {
	if written == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), written)
	return err == nil && order < 0
}

// pointers makes a list of pointers to the items of a list.
func pointers[T any](items []T) []*T {
	list := make([]*T, len(items))
	for i := range items {
		list[i] = &items[i]
	}
	return list
}

// serviceObject is an empty Service to read a response into.
func serviceObject(service *corev1.Service) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: service.Namespace, Name: service.Name}}
}
