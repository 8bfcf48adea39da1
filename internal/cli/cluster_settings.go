package cli

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/routingflags"
)

// switchOn is the command that sets values of the chart, without the values.
const switchOn = "helm upgrade vicinity vicinity-VERSION.tgz -n vicinity-system --reset-then-reuse-values --set "

func (r *clusterReader) reading(s *routingflags.Running, in routing.Input) inspect.Reading {
	in.Settings = s.Settings
	return inspect.Reading{
		Input: in, LeftAlone: s.Exclusion.Reason(in.Service.Namespace, in.Service.Name), Stopped: s.Stopped, Unread: r.unread, Now: r.now,
	}
}

// controller returns the Deployment of vicinity-controller, or nil. If there are several, it chooses
// by the webhooks, if these may be read.
func (r *clusterReader) controller(ctx context.Context) (*appsv1.Deployment, error) {
	list, err := listAll[appsv1.Deployment](ctx, r.typed.AppsV1().Deployments(metav1.NamespaceAll), metav1.ListOptions{LabelSelector: routingflags.ControllerSelector})
	var webhooks []inspect.WebhookConfiguration
	if err == nil && len(list) > 1 {
		if webhooks, err = r.webhookConfigurations(ctx); apierrors.IsForbidden(err) {
			err = nil
		}
	}
	controller, several := routingflags.ControllerOf(list, inspect.WebhookNamespace(webhooks))
	if several != "" {
		r.leaveOut(several)
	}
	return controller, err
}

// webhookConfigurations returns Vicinity's webhook configurations. With an error it returns the ones
// that it could read.
func (r *clusterReader) webhookConfigurations(ctx context.Context) ([]inspect.WebhookConfiguration, error) {
	api := r.typed.AdmissionregistrationV1()
	options := metav1.ListOptions{LabelSelector: inspect.PartSelector}
	mutating, err := listAll[admissionregistrationv1.MutatingWebhookConfiguration](ctx, api.MutatingWebhookConfigurations(), options)
	validating, second := listAll[admissionregistrationv1.ValidatingWebhookConfiguration](ctx, api.ValidatingWebhookConfigurations(), options)
	if err == nil || apierrors.IsForbidden(err) && second != nil {
		err = second // the worse one
	}
	return inspect.WebhooksOf(mutating, validating), err
}

// settings returns the settings of the cluster's controller, or the defaults if they cannot be read.
func (r *clusterReader) settings(ctx context.Context) (routingflags.Running, error) {
	controller, err := r.controller(ctx)
	if err != nil {
		return routingflags.Defaults(), r.optional("Deployments", "vicinity-controller is assumed to have its default flags", err)
	}
	running, notes := routingflags.RunningOf(controller)
	for _, note := range notes {
		r.leaveOut(note)
	}
	return running, nil
}
