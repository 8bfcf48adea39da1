package main

import (
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"vicinity.dev/vicinity/internal/pacing"
	"vicinity.dev/vicinity/internal/reservation"
	"vicinity.dev/vicinity/internal/webhook/admission"
	"vicinity.dev/vicinity/internal/webhook/budget"
	"vicinity.dev/vicinity/internal/webhook/certificates"
	"vicinity.dev/vicinity/internal/webhook/endpointslice"
	"vicinity.dev/vicinity/internal/webhook/eviction"
	"vicinity.dev/vicinity/internal/webhook/ordinal"
	"vicinity.dev/vicinity/internal/webhook/pod"
	"vicinity.dev/vicinity/internal/webhook/policy"
	"vicinity.dev/vicinity/internal/webhook/scale"
	"vicinity.dev/vicinity/internal/webhook/service"
)

// certify makes the certificates of the webhooks, nil if none is served.
func (w *webhookConfig) certify(namespace string) (*certificates.Certificates, error) {
	if !w.any() {
		return nil, nil
	}
	if w.folder != "" {
		// The root of a container cannot be written.
		if err := os.Setenv("TMPDIR", w.folder); err != nil {
			return nil, err
		}
	}
	options := certificates.Options{
		Secret: types.NamespacedName{Namespace: namespace, Name: w.secret},
		Names:  []string{w.service + "." + namespace + ".svc"},
	}
	if w.clients != "" {
		clients, err := certificates.ReadClients(w.clients, log.Log.WithName("webhook"))
		if err != nil {
			return nil, fmt.Errorf("--webhook-client-ca: %w", err)
		}
		options.Clients = clients
	}
	if w.mutates() {
		options.Mutating = []string{w.name}
	}
	if w.validates() {
		options.Validating = []string{w.name}
	}
	return certificates.New(options)
}

// addWebhooks has the manager serve the webhooks that are switched on.
func (c *config) addWebhooks(mgr manager.Manager, certs *certificates.Certificates, ledger *reservation.Ledger, pacer *pacing.Pacer) error {
	if certs == nil {
		return nil
	}
	if err := certs.Register(mgr); err != nil {
		return err
	}
	answered, err := admission.NewMetrics(metrics.Registry)
	if err != nil {
		return fmt.Errorf("registering metrics of webhooks: %w", err)
	}
	if c.webhooks.endpointSlices {
		if err := endpointslice.Register(mgr, endpointslice.Options{
			User:      c.user(),
			Exclusion: c.routing.Exclusion,
			Metrics:   answered,
		}); err != nil {
			return fmt.Errorf("adding the webhook of EndpointSlices: %w", err)
		}
	}
	if c.webhooks.services {
		service.Register(mgr, service.Options{
			TakeOverAuto: c.routing.Settings.TakeOverAuto, WithoutGroups: c.routing.Settings.WithoutGroups,
			WithoutHints: c.routing.Settings.WithoutHints, Metrics: answered,
		})
	}
	if c.webhooks.policies {
		policy.Register(mgr, policy.Options{Metrics: answered})
	}
	if c.webhooks.budgets {
		options := budget.Options{Own: c.namespace, Metrics: answered}
		if ledger != nil {
			options.Worlds = ledger
		}
		budget.Register(mgr, options)
	}
	if c.webhooks.evictions {
		eviction.Register(mgr, eviction.Options{Ledger: ledger, Metrics: answered})
	}
	if c.webhooks.pods {
		pod.Register(mgr, pod.Options{Served: c.requests.Served, Metrics: answered})
	}
	if c.webhooks.ordinals {
		ordinal.Register(mgr, ordinal.Options{Metrics: answered})
	}
	if c.webhooks.scales {
		if err := scale.Register(mgr, scale.Options{Pacer: pacer, User: c.user(), Namespace: c.namespace, Metrics: answered}); err != nil {
			return fmt.Errorf("adding the webhooks of scale-downs: %w", err)
		}
	}
	if err := mgr.AddReadyzCheck("webhooks", certs.Serving(c.webhooks.port)); err != nil {
		return err
	}
	return mgr.AddReadyzCheck("certificates", certs.Ready)
}
