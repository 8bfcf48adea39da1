package reservation

import (
	"context"
	"fmt"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/internal/coverage"
)

// scaleTrust is for how long the replicas of an owner are taken for what they were.
//
// Kubernetes' own kinds are in the cache, and are as late as it is. Either way, numbers that are
// late can only have an eviction judged as it would have been so much earlier: after a
// workload was scaled up, as if its new pods had not been asked for yet, and after it was scaled down,
// as if those that go were missed. They cannot have a pod counted that is down: pods and
// reservations are never taken from here.
const scaleTrust = 5 * time.Second

// scales asks for the replicas of owners of any kind, by their subresource scale. The right to
// get that is all that it takes: what else such objects hold is not read.
type scales struct {
	client client.SubResourceClientConstructor
	recent *expiring[scaleKey, coverage.Workload]
}

// scaleKey is all that an owner is asked for by: who makes a pod says what its owner is.
type scaleKey struct {
	namespace string
	coverage.Ref
}

func newScales(c client.SubResourceClientConstructor, now clock.Clock) *scales {
	return &scales{client: c, recent: newExpiring[scaleKey, coverage.Workload](now, scaleTrust)}
}

// of is an owner in a namespace, with the replicas that it asks for.
func (s *scales) of(ctx context.Context, namespace string, ref coverage.Ref) (coverage.Workload, error) {
	workload, err := s.recent.getOrRead(scaleKey{namespace, ref}, func() (coverage.Workload, error) { return s.read(ctx, namespace, ref) })
	if err != nil {
		return coverage.Workload{}, fmt.Errorf("reading the scale of %s: %w", ref.ID(), err)
	}
	return workload, nil
}

func (s *scales) read(ctx context.Context, namespace string, ref coverage.Ref) (coverage.Workload, error) {
	if len(content.IsPathSegmentName(ref.Name)) > 0 {
		return coverage.WithoutScale(ref), nil // no object has such a name, and none can be asked for
	}
	owner := &unstructured.Unstructured{}
	owner.SetAPIVersion(ref.APIVersion)
	owner.SetKind(ref.Kind)
	owner.SetNamespace(namespace)
	owner.SetName(ref.Name)
	// The client takes no typed subresource of an object of any kind.
	read := &unstructured.Unstructured{}
	err := s.client.SubResource("scale").Get(ctx, owner, read)
	var scale autoscalingv1.Scale
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(read.Object, &scale)
	}
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err), apierrors.IsMethodNotSupported(err):
		// The owner has gone, or its kind has no such subresource.
		return coverage.WithoutScale(ref), nil
	case err != nil:
		return coverage.Workload{}, err
	case scale.UID != "" && scale.UID != ref.UID:
		return coverage.WithoutScale(ref), nil // another one of the name
	}
	return coverage.OfScale(ref, scale.Spec.Replicas), nil
}
