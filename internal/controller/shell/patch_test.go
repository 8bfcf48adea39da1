package shell

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func aService(labels map[string]string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: labels}}
}

// stored is a client of one object, and the object as it is read.
func stored(t *testing.T, object client.Object) client.WithWatch {
	t.Helper()
	c := fake.NewClientBuilder().WithObjects(object).WithStatusSubresource(&corev1.Service{}).Build()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestLabelsAreSet(t *testing.T) {
	const label = "example.com/a~b"
	for _, test := range []struct {
		name, value string
		before      map[string]string
		want        string
	}{
		{"the first label", "x", nil, "map[example.com/a~b:x]"},
		{"one more label", "x", map[string]string{"c": "d"}, "map[c:d example.com/a~b:x]"},
		{"another value", "x", map[string]string{label: "y"}, "map[example.com/a~b:x]"},
		{"no label", "", map[string]string{label: "y", "c": "d"}, "map[c:d]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			read := aService(test.before)
			c := stored(t, read)
			got := aService(nil)
			if err := Patch(t.Context(), c, got, SetLabel(read, label, test.value)); err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(got.Labels) != test.want || got.ResourceVersion == read.ResourceVersion {
				t.Errorf("labels %v, version %s after %s; want %s", got.Labels, got.ResourceVersion, read.ResourceVersion, test.want)
			}
			// What was read is not what is stored any more.
			if err := Patch(t.Context(), c, aService(nil), SetLabel(read, label, "z")); err == nil {
				t.Error("the guard does not hold")
			}
		})
	}
}

func TestGuardedDeletions(t *testing.T) {
	read := aService(nil)
	c := stored(t, read)
	newer := read.DeepCopy()
	newer.Labels = map[string]string{"a": "b"}
	if err := c.Update(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	if err := Delete(t.Context(), c, read); !IsChanged(err) {
		t.Errorf("an object that changed: %v", err)
	}
	if err := Delete(t.Context(), c, newer); err != nil {
		t.Errorf("an object as it was read: %v", err)
	}
	if err := Delete(t.Context(), c, newer); !IsChanged(err) {
		t.Errorf("an object that is gone: %v", err)
	}
}

// failing answers all patches with the same error.
type failing struct{ err error }

func (f failing) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return f.err
}

func TestErrorsOfPatches(t *testing.T) {
	services := schema.GroupResource{Resource: "services"}
	unprocessable := func(message string, details *metav1.StatusDetails) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: message, Details: details,
		}}
	}
	const words = "the server rejected our request due to an error in our request"
	for _, test := range []struct {
		name    string
		err     error
		changed bool
	}{
		{"none", nil, false},
		{"a conflict", apierrors.NewConflict(services, "web", errors.New("no")), true},
		{"not found", apierrors.NewNotFound(services, "web"), true},
		{"a test that failed", unprocessable(words, nil), true},
		{"a test that failed, with details", unprocessable(words, &metav1.StatusDetails{}), true},
		{"a result that is invalid", unprocessable(words, &metav1.StatusDetails{Kind: "Service"}), false},
		{"a refusal by a webhook", unprocessable(`admission webhook "x" denied the request: no`, nil), false},
		{"forbidden", apierrors.NewForbidden(services, "web", errors.New("no")), false},
		{"another error", errors.New("no connection"), false},
	} {
		err := Patch(t.Context(), failing{test.err}, aService(nil), nil)
		if IsChanged(err) != test.changed || !test.changed && !errors.Is(err, test.err) {
			t.Errorf("%s: %v, want that it has changed: %t", test.name, err, test.changed)
		}
	}
}
