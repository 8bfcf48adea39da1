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

// scaleTrust is how long a read of an owner's replicas counts.
//
// Kubernetes' own kinds come from the cache, which may be late as well. A late number judges an eviction as if it had
// been asked for that much earlier: new pods of a scaled-up workload are not expected yet, and pods that go in a
// scale-down count as missing. No pod that is down counts as healthy for that, since pods and reservations are never
// read here.
const scaleTrust = 5 * time.Second

// scales reads the replicas of owners of any kind by their subresource scale, which takes the right to get that and
// nothing else.
type scales struct {
	client client.SubResourceClientConstructor
	recent *expiring[scaleKey, coverage.Workload]
}

// scaleKey has all of an owner that its pods name: whoever makes a pod chooses it.
type scaleKey struct {
	namespace string
	coverage.Ref
}

func newScales(c client.SubResourceClientConstructor, now clock.Clock) *scales {
	return &scales{client: c, recent: newExpiring[scaleKey, coverage.Workload](now, scaleTrust)}
}

// of reads an owner with its replicas.
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
	// The client has no typed subresource for objects of any kind.
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
