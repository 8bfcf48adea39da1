package inspect

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// PartSelector finds the objects of Vicinity's chart. No value of the chart changes this label.
const PartSelector = "app.kubernetes.io/part-of=vicinity"

// Kinds of webhook configurations.
const (
	Mutating   = "MutatingWebhookConfiguration"
	Validating = "ValidatingWebhookConfiguration"
)

// WebhookConfiguration is a configuration of either kind.
type WebhookConfiguration struct {
	Kind, Name string
	Webhooks   []Webhook
}

// Webhook is a webhook of either kind.
type Webhook struct {
	Name   string
	Client admissionregistrationv1.WebhookClientConfig
	Rules  []admissionregistrationv1.RuleWithOperations
	// FailurePolicy and TimeoutSeconds are nil for the defaults of Kubernetes.
	FailurePolicy  *admissionregistrationv1.FailurePolicyType
	TimeoutSeconds *int32
}

// WebhooksOf returns all configurations of both kinds.
func WebhooksOf(mutating []*admissionregistrationv1.MutatingWebhookConfiguration, validating []*admissionregistrationv1.ValidatingWebhookConfiguration) (all []WebhookConfiguration) {
	for _, c := range mutating {
		w := WebhookConfiguration{Kind: Mutating, Name: c.Name}
		for i := range c.Webhooks {
			one := &c.Webhooks[i]
			w.Webhooks = append(w.Webhooks, Webhook{one.Name, one.ClientConfig, one.Rules, one.FailurePolicy, one.TimeoutSeconds})
		}
		all = append(all, w)
	}
	for _, c := range validating {
		w := WebhookConfiguration{Kind: Validating, Name: c.Name}
		for i := range c.Webhooks {
			one := &c.Webhooks[i]
			w.Webhooks = append(w.Webhooks, Webhook{one.Name, one.ClientConfig, one.Rules, one.FailurePolicy, one.TimeoutSeconds})
		}
		all = append(all, w)
	}
	return all
}

// WebhookNamespace returns the namespace of the Service that the webhooks call. It is that of Vicinity, since only
// administrators of the cluster write webhooks. It is empty if none calls a Service.
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

// AsksAboutEvictions reports whether the API server asks the Vicinity of a namespace, or any if it is empty, about
// evictions.
func (c WebhookConfiguration) AsksAboutEvictions(namespace string) bool {
	return slices.ContainsFunc(c.Webhooks, func(w Webhook) bool {
		at := w.Client.Service
		return (namespace == "" || at != nil && at.Namespace == namespace) && slices.ContainsFunc(w.Rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
			return slices.Contains(rule.Resources, "pods/eviction") && slices.Contains(rule.Operations, admissionregistrationv1.Create)
		})
	})
}
