package endpointslice

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// operation is one of a JSON patch. One that does not apply fails the request, whatever the
// failure policy, so each must be possible.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// set gives a member a value, or removes one that is there if it is not wanted.
func set(path string, value any, wanted bool) operation {
	if !wanted {
		return operation{Op: "remove", Path: path}
	}
	return operation{Op: "add", Path: path, Value: value}
}

// labelPath is where a slice has the label for routed slices, as patches write it.
const labelPath = "/metadata/labels/vicinity.dev~1routed"

// changes write the hints and the label that are kept. All else of the object stays as it is, and
// so do fields that this version of the API does not know.
func changes(object, kept *discoveryv1.EndpointSlice) (patch []operation) {
	for i := range object.Endpoints {
		if want := kept.Endpoints[i].Hints; !equality.Semantic.DeepEqual(object.Endpoints[i].Hints, want) {
			patch = append(patch, set(fmt.Sprintf("/endpoints/%d/hints", i), want, want != nil))
		}
	}
	if want := kept.Labels[v1alpha1.LabelRouted]; want != object.Labels[v1alpha1.LabelRouted] {
		patch = append(patch, set(labelPath, want, true))
	}
	return patch
}

// isRestored reports whether a slice with what is kept is the stored one but for its managed
// fields and the annotation of when its endpoints changed last. A write that changed anything else
// is never undone, so a slice with unknown fields does not count as restored: they may differ.
func isRestored(kept, stored *discoveryv1.EndpointSlice) bool {
	a, b := *kept, *stored
	a.ManagedFields, b.ManagedFields = nil, nil
	a.Annotations, b.Annotations = withoutTriggerTime(a.Annotations), withoutTriggerTime(b.Annotations)
	return equality.Semantic.DeepEqual(&a, &b)
}

func withoutTriggerTime(annotations map[string]string) map[string]string {
	rest := maps.Clone(annotations)
	delete(rest, corev1.EndpointsLastChangeTriggerTime)
	return rest
}

func restorations(object, stored *discoveryv1.EndpointSlice) (patch []operation) {
	if !maps.Equal(object.Annotations, stored.Annotations) {
		patch = append(patch, set("/metadata/annotations", stored.Annotations, len(stored.Annotations) > 0))
	}
	if !equality.Semantic.DeepEqual(object.ManagedFields, stored.ManagedFields) {
		patch = append(patch, set("/metadata/managedFields", stored.ManagedFields, len(stored.ManagedFields) > 0))
	}
	return patch
}
