package routing

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/controller/shell"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/translate"
)

// policyPause is how long changes are collected before a policy's status is written: thousands
// of Services can follow one policy.
const policyPause = time.Second

// policyRequests are how the syncs of Services and nodes ask for a look at policies: by the
// work queue of the controller of policies, which holds each policy once.
type policyRequests struct{ queue atomic.Pointer[queue] }

// start takes the queue. Nothing that was asked for before is lost: the controller looks at
// all policies when it starts.
func (p *policyRequests) start(_ context.Context, q queue) error {
	p.queue.Store(&q)
	return nil
}

func (p *policyRequests) ask(policy types.NamespacedName) {
	if q := p.queue.Load(); q != nil && policy.Name != "" {
		(*q).AddAfter(reconcile.Request{NamespacedName: policy}, policyPause)
	}
}

// computedPolicies are those whose capacity is computed from the nodes. Nothing else in the
// status of a policy depends on nodes.
func computedPolicies(ctx context.Context, c client.Reader) ([]types.NamespacedName, error) {
	var list v1alpha1.RoutingPolicyList
	if err := c.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("reading RoutingPolicies: %w", err)
	}
	var clusterList v1alpha1.ClusterRoutingPolicyList
	if err := c.List(ctx, &clusterList); err != nil {
		return nil, fmt.Errorf("reading ClusterRoutingPolicies: %w", err)
	}
	var computed []types.NamespacedName
	for i := range list.Items {
		if list.Items[i].Spec.Capacity.Type == v1alpha1.CapacityExpression {
			computed = append(computed, client.ObjectKeyFromObject(&list.Items[i]))
		}
	}
	for i := range clusterList.Items {
		if clusterList.Items[i].Spec.Capacity.Type == v1alpha1.CapacityExpression {
			computed = append(computed, client.ObjectKeyFromObject(&clusterList.Items[i]))
		}
	}
	return computed, nil
}

type policyReconciler struct {
	*reconciler
	written map[types.NamespacedName]*shell.Written
}

func newPolicyReconciler(r *reconciler) *policyReconciler {
	return &policyReconciler{reconciler: r, written: map[types.NamespacedName]*shell.Written{}}
}

func (r *reconciler) addPolicies(mgr manager.Manager) error {
	p := newPolicyReconciler(r)
	warm := true
	return builder.ControllerManagedBy(mgr).
		Named("routingpolicy").
		For(&v1alpha1.RoutingPolicy{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.ClusterRoutingPolicy{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Func(r.policies.start)).
		WithOptions(controller.Options{EnableWarmup: &warm}).
		Complete(p)
}

// Reconcile updates the status of one policy.
func (p *policyReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	policy := newPolicy(request.NamespacedName)
	defer p.syncs.Begin(policy.kind + " " + strings.TrimPrefix(request.String(), "/"))()
	if err := p.client.Get(ctx, request.NamespacedName, policy.object); err != nil {
		if apierrors.IsNotFound(err) {
			delete(p.written, request.NamespacedName)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	now := p.clock.Now()
	if last := p.written[request.NamespacedName]; last != nil && last.Pending(policy.object, now) {
		return reconcile.Result{RequeueAfter: policyPause}, nil
	}
	status, err := p.status(ctx, policy)
	if err != nil {
		return reconcile.Result{}, err
	}
	if equality.Semantic.DeepEqual(status, *policy.status) {
		return reconcile.Result{}, nil
	}
	body, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return reconcile.Result{}, err
	}
	written := newPolicy(request.NamespacedName).object
	written.SetNamespace(request.Namespace)
	written.SetName(request.Name)
	err = p.client.Status().Patch(ctx, written, client.RawPatch(types.MergePatchType, body))
	switch {
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("writing the status of the policy: %w", err)
	}
	last := new(shell.Written)
	last.Note(written, now)
	p.written[request.NamespacedName] = last
	return reconcile.Result{}, nil
}

func (p *policyReconciler) followers(ctx context.Context, policy types.NamespacedName) (n int32, err error) {
	var services corev1.ServiceList
	if err := p.client.List(ctx, &services, client.InNamespace(policy.Namespace)); err != nil {
		return 0, fmt.Errorf("reading Services: %w", err)
	}
	for i := range services.Items {
		service := &services.Items[i]
		if service.DeletionTimestamp != nil || p.options.Exclusion.Reason(service.Namespace, service.Name) != "" {
			continue
		}
		in, err := read(ctx, p.client, service)
		if err != nil {
			return 0, err
		}
		in.Settings = p.options.Settings
		request := routing.RequestOf(in)
		if policyOf(client.ObjectKeyFromObject(service), &request) == policy {
			n++
		}
	}
	return n, nil
}

type anyPolicy struct {
	kind   string
	object client.Object
	status *v1alpha1.RoutingPolicyStatus
	read   func() translate.Policy
}

func newPolicy(key types.NamespacedName) *anyPolicy {
	if key.Namespace == "" {
		policy := new(v1alpha1.ClusterRoutingPolicy)
		return &anyPolicy{"ClusterRoutingPolicy", policy, &policy.Status, func() translate.Policy { return translate.ReadClusterPolicy(policy) }}
	}
	policy := new(v1alpha1.RoutingPolicy)
	return &anyPolicy{"RoutingPolicy", policy, &policy.Status, func() translate.Policy { return translate.ReadPolicy(policy) }}
}

func (p *policyReconciler) status(ctx context.Context, policy *anyPolicy) (v1alpha1.RoutingPolicyStatus, error) {
	status := v1alpha1.RoutingPolicyStatus{
		ObservedGeneration: policy.object.GetGeneration(),
		Conditions:         slices.Clone(policy.status.Conditions),
	}
	var err error
	if status.Services, err = p.followers(ctx, client.ObjectKeyFromObject(policy.object)); err != nil {
		return status, err
	}
	cluster, err := p.nodes.current(ctx)
	if err != nil {
		return status, fmt.Errorf("reading Nodes: %w", err)
	}
	read := policy.read()
	faults := slices.Clone(read.Faults)
	if fault := cluster.Fault(read.Capacity); fault != "" {
		faults = append(faults, "spec."+fault)
	}
	accepted := metav1.Condition{
		Type: v1alpha1.Accepted, Status: metav1.ConditionTrue, Reason: "Accepted",
		Message: "all of the policy holds", ObservedGeneration: policy.object.GetGeneration(),
	}
	if len(faults) > 0 {
		accepted.Status, accepted.Reason, accepted.Message = metav1.ConditionFalse, "Fallback", strings.Join(faults, ". ")
	}
	accepted.LastTransitionTime = metav1.NewTime(p.clock.Now().Truncate(time.Second))
	meta.SetStatusCondition(&status.Conditions, accepted)
	return status, nil
}

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
