package controller

import (
	"context"
	"fmt"
	"net/http"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/names/location"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// CacheOptions returns the options of a manager's cache. It holds the objects that decisions need, and returns them
// uncopied, since reconcilers change none.
func CacheOptions(options Options) cache.Options {
	shared := true
	cached := cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}:                   {Transform: trimNode, UnsafeDisableDeepCopy: &shared},
			&corev1.Service{}:                {UnsafeDisableDeepCopy: &shared},
			&discoveryv1.EndpointSlice{}:     {UnsafeDisableDeepCopy: &shared},
			&v1alpha1.EndpointGroup{}:        {UnsafeDisableDeepCopy: &shared},
			&v1alpha1.RoutingPolicy{}:        {UnsafeDisableDeepCopy: &shared},
			&corev1.Namespace{}:              {Transform: trimNamespace, UnsafeDisableDeepCopy: &shared},
			&v1alpha1.ClusterRoutingPolicy{}: {UnsafeDisableDeepCopy: &shared},
			&v1alpha1.ZoneShift{}:            {UnsafeDisableDeepCopy: &shared},
		},
	}
	if !options.Settings.WithoutGroups {
		cached.ByObject[&coordinationv1.Lease{}] = leaseCache(options.Exclusion.Own)
	}
	return cached
}

// trimNode keeps the fields of a node that decisions, the hand-over, PodLocators and the published addresses need.
func trimNode(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil // a tombstone
	}
	trimmed := &corev1.Node{
		TypeMeta: node.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion,
			Labels: node.Labels, CreationTimestamp: node.CreationTimestamp, Annotations: location.Annotations(node),
		},
		Spec:   corev1.NodeSpec{Taints: intent.ControlPlaneTaints(node), PodCIDR: node.Spec.PodCIDR, PodCIDRs: node.Spec.PodCIDRs},
		Status: corev1.NodeStatus{Addresses: node.Status.Addresses},
	}
	for _, name := range countedResources {
		if quantity, found := node.Status.Allocatable[name]; found {
			if trimmed.Status.Allocatable == nil {
				trimmed.Status.Allocatable = corev1.ResourceList{}
			}
			trimmed.Status.Allocatable[name] = quantity
		}
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			trimmed.Status.Conditions = []corev1.NodeCondition{{
				Type: condition.Type, Status: condition.Status, LastTransitionTime: condition.LastTransitionTime,
			}}
		}
	}
	return trimmed, nil
}

// countedResources are the resources that capacity expressions can use.
var countedResources = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods}

// Indexes of slices and groups by their Service.
const (
	indexSliceService = "service"
	indexGroupService = "service"
)

func addIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &discoveryv1.EndpointSlice{}, indexSliceService, byLabel(discoveryv1.LabelServiceName)); err != nil {
		return fmt.Errorf("indexing EndpointSlices: %w", err)
	}
	if err := indexer.IndexField(ctx, &v1alpha1.EndpointGroup{}, indexGroupService, byLabel(v1alpha1.LabelService)); err != nil {
		return fmt.Errorf("indexing EndpointGroups: %w", err)
	}
	return nil
}

func byLabel(label string) client.IndexerFunc {
	return func(object client.Object) []string {
		if value := object.GetLabels()[label]; value != "" {
			return []string{value}
		}
		return nil
	}
}

// Synced returns a readiness check that fails until the cache has all objects for decisions.
func Synced(informers cache.Informers, options Options) func(*http.Request) error {
	objects := []client.Object{
		&corev1.Service{}, &discoveryv1.EndpointSlice{}, &corev1.Node{}, &v1alpha1.RoutingPolicy{}, &v1alpha1.EndpointGroup{},
		&v1alpha1.ClusterRoutingPolicy{}, &v1alpha1.ZoneShift{}, shell.NamespaceMetadata(),
	}
	if !options.Settings.WithoutGroups {
		objects = append(objects, &coordinationv1.Lease{})
	}
	return func(request *http.Request) error {
		for _, object := range objects {
			informer, err := informers.GetInformer(request.Context(), object, cache.BlockUntilSynced(false))
			if err != nil {
				return fmt.Errorf("watching %T: %w", object, err)
			}
			if !informer.HasSynced() {
				return fmt.Errorf("%T: not all are known yet", object)
			}
		}
		return nil
	}
}
