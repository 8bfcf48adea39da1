package routing

import (
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// errEnding is what the API server answers where something is to be made in a namespace
// that is being deleted.
var errEnding = &apierrors.StatusError{ErrStatus: metav1.Status{
	Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
	Message: "unable to create new content in namespace shop because it is being terminated",
	Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}},
}}

// A namespace that is being deleted while groups are to be made in it is no error,
// however long it takes, and nothing is tried again.
func TestNamespaceEnds(t *testing.T) {
	service := aService("web", v1alpha1.AnnotationSameZone, v1alpha1.Require, v1alpha1.AnnotationProxy, "true")
	w := newWorld(t, append(threeZones(), service, aSlice("web", 0, twelve))...)
	refused := 0
	w.refuse = func(object client.Object, _ string) error {
		if _, group := object.(*v1alpha1.EndpointGroup); group {
			refused++
			return errEnding
		}
		return nil
	}
	for range 3 {
		if result := w.sync("web"); result.RequeueAfter != 0 {
			t.Errorf("it is tried again after %s", result.RequeueAfter)
		}
		w.clock.SetTime(w.clock.Now().Add(failingReported))
	}
	if refused != 3 {
		t.Fatalf("%d groups were refused, want 3", refused)
	}
	if condition := w.condition("web"); condition != nil || len(w.told()) > 0 {
		t.Errorf("it is told: %+v", condition)
	}
}
