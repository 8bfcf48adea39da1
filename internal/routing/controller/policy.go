package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
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
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// recountAfter is how long the status of a policy may be behind the Services that follow it, and
// behind the nodes that its capacity is computed from.
const recountAfter = 30 * time.Second

type policyReconciler struct{ *reconciler }

func (r *reconciler) addPolicies(mgr manager.Manager) error {
	warm := true
	return builder.ControllerManagedBy(mgr).
		Named("routingpolicy").
		For(&v1alpha1.RoutingPolicy{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.ClusterRoutingPolicy{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{EnableWarmup: &warm}).
		Complete(policyReconciler{r})
}

// Reconcile updates the status of one policy.
func (p policyReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	policy := newPolicy(request.NamespacedName)
	defer p.syncs.Begin(policy.kind + " " + strings.TrimPrefix(request.String(), "/"))()
	if err := p.client.Get(ctx, request.NamespacedName, policy.object); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	status, err := p.status(ctx, policy)
	if err != nil {
		return reconcile.Result{}, err
	}
	again := reconcile.Result{RequeueAfter: recountAfter}
	if equality.Semantic.DeepEqual(status, *policy.status) {
		return again, nil
	}
	body, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return reconcile.Result{}, err
	}
	written := newPolicy(request.NamespacedName).object
	written.SetNamespace(request.Namespace)
	written.SetName(request.Name)
	if err := p.client.Status().Patch(ctx, written, client.RawPatch(types.MergePatchType, body)); err != nil && !apierrors.IsNotFound(err) {
		return reconcile.Result{}, fmt.Errorf("writing the status of the policy: %w", err)
	}
	return again, nil
}

// followers counts the Services that follow a policy.
func (p policyReconciler) followers(ctx context.Context, policy types.NamespacedName) (n int32, err error) {
	var services corev1.ServiceList
	if err := p.client.List(ctx, &services, client.InNamespace(policy.Namespace)); err != nil {
		return 0, fmt.Errorf("reading Services: %w", err)
	}
	known := map[string]policySet{} // by namespace
	for i := range services.Items {
		service := &services.Items[i]
		if service.DeletionTimestamp != nil || p.options.Exclusion.Reason(service.Namespace, service.Name) != "" {
			continue
		}
		set, found := known[service.Namespace]
		if !found {
			if set, err = policiesOf(ctx, p.client, service.Namespace); err != nil {
				return 0, err
			}
			known[service.Namespace] = set
		}
		in := routing.Input{Service: service, Policies: set.own, Defaults: set.defaults, Settings: p.options.Settings}
		if intent.IsHeadless(service) { // the names of its endpoints matter
			if in.Slices, err = slicesOf(ctx, p.client, service); err != nil {
				return 0, err
			}
		}
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
	read   func() intent.Policy
}

func newPolicy(key types.NamespacedName) *anyPolicy {
	if key.Namespace == "" {
		policy := new(v1alpha1.ClusterRoutingPolicy)
		return &anyPolicy{"ClusterRoutingPolicy", policy, &policy.Status, func() intent.Policy { return intent.ReadClusterPolicy(policy) }}
	}
	policy := new(v1alpha1.RoutingPolicy)
	return &anyPolicy{"RoutingPolicy", policy, &policy.Status, func() intent.Policy { return intent.ReadPolicy(policy) }}
}

func (p policyReconciler) status(ctx context.Context, policy *anyPolicy) (v1alpha1.RoutingPolicyStatus, error) {
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

// policySet are the policies of a namespace, and those of the cluster that choose it.
type policySet struct {
	own      []*v1alpha1.RoutingPolicy
	defaults []*v1alpha1.ClusterRoutingPolicy
}

func policiesOf(ctx context.Context, c client.Reader, namespace string) (set policySet, err error) {
	var list v1alpha1.RoutingPolicyList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return set, fmt.Errorf("reading RoutingPolicies: %w", err)
	}
	set.own = pointers(list.Items)
	set.defaults, err = defaults(ctx, c, namespace)
	return set, err
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
	return intent.ForNamespace(policies, found.Labels), nil
}

func clusterPolicies(ctx context.Context, c client.Reader) ([]*v1alpha1.ClusterRoutingPolicy, error) {
	var list v1alpha1.ClusterRoutingPolicyList
	if err := c.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("reading ClusterRoutingPolicies: %w", err)
	}
	return pointers(list.Items), nil
}

func policyOf(service types.NamespacedName, request *intent.Request) types.NamespacedName {
	if request.ClusterPolicy != "" {
		return types.NamespacedName{Name: request.ClusterPolicy}
	}
	if request.Policy != "" {
		return types.NamespacedName{Namespace: service.Namespace, Name: request.Policy}
	}
	return types.NamespacedName{}
}
