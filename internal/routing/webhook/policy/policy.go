// Package policy is the admission webhook for RoutingPolicies and ClusterRoutingPolicies. It refuses errors that the
// schema cannot find: expressions that are not CEL, give no number or may cost too much, and selectors with impossible
// labels. It warns of policies that need vicinity-proxy. It refuses no stored value: such a policy uses its defaults,
// and its other parts can be changed.
package policy

import (
	"cmp"
	"context"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/admission"
	"vicinity.dev/vicinity/internal/routing/capacity"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// Path is the path of the webhook for RoutingPolicies, and ClusterPath that for ClusterRoutingPolicies.
const (
	Path        = "/validate-routingpolicy"
	ClusterPath = "/validate-clusterroutingpolicy"
)

// Options configure the webhook.
type Options struct {
	// Metrics are those of all webhooks of the process.
	Metrics *admission.Metrics
}

// Register makes a manager serve the webhooks.
func Register(mgr manager.Manager, o Options) {
	options := func(name string) admission.Options {
		return admission.Options{Webhook: name, OnFailure: admission.FailOpen, Metrics: o.Metrics}
	}
	admission.Register(mgr, Path, admission.OfWrites(judge), options("routingpolicy"))
	admission.Register(mgr, ClusterPath, admission.OfWrites(judgeCluster), options("clusterroutingpolicy"))
}

func judge(_ context.Context, write admission.Write[v1alpha1.RoutingPolicy]) (admission.Verdict, error) {
	policy, stored := write.Object, cmp.Or(write.Stored, new(v1alpha1.RoutingPolicy))
	given := written{spec: &policy.Spec, stored: &stored.Spec, read: intent.ReadPolicy(policy)}
	return given.verdict(), nil
}

func judgeCluster(_ context.Context, write admission.Write[v1alpha1.ClusterRoutingPolicy]) (admission.Verdict, error) {
	policy, stored := write.Object, cmp.Or(write.Stored, new(v1alpha1.ClusterRoutingPolicy))
	given := written{
		spec: &policy.Spec.RoutingPolicySpec, stored: &stored.Spec.RoutingPolicySpec,
		namespaces: policy.Spec.NamespaceSelector, storedNamespaces: stored.Spec.NamespaceSelector, read: intent.ReadClusterPolicy(policy),
	}
	return given.verdict(), nil
}

// written is a policy and the stored one, which is empty for a new policy.
type written struct {
	spec, stored                 *v1alpha1.RoutingPolicySpec
	namespaces, storedNamespaces *metav1.LabelSelector
	read                         intent.Policy
}

func (w *written) verdict() admission.Verdict {
	if reflect.DeepEqual(w.spec, w.stored) && reflect.DeepEqual(w.namespaces, w.storedNamespaces) {
		return admission.Verdict{}
	}
	var verdict admission.Verdict
	for _, fault := range w.faults() {
		verdict.Faults = append(verdict.Faults, fault.Error())
	}
	if need := intent.NeedOfGroups(w.read.Intent); need != "" && w.read.Delivery != v1alpha1.DeliveryGroups {
		verdict.Warnings = append(verdict.Warnings, fmt.Sprintf("the policy %s; it has full effect with spec.delivery: Groups, or on Services annotated with %s: \"true\", which vicinity-proxy serves",
			need, v1alpha1.AnnotationProxy))
	}
	return verdict
}

// faults returns the errors of parts that are not stored already.
func (w *written) faults() field.ErrorList {
	spec, stored := w.spec, w.stored
	var all field.ErrorList
	path := field.NewPath("spec")
	given := spec.Capacity
	if given.Type == v1alpha1.CapacityExpression && given != stored.Capacity {
		if err := capacity.Check(given.Expression); err != nil {
			all = append(all, field.Invalid(path.Child("capacity", "expression"), given.Expression, err.Error()))
		}
	}
	for _, selector := range []struct {
		name          string
		given, stored *metav1.LabelSelector
	}{
		{"selector", spec.Selector, stored.Selector},
		{"nodeSelector", spec.NodeSelector, stored.NodeSelector},
		{"namespaceSelector", w.namespaces, w.storedNamespaces},
	} {
		if !reflect.DeepEqual(selector.given, selector.stored) {
			all = append(all, validation.ValidateLabelSelector(selector.given, validation.LabelSelectorValidationOptions{}, path.Child(selector.name))...)
		}
	}
	return all
}
