package lab

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"vicinity.dev/vicinity/internal/kube"
)

var evictions = schema.GroupResource{Group: "policy", Resource: "evictions"}

// drained drains a node of one pod whose eviction is answered by the errors given, one
// after the other, and then granted.
func drained(t *testing.T, answers ...error) (log string, err error) {
	t.Helper()
	node, pod := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a-1"}}, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1"}, Spec: corev1.PodSpec{NodeName: "a-1"},
	}
	api := fake.NewClientset(node, pod)
	api.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		if len(answers) > 0 {
			answer := answers[0]
			answers = answers[1:]
			return true, nil, answer
		}
		return true, nil, api.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "default", "web")
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var text bytes.Buffer
	err = (&Client{&kube.Client{Interface: api}}).Drain(ctx, &text, "a-1")
	return text.String(), err
}

// A refusal by a budget is logged once, and the eviction is repeated.
func TestDrainWaitsForBudgets(t *testing.T) {
	refused := apierrors.NewTooManyRequests("the budget needs 2 healthy pods", 0)
	log, err := drained(t, refused, refused, errors.New("connection refused"), refused)
	if err != nil {
		t.Fatal(err)
	}
	want := "node a-1 cordoned\npod default/web not evicted yet: the budget needs 2 healthy pods\npod default/web evicted\n"
	if log != want {
		t.Errorf("it said %q, want %q", log, want)
	}
}

// What will never be granted is an error at once.
func TestDrainEndsWhereItMayNot(t *testing.T) {
	_, err := drained(t, apierrors.NewForbidden(evictions, "web", errors.New("no role")))
	if err == nil || !apierrors.IsForbidden(err) || !strings.HasPrefix(err.Error(), "evicting pod default/web: ") {
		t.Errorf("draining without the right to: %v", err)
	}
}
