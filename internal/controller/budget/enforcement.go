package budget

import (
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// Reasons of the condition Enforced.
const (
	reasonEnforced          = "Enforced"
	reasonNamespaceExcluded = "NamespaceExcluded"
	reasonWebhooksOff       = "WebhooksOff"
	reasonWebhooksMissing   = "WebhooksMissing"
	reasonLabelMissing      = "LabelMissing"
)

// enforcement says whether evictions in a namespace are checked, and else what to do.
type enforcement struct{ reason, message string }

func (e enforcement) holds() bool { return e.reason == reasonEnforced }

// enforcement is that of a namespace. It is not known before the sync of the namespace.
func (r *reconciler) enforcement(ctx context.Context, namespace string) (e enforcement, known bool, err error) {
	if r.namespaces.isExcluded(namespace) {
		return enforcement{reasonNamespaceExcluded, fmt.Sprintf("evictions in the namespace %s are never checked, since Vicinity and the cluster must always recover there: use a PodDisruptionBudget, or move the pods", namespace)}, true, nil
	}
	if !r.options.Served {
		return enforcement{reasonWebhooksOff, "evictions are not checked, since vicinity-controller runs without --webhook-evictions: set disruption.enabled in the chart"}, true, nil
	}
	missing, err := r.webhooks.missing(ctx)
	if err != nil {
		return enforcement{}, false, err
	}
	if missing != "" {
		return enforcement{reasonWebhooksMissing, fmt.Sprintf("evictions are not checked: no %s has the webhook of pods/eviction; \"helm upgrade\" puts it back", missing)}, true, nil
	}
	mark, known := r.namespaces.mark(namespace)
	switch {
	case !known:
		return enforcement{}, false, nil
	case mark.failure != "":
		return enforcement{reasonLabelMissing, fmt.Sprintf("evictions are not checked: the namespace does not have the label %s=true: %s", v1alpha1.LabelBudgets, mark.failure)}, true, nil
	}
	return enforcement{reasonEnforced, "evictions of the pods are checked"}, true, nil
}

// webhooks says whether the API server asks about evictions. Who deletes a configuration, so that
// evictions go on, has to see that budgets do not hold meanwhile.
type webhooks struct {
	client  client.Reader
	options Options
}

// missing is the kind of configuration that does not ask about evictions, empty if both do.
func (w *webhooks) missing(ctx context.Context) (string, error) {
	var mutating admissionv1.MutatingWebhookConfigurationList
	if err := w.client.List(ctx, &mutating); err != nil {
		return "", fmt.Errorf("reading MutatingWebhookConfigurations: %w", err)
	}
	var validating admissionv1.ValidatingWebhookConfigurationList
	if err := w.client.List(ctx, &validating); err != nil {
		return "", fmt.Errorf("reading ValidatingWebhookConfigurations: %w", err)
	}
	switch {
	case !slices.ContainsFunc(validating.Items, func(c admissionv1.ValidatingWebhookConfiguration) bool {
		return slices.ContainsFunc(c.Webhooks, func(h admissionv1.ValidatingWebhook) bool { return w.isAsked(&h.ClientConfig, h.Rules) })
	}):
		return "ValidatingWebhookConfiguration", nil
	case !slices.ContainsFunc(mutating.Items, func(c admissionv1.MutatingWebhookConfiguration) bool {
		return slices.ContainsFunc(c.Webhooks, func(h admissionv1.MutatingWebhook) bool { return w.isAsked(&h.ClientConfig, h.Rules) })
	}):
		return "MutatingWebhookConfiguration", nil
	}
	return "", nil
}

func (w *webhooks) isAsked(at *admissionv1.WebhookClientConfig, rules []admissionv1.RuleWithOperations) bool {
	if at.Service == nil || at.Service.Namespace != w.options.Own || at.Service.Name != w.options.Service {
		return false
	}
	return slices.ContainsFunc(rules, func(rule admissionv1.RuleWithOperations) bool {
		return slices.Contains(rule.Resources, "pods/eviction") && slices.Contains(rule.Operations, admissionv1.Create)
	})
}

func (e enforcement) condition() metav1.Condition {
	status := metav1.ConditionFalse
	if e.holds() {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: v1alpha1.ConditionEnforced, Status: status, Reason: e.reason, Message: e.message}
}
