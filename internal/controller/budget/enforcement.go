package budget

import (
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
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

// enforcement says whether evictions in a namespace are checked, and if not what to do.
type enforcement struct{ reason, message string }

func (e enforcement) holds() bool { return e.reason == reasonEnforced }

// enforcement is not known before the first sync of the namespace.
func (r *reconciler) enforcement(ctx context.Context, namespace string) (e enforcement, known bool, err error) {
	if r.namespaces.isExcluded(namespace) {
		return enforcement{reasonNamespaceExcluded, fmt.Sprintf("evictions in the namespace %s are never checked, since Vicinity and the cluster must always recover there: use a PodDisruptionBudget, or move the pods", namespace)}, true, nil
	}
	if !r.options.Served {
		return enforcement{reasonWebhooksOff, "evictions are not checked, since vicinity-controller runs without --webhook-evictions: set disruption.enabled in the chart"}, true, nil
	}
	hooks, err := r.webhooks.read(ctx)
	if err != nil {
		return enforcement{}, false, err
	}
	if len(hooks) == 0 {
		return enforcement{reasonWebhooksMissing, "evictions are not checked: no MutatingWebhookConfiguration has the webhook of pods/eviction; \"helm upgrade\" puts it back"}, true, nil
	}
	mark, known := r.namespaces.mark(namespace)
	switch {
	case !known:
		return enforcement{}, false, nil
	case mark.failure != "":
		return enforcement{reasonLabelMissing, fmt.Sprintf("evictions are not checked: the namespace does not have the label %s=true: %s", v1alpha1.LabelBudgets, mark.failure)}, true, nil
	}
	found := aNamespace()
	if err := r.client.Get(ctx, client.ObjectKey{Name: namespace}, found); err != nil {
		return enforcement{}, false, client.IgnoreNotFound(err)
	}
	has := labels.Merge(found.Labels, labels.Set{v1alpha1.LabelBudgets: "true"}) // was read back
	if gap := gapOf(hooks, has); gap != "" {
		return enforcement{reasonWebhooksChanged, fmt.Sprintf("not all evictions are checked: a webhook of pods/eviction in a MutatingWebhookConfiguration %s; \"helm upgrade\" puts it back", gap)}, true, nil
	}
	return enforcement{reasonEnforced, "evictions of the pods are checked"}, true, nil
}

// webhooks reads whether the API server asks about evictions. Somebody who changes a configuration to let evictions
// through must see that budgets do not hold meanwhile.
type webhooks struct {
	client  client.Reader
	options Options
}

// read finds the webhooks that ask this controller about evictions.
func (w *webhooks) read(ctx context.Context) (found []hook, err error) {
	var all admissionv1.MutatingWebhookConfigurationList
	if err := w.client.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("reading MutatingWebhookConfigurations: %w", err)
	}
	for i := range all.Items {
		for k := range all.Items[i].Webhooks {
			if h := (*hook)(&all.Items[i].Webhooks[k]); w.asks(h) {
				found = append(found, *h)
			}
		}
	}
	return found, nil
}

type hook admissionv1.MutatingWebhook

// asks reports whether a webhook asks this controller about evictions.
func (w *webhooks) asks(h *hook) bool {
	at := h.ClientConfig.Service
	return at != nil && at.Namespace == w.options.Own && at.Name == w.options.Service && slices.ContainsFunc(h.Rules, func(rule admissionv1.RuleWithOperations) bool {
		return slices.Contains(rule.Resources, "pods/eviction") && slices.Contains(rule.Operations, admissionv1.Create)
	})
}

// gapOf says which gap lets evictions in a namespace with some labels pass unchecked; empty if none does. One webhook
// without a gap is enough.
func gapOf(hooks []hook, namespace labels.Set) (gap string) {
	for i := range hooks {
		if gap = hooks[i].gap(namespace); gap == "" {
			return ""
		}
	}
	return gap
}

func (h *hook) gap(namespace labels.Set) string {
	switch {
	case h.FailurePolicy != nil && *h.FailurePolicy != admissionv1.Fail:
		return fmt.Sprintf("has the failurePolicy %s instead of %s, and lets them pass when there is no answer", *h.FailurePolicy, admissionv1.Fail)
	case !selects(h.NamespaceSelector, namespace):
		return "has a namespaceSelector that leaves the namespace out"
	case h.ObjectSelector != nil && len(h.ObjectSelector.MatchLabels)+len(h.ObjectSelector.MatchExpressions) > 0:
		return "has an objectSelector, and Evictions have no labels"
	case len(h.MatchConditions) > 0:
		return "has matchConditions, and may not be asked about all"
	}
	return ""
}

// selects reports whether a selector matches labels. A nil selector matches all.
func selects(selector *metav1.LabelSelector, has labels.Set) bool {
	if selector == nil {
		return true
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && parsed.Matches(has)
}

func (e enforcement) condition() metav1.Condition {
	status := metav1.ConditionFalse
	if e.holds() {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: v1alpha1.ConditionEnforced, Status: status, Reason: e.reason, Message: e.message}
}
