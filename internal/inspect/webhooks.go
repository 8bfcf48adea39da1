package inspect

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// PartSelector finds what Vicinity's chart installs: no value of the chart changes this label.
const PartSelector = "app.kubernetes.io/part-of=vicinity"

// The kinds of configurations of webhooks.
const (
	Mutating   = "MutatingWebhookConfiguration"
	Validating = "ValidatingWebhookConfiguration"
)

// WebhookConfiguration is one of Vicinity's, of either kind.
type WebhookConfiguration struct {
	Kind, Name string
	Webhooks   []Webhook
}

// Webhook is who is asked, and about what.
type Webhook struct {
	Client admissionregistrationv1.WebhookClientConfig
	Rules  []admissionregistrationv1.RuleWithOperations
}

// WebhooksOf are all configurations of both kinds.
func WebhooksOf(mutating []*admissionregistrationv1.MutatingWebhookConfiguration, validating []*admissionregistrationv1.ValidatingWebhookConfiguration) (all []WebhookConfiguration) {
	for _, c := range mutating {
		w := WebhookConfiguration{Kind: Mutating, Name: c.Name}
		for i := range c.Webhooks {
			w.Webhooks = append(w.Webhooks, Webhook{c.Webhooks[i].ClientConfig, c.Webhooks[i].Rules})
		}
		all = append(all, w)
	}
	for _, c := range validating {
		w := WebhookConfiguration{Kind: Validating, Name: c.Name}
		for i := range c.Webhooks {
			w.Webhooks = append(w.Webhooks, Webhook{c.Webhooks[i].ClientConfig, c.Webhooks[i].Rules})
		}
		all = append(all, w)
	}
	return all
}

// WebhookNamespace is the namespace whose Service the webhooks call: that of Vicinity, since only administrators of the cluster
// write them. It is empty where none calls a Service.
func WebhookNamespace(all []WebhookConfiguration) string {
	for _, c := range all {
		for _, w := range c.Webhooks {
			if w.Client.Service != nil {
				return w.Client.Service.Namespace
			}
		}
	}
	return ""
}

// AsksAboutEvictions reports whether the Vicinity of a namespace, or any if it is empty, is asked about evictions.
func (c WebhookConfiguration) AsksAboutEvictions(namespace string) bool {
	return slices.ContainsFunc(c.Webhooks, func(w Webhook) bool {
		at := w.Client.Service
		return (namespace == "" || at != nil && at.Namespace == namespace) && slices.ContainsFunc(w.Rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
			return slices.Contains(rule.Resources, "pods/eviction") && slices.Contains(rule.Operations, admissionregistrationv1.Create)
		})
	})
}
