package shell

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"vicinity.dev/vicinity/test/rig"
)

func aService(labels map[string]string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: labels}}
}

// stored stores an object in a fake API server, and sets its resource version.
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
			if err := Patch(t.Context(), c, got, []Operation{Guard(read), SetLabel(read, label, test.value)}); err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(got.Labels) != test.want || got.ResourceVersion == read.ResourceVersion {
				t.Errorf("labels %v, version %s after %s; want %s", got.Labels, got.ResourceVersion, read.ResourceVersion, test.want)
			}
			// The object that was read is outdated now.
			if err := Patch(t.Context(), c, aService(nil), []Operation{Guard(read), SetLabel(read, label, "z")}); err == nil {
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

func TestConditions(t *testing.T) {
	service := aService(nil)
	other := metav1.Condition{Type: "Other", Status: metav1.ConditionTrue, Reason: "Fine"}
	service.Status.Conditions = []metav1.Condition{other}
	c := stored(t, service)
	shown := func() (list []string) {
		t.Helper()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(service), service); err != nil {
			t.Fatal(err)
		}
		for _, condition := range service.Status.Conditions {
			list = append(list, fmt.Sprintf("%s=%s", condition.Type, condition.Reason))
		}
		return list
	}
	for _, reason := range []string{"One", "Two"} {
		written := aService(nil)
		if err := WriteCondition(t.Context(), c, written, metav1.Condition{Type: "Mine", Status: metav1.ConditionTrue, Reason: reason}); err != nil {
			t.Fatal(err)
		}
		got := shown()
		if len(got) != 2 || !slices.Contains(got, "Mine="+reason) || written.ResourceVersion != service.ResourceVersion {
			t.Errorf("conditions %v, version %s, want %s", got, written.ResourceVersion, service.ResourceVersion)
		}
	}
	if err := RemoveCondition(t.Context(), c, aService(nil), "Mine"); err != nil {
		t.Fatal(err)
	}
	if got := shown(); len(got) != 1 || got[0] != "Other=Fine" {
		t.Errorf("conditions %v", got)
	}
	gone := aService(nil)
	gone.Name = "gone"
	if err := WriteCondition(t.Context(), c, gone, other); !errors.Is(err, ErrChanged) {
		t.Errorf("of an object that is gone: %v", err)
	}
}

func TestTransitions(t *testing.T) {
	begin, now := time.Unix(1000, 0), time.Unix(2000, 5)
	before := &metav1.Condition{Status: metav1.ConditionTrue, Reason: "One", LastTransitionTime: metav1.NewTime(begin)}
	for _, test := range []struct {
		name   string
		before *metav1.Condition
		status metav1.ConditionStatus
		want   time.Time
	}{
		{"new", nil, metav1.ConditionTrue, time.Unix(2000, 0)},
		{"the same status", before, metav1.ConditionTrue, begin},
		{"another status", before, metav1.ConditionFalse, time.Unix(2000, 0)},
	} {
		got := Transition(test.before, metav1.Condition{Status: test.status, Reason: "Two"}, now)
		if !got.LastTransitionTime.Time.Equal(test.want) || got.Reason != "Two" {
			t.Errorf("%s: %+v", test.name, got)
		}
	}
	later := *before
	later.LastTransitionTime = metav1.NewTime(now)
	if !SameCondition(before, &later) {
		t.Error("conditions that differ in time alone are not the same")
	}
	if later.Message = "x"; SameCondition(before, &later) {
		t.Error("conditions with different messages are the same")
	}
}

// IsChanged recognizes the API server's errors for a patch of an object that changed or is gone. An invalid patch is another error.
func TestGuardsOfTheAPIServer(t *testing.T) {
	c := rig.Start(t)
	objects, err := client.New(c.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	namespace, err := c.MakeNamespace(t.Context(), "guards-")
	if err != nil {
		t.Fatal(err)
	}
	c.Make(namespace, "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [{port: 80}]}}")
	read, err := c.CoreV1().Services(namespace).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stale, gone := read.DeepCopy(), read.DeepCopy()
	stale.ResourceVersion, gone.Name = "1", "gone"
	if err := Patch(t.Context(), objects, stale.DeepCopy(), []Operation{Guard(stale), SetLabel(stale, "a", "b")}); !IsChanged(err) {
		t.Errorf("an old resource version: %v", err)
	}
	if err := Patch(t.Context(), objects, gone.DeepCopy(), []Operation{Guard(gone), SetLabel(gone, "a", "b")}); !IsChanged(err) {
		t.Errorf("an object that is gone: %v", err)
	}
	if err := Patch(t.Context(), objects, read.DeepCopy(), []Operation{Guard(read), SetLabel(read, "a", "no value!")}); err == nil || IsChanged(err) {
		t.Errorf("a label that is not valid: %v", err)
	}
}
