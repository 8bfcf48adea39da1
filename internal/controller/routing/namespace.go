package routing

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/translate"
)

// aNamespace is a Namespace of which only the metadata is read.
func aNamespace() *metav1.PartialObjectMetadata {
	object := new(metav1.PartialObjectMetadata)
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return object
}

// trimNamespace keeps of a namespace its labels, and the annotations by which it asks for something.
func trimNamespace(object any) (any, error) {
	namespace, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object, nil // a tombstone
	}
	return &metav1.PartialObjectMetadata{
		TypeMeta: namespace.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Name: namespace.Name, UID: namespace.UID, ResourceVersion: namespace.ResourceVersion,
			Labels: namespace.Labels, Annotations: v1alpha1.OwnAnnotations(namespace.Annotations), DeletionTimestamp: namespace.DeletionTimestamp,
		},
	}, nil
}

// defaults are the ClusterRoutingPolicies that choose a namespace, none while the cache does
// not have it: its event requeues the Services.
func defaults(ctx context.Context, c client.Reader, namespace string) ([]*v1alpha1.ClusterRoutingPolicy, error) {
	policies, err := clusterPolicies(ctx, c)
	if err != nil || len(policies) == 0 {
		return nil, err
	}
	found := aNamespace()
	if err := c.Get(ctx, types.NamespacedName{Name: namespace}, found); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading the namespace: %w", err)
	}
	return translate.ForNamespace(policies, found.Labels), nil
}

func clusterPolicies(ctx context.Context, c client.Reader) ([]*v1alpha1.ClusterRoutingPolicy, error) {
	var list v1alpha1.ClusterRoutingPolicyList
	if err := c.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("reading ClusterRoutingPolicies: %w", err)
	}
	return pointers(list.Items), nil
}

// namespaceHandler requeues the Services of a namespace that other ClusterRoutingPolicies
// choose than before, and those of a new one, which may be cached after them.
func (r *reconciler) namespaceHandler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			r.chosenAnew(ctx, e.Object, func([]*v1alpha1.ClusterRoutingPolicy) []*v1alpha1.ClusterRoutingPolicy { return nil }, q)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			r.chosenAnew(ctx, e.ObjectNew, func(all []*v1alpha1.ClusterRoutingPolicy) []*v1alpha1.ClusterRoutingPolicy {
				return translate.ForNamespace(all, e.ObjectOld.GetLabels())
			}, q)
		},
	}
}

func (r *reconciler) chosenAnew(ctx context.Context, namespace client.Object, before func(all []*v1alpha1.ClusterRoutingPolicy) []*v1alpha1.ClusterRoutingPolicy, q queue) {
	all, err := clusterPolicies(ctx, r.client)
	if err != nil {
		log.FromContext(ctx).Error(err, "looking at a namespace", "namespace", namespace.GetName())
		return
	}
	if slices.Equal(translate.ForNamespace(all, namespace.GetLabels()), before(all)) {
		return
	}
	for _, request := range r.servicesOf(ctx, client.InNamespace(namespace.GetName())) {
		q.Add(request)
	}
}

func (r *reconciler) servicesOfClusterPolicy(ctx context.Context, object client.Object) []reconcile.Request {
	policy, ok := object.(*v1alpha1.ClusterRoutingPolicy)
	if !ok {
		return nil
	}
	namespaces := &metav1.PartialObjectMetadataList{}
	namespaces.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := r.client.List(ctx, namespaces); err != nil {
		return nil // the cache has not started, and will list them all
	}
	chosen := map[string]bool{}
	for i := range namespaces.Items {
		namespace := &namespaces.Items[i]
		chosen[namespace.Name] = len(translate.ForNamespace([]*v1alpha1.ClusterRoutingPolicy{policy}, namespace.Labels)) > 0
	}
	return slices.DeleteFunc(r.servicesOf(ctx), func(request reconcile.Request) bool { return !chosen[request.Namespace] })
}
