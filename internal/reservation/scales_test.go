package reservation

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/internal/coverage"
)

// scaled has subresources scale, as far as a function says so.
type scaled struct {
	client.SubResourceClient
	asked int
	get   func(*autoscalingv1.Scale) error
}

func (s *scaled) SubResource(string) client.SubResourceClient { return s }

func (s *scaled) Get(_ context.Context, owner client.Object, scale client.Object, _ ...client.SubResourceGetOption) error {
	s.asked++
	if named := owner.(*unstructured.Unstructured); named.GetKind() != "Cache" || named.GetNamespace() != shop || named.GetName() != "db" {
		return errors.New("another object")
	}
	into, ok := scale.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("the client does not read a %T of an object of any kind", scale)
	}
	var known autoscalingv1.Scale
	if err := s.get(&known); err != nil {
		return err
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&known)
	into.Object = object
	return err
}

func TestScales(t *testing.T) {
	ref := coverage.Ref{APIVersion: "example.com/v1", Kind: "Cache", Name: "db", UID: "u"}
	resource := schema.GroupResource{Group: "example.com", Resource: "caches"}
	for name, test := range map[string]struct {
		uid  types.UID
		err  error
		want coverage.Workload
		fail bool
	}{
		"so many":       {"u", nil, coverage.OfScale(ref, 7), false},
		"another owner": {"other", nil, coverage.WithoutScale(ref), false},
		"no owner":      {"", apierrors.NewNotFound(resource, "db"), coverage.WithoutScale(ref), false},
		"no kind":       {"", &meta.NoKindMatchError{}, coverage.WithoutScale(ref), false},
		"no right":      {"", apierrors.NewForbidden(resource, "db", nil), coverage.Workload{}, true},
		"no answer":     {"", errLost, coverage.Workload{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			server := newServer(t)
			of := &scaled{get: func(scale *autoscalingv1.Scale) error {
				scale.UID, scale.Spec.Replicas = test.uid, 7
				return test.err
			}}
			s := newScales(of, server.clock)
			for range 2 {
				if got, err := s.of(t.Context(), shop, ref); !reflect.DeepEqual(got, test.want) || (err != nil) != test.fail {
					t.Errorf("%+v, %v", got, err)
				}
			}
			server.clock.SetTime(start.Add(scaleTrust))
			_, _ = s.of(t.Context(), shop, ref)
			if want := map[bool]int{false: 2, true: 3}[test.fail]; of.asked != want {
				t.Errorf("the API server was asked %d times, want %d", of.asked, want)
			}
		})
	}
}

// An owner of a name that no object has is none, and does not keep pods for ever.
func TestOwnerOfNoName(t *testing.T) {
	server := newServer(t)
	s := newScales(&scaled{}, server.clock)
	for _, name := range []string{"a/b", "..", "a%b"} {
		ref := coverage.Ref{APIVersion: "example.com/v1", Kind: "Cache", Name: name, UID: "u"}
		if got, err := s.of(t.Context(), shop, ref); !reflect.DeepEqual(got, coverage.WithoutScale(ref)) || err != nil {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// Anyone who can create pods can invent owners of theirs. A hundred are asked, and the pods of the others are expected as they are.
func TestOwnersAreBounded(t *testing.T) {
	_, r, first, _ := started(t)
	of := &scaled{get: func(*autoscalingv1.Scale) error {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "caches"}, "db")
	}}
	r.world.scales.client = of
	for i := range 2 * coverage.MostOwners {
		pod := aPod(10+i, 20)
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Cache", Name: "db", UID: types.UID(fmt.Sprint(i)), Controller: new(true)}}
		if r.sees(pod); i == 0 {
			pod.Status.Phase = corev1.PodSucceeded
		}
	}
	r.want(first, "x", true)
	if of.asked != coverage.MostOwners {
		t.Errorf("%d owners are asked", of.asked)
	}
	report, err := r.Refresh(t.Context(), types.NamespacedName{Namespace: shop, Name: "web"}, none)
	if err != nil {
		t.Fatal(err)
	}
	found := coverage.Findings(report.World, report.State, report.Measures)
	if len(found) != 1 || !strings.Contains(found[0].Message, "counted as they are") {
		t.Errorf("what is said is %+v", found)
	}
	if report.Measures.Expected != 2+2*coverage.MostOwners-1 {
		t.Errorf("%d pods are expected", report.Measures.Expected)
	}
}
