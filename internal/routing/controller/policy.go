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
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// recountAfter is how long the status of a policy may be out of date with Services and nodes.
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
	known := map[string]Policies{} // by namespace
	for i := range services.Items {
		service := &services.Items[i]
		if service.DeletionTimestamp != nil || p.options.Exclusion.Reason(service.Namespace, service.Name) != "" {
			continue
		}
		policies, found := known[service.Namespace]
		if !found {
			if policies, err = ReadPolicies(ctx, p.client, service.Namespace); err != nil {
				return 0, err
			}
			known[service.Namespace] = policies
		}
		in := routing.Input{Service: service, Policies: policies.Own, Defaults: policies.Defaults, Settings: p.options.Settings}
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
		Message: "all values are valid", ObservedGeneration: policy.object.GetGeneration(),
	}
	if len(faults) > 0 {
		accepted.Status, accepted.Reason, accepted.Message = metav1.ConditionFalse, "Fallback", strings.Join(faults, ". ")
	}
	accepted.LastTransitionTime = metav1.NewTime(p.clock.Now().Truncate(time.Second))
	meta.SetStatusCondition(&status.Conditions, accepted)
	return status, nil
}

// trimNamespace keeps only the labels of a namespace, and the annotations of Vicinity.
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

// Policies are the policies that a Service of a namespace can follow.
type Policies struct {
	Own      []*v1alpha1.RoutingPolicy
	Defaults []*v1alpha1.ClusterRoutingPolicy // they select the namespace
}

// ReadPolicies reads the policies of a namespace. Defaults are empty while the cache lacks the namespace: its event
// requeues the Services. With an error it returns the policies that it could read.
func ReadPolicies(ctx context.Context, c client.Reader, namespace string) (p Policies, err error) {
	var own v1alpha1.RoutingPolicyList
	if err := c.List(ctx, &own, client.InNamespace(namespace)); err != nil {
		return p, fmt.Errorf("reading RoutingPolicies of %s: %w", namespace, err)
	}
	p.Own = shell.Pointers(own.Items)
	var defaults v1alpha1.ClusterRoutingPolicyList
	if err := c.List(ctx, &defaults); err != nil {
		return p, fmt.Errorf("reading ClusterRoutingPolicies: %w", err)
	}
	if len(defaults.Items) == 0 {
		return p, nil
	}
	found, err := shell.ReadNamespace(ctx, c, namespace)
	if err != nil {
		return p, client.IgnoreNotFound(err)
	}
	p.Defaults = intent.ForNamespace(shell.Pointers(defaults.Items), found.Labels)
	return p, nil
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
