// Package policy is the admission webhook for RoutingPolicies. It refuses what the
// schema cannot: an expression that is no CEL, gives no number or may cost too much, and
// selectors with labels that no object can have. It warns of what needs vicinity-proxy.
// What is stored already it refuses no more: such a policy falls back to its defaults
// and can be changed elsewhere.
//
// # How it is installed
//
//	rules:          CREATE and UPDATE of routingpolicies, vicinity.dev, v1alpha1, scope Namespaced
//	failurePolicy:  Ignore
//	timeoutSeconds: 2
//	sideEffects:    None
package policy

import (
	"context"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/translate"
	"vicinity.dev/vicinity/internal/webhook/outcome"
	"vicinity.dev/vicinity/internal/webhook/verdict"
)

// Path is where the webhook is served.
const Path = "/validate-routingpolicy"

// Options are what the webhook depends on.
type Options struct {
	// Metrics are those of all webhooks of the process.
	Metrics *outcome.Metrics
}

// Register has a manager serve the webhook.
func Register(mgr manager.Manager, o Options) {
	mgr.GetWebhookServer().Register(Path, &admission.Webhook{Handler: verdict.Handler(judge, verdict.Options{
		Webhook: "routingpolicy", Metrics: o.Metrics, Log: mgr.GetLogger().WithName("webhook").WithName("routingpolicy"),
	})})
}

func judge(_ context.Context, write verdict.Write[v1alpha1.RoutingPolicy]) verdict.Verdict {
	policy := write.Object
	if policy.DeletionTimestamp != nil {
		return verdict.Verdict{}
	}
	var stored v1alpha1.RoutingPolicySpec
	if write.Stored != nil {
		stored = write.Stored.Spec
		if reflect.DeepEqual(policy.Spec, stored) {
			return verdict.Verdict{}
		}
	}
	var said verdict.Verdict
	for _, fault := range faults(&policy.Spec, &stored) {
		said.Faults = append(said.Faults, fault.Error())
	}
	if need := translate.NeedOfGroups(translate.ReadPolicy(policy).Intent); need != "" {
		said.Warnings = append(said.Warnings, fmt.Sprintf("the policy %s; it has full effect on Services annotated with %s: \"true\", which vicinity-proxy serves",
			need, translate.AnnotationProxy))
	}
	return said
}

// faults are about parts of the policy that are not stored already.
func faults(spec, stored *v1alpha1.RoutingPolicySpec) field.ErrorList {
	var all field.ErrorList
	path := field.NewPath("spec")
	capacity := spec.Capacity
	if capacity.Type == v1alpha1.CapacityExpression && capacity != stored.Capacity {
		if err := translate.CheckExpression(capacity.Expression); err != nil {
			all = append(all, field.Invalid(path.Child("capacity", "expression"), capacity.Expression, err.Error()))
		}
	}
	for _, selector := range []struct {
		name          string
		given, stored *metav1.LabelSelector
	}{
		{"selector", spec.Selector, stored.Selector},
		{"nodeSelector", spec.NodeSelector, stored.NodeSelector},
	} {
		if !reflect.DeepEqual(selector.given, selector.stored) {
			all = append(all, validation.ValidateLabelSelector(selector.given, validation.LabelSelectorValidationOptions{}, path.Child(selector.name))...)
		}
	}
	return all
}
