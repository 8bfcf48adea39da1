package controller

import (
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/shell"
)

// Reasons of the condition Enforced.
const (
	reasonEnforced          = "Enforced"
	reasonNamespaceExcluded = "NamespaceExcluded"
	reasonWebhooksOff       = "WebhooksOff"
	reasonWebhooksMissing   = "WebhooksMissing"
	reasonWebhooksChanged   = "WebhooksChanged"
	reasonLabelMissing      = "LabelMissing"
)

// enforcement says whether evictions in a namespace are checked, and otherwise what to do. It is unknown before the first
// sync of the namespace.
func (r *reconciler) enforcement(ctx context.Context, namespace string) (e verdict, known bool, err error) {
	if r.namespaces.isExcluded(namespace) {
		return verdict{reasonNamespaceExcluded, fmt.Sprintf("evictions in the namespace %s are never checked, so that Vicinity and the cluster can always recover: use a PodDisruptionBudget, or move the pods to another namespace", namespace)}, true, nil
	}
	if !r.options.Served {
		return verdict{reasonWebhooksOff, "evictions are not checked, because vicinity-controller runs without --webhook-evictions: set disruption.enabled in the chart"}, true, nil
	}
	hooks, err := r.evictionHooks(ctx)
	if err != nil {
		return verdict{}, false, err
	}
	if len(hooks) == 0 {
		return verdict{reasonWebhooksMissing, "evictions are not checked: no MutatingWebhookConfiguration has a webhook for pods/eviction; restore it with \"helm upgrade\""}, true, nil
	}
	mark, known := r.namespaces.mark(namespace)
	switch {
	case !known:
		return verdict{}, false, nil
	case mark.failure != "":
		return verdict{reasonLabelMissing, fmt.Sprintf("evictions are not checked: the namespace lacks the label %s=true: %s", v1alpha1.LabelBudgets, mark.failure)}, true, nil
	}
	found, err := shell.ReadNamespace(ctx, r.client, namespace)
	if err != nil {
		return verdict{}, false, client.IgnoreNotFound(err)
	}
	has := labels.Merge(found.Labels, labels.Set{v1alpha1.LabelBudgets: "true"}) // the namespace's sync has read it back
	if gap := gapOf(hooks, has); gap != "" {
		return verdict{reasonWebhooksChanged, fmt.Sprintf("not all evictions are checked: a webhook for pods/eviction in a MutatingWebhookConfiguration %s; restore it with \"helm upgrade\"", gap)}, true, nil
	}
	return verdict{reasonEnforced, "evictions of the pods are checked"}, true, nil
}

// evictionHooks finds the webhooks that ask this controller about evictions. A person who changes their configuration must see that
// budgets do not hold meanwhile.
func (r *reconciler) evictionHooks(ctx context.Context) (found []admissionv1.MutatingWebhook, err error) {
	var all admissionv1.MutatingWebhookConfigurationList
	if err := r.client.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("reading MutatingWebhookConfigurations: %w", err)
	}
	for i := range all.Items {
		for _, hook := range all.Items[i].Webhooks {
			at := hook.ClientConfig.Service
			if at != nil && at.Namespace == r.options.Own && at.Name == r.options.Service && slices.ContainsFunc(hook.Rules, isAboutEvictions) {
				found = append(found, hook)
			}
		}
	}
	return found, nil
}

func isAboutEvictions(rule admissionv1.RuleWithOperations) bool {
	return slices.Contains(rule.Resources, "pods/eviction") && slices.Contains(rule.Operations, admissionv1.Create)
}

// gapOf names the gap by which evictions in a namespace with the given labels pass unchecked. It is empty if a webhook has no gap.
func gapOf(hooks []admissionv1.MutatingWebhook, namespace labels.Set) (gap string) {
	for i := range hooks {
		switch h := &hooks[i]; {
		case h.FailurePolicy != nil && *h.FailurePolicy != admissionv1.Fail:
			gap = fmt.Sprintf("has the failurePolicy %s instead of %s, so evictions pass when it does not answer", *h.FailurePolicy, admissionv1.Fail)
		case !selects(h.NamespaceSelector, namespace):
			gap = "has a namespaceSelector that leaves the namespace out"
		case h.ObjectSelector != nil && len(h.ObjectSelector.MatchLabels)+len(h.ObjectSelector.MatchExpressions) > 0:
			gap = "has an objectSelector, which matches no Eviction because Evictions have no labels"
		case len(h.MatchConditions) > 0:
			gap = "has matchConditions, which may leave out evictions"
		default:
			return ""
		}
	}
	return gap
}

// selects reports whether a selector matches labels. A nil selector matches all.
func selects(selector *metav1.LabelSelector, has labels.Set) bool {
	if selector == nil {
		return true
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && parsed.Matches(has)
}
