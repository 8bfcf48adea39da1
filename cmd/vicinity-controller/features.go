package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	disruptioncontroller "vicinity.dev/vicinity/internal/disruption/controller"
	"vicinity.dev/vicinity/internal/disruption/requester"
	"vicinity.dev/vicinity/internal/disruption/reservation"
	"vicinity.dev/vicinity/internal/disruption/responder"
	"vicinity.dev/vicinity/internal/disruption/webhook/budget"
	"vicinity.dev/vicinity/internal/disruption/webhook/eviction"
	"vicinity.dev/vicinity/internal/disruption/webhook/pod"
	"vicinity.dev/vicinity/internal/kit/admission"
	"vicinity.dev/vicinity/internal/kit/certificates"
	"vicinity.dev/vicinity/internal/kit/lifecycle"
	namescontroller "vicinity.dev/vicinity/internal/names/controller"
	"vicinity.dev/vicinity/internal/proxy/nodeaddresses"
	rolloutcontroller "vicinity.dev/vicinity/internal/rollout/controller"
	routingcontroller "vicinity.dev/vicinity/internal/routing/controller"
	"vicinity.dev/vicinity/internal/routing/webhook/endpointslice"
	"vicinity.dev/vicinity/internal/routing/webhook/policy"
	"vicinity.dev/vicinity/internal/routing/webhook/service"
	scaledowncontroller "vicinity.dev/vicinity/internal/scaledown/controller"
	"vicinity.dev/vicinity/internal/scaledown/pacing"
	"vicinity.dev/vicinity/internal/scaledown/webhook/ordinal"
	"vicinity.dev/vicinity/internal/scaledown/webhook/scale"
)

func (p *program) addRouting(ctx context.Context) error {
	if err := p.AddHealthzCheck("alive", p.syncs.Alive); err != nil || p.routing.Settings.WithoutRouting {
		return err
	}
	options := p.routing
	options.Syncs, options.Awaits = p.syncs, p.standby.Awaits
	if err := routingcontroller.Add(ctx, p.Manager, options); err != nil {
		return err
	}
	return p.AddReadyzCheck("caches", routingcontroller.Synced(p.GetCache(), p.routing))
}

// addStandby lets the replica leave a domain before a ZoneShift takes it out of service.
func (p *program) addStandby(context.Context) error {
	return errors.Join(p.standby.Add(p.Manager), p.AddReadyzCheck("zone-shift", p.standby.Ready))
}

func (p *program) addLocators(ctx context.Context) error {
	// Routing has the other half of the requests.
	options := namescontroller.Options{Mode: p.locators, Workers: p.routing.Workers, Rate: p.qps / 2, Burst: max(1, p.burst/2), Syncs: p.syncs}
	if err := namescontroller.Add(ctx, p.Manager, options); err != nil || !p.locators.Locates() {
		return err
	}
	return p.AddReadyzCheck("locators", namescontroller.Synced(p.GetCache()))
}

func (p *program) addNodeAddresses(context.Context) error {
	if !p.nodeAddresses {
		return nil
	}
	return nodeaddresses.Add(p.Manager, p.namespace)
}

func (p *program) addBudgets(ctx context.Context) error {
	if !p.budgets {
		return nil
	}
	counted, err := reservation.NewMetrics(metrics.Registry)
	if err != nil {
		return fmt.Errorf("registering metrics of evictions: %w", err)
	}
	if p.ledger, err = reservation.New(ctx, p.Manager, reservation.Options{Metrics: counted, Ahead: p.clock.Ahead}); err != nil {
		return err
	}
	if err := p.AddReadyzCheck("budgets", p.ledger.Synced); err != nil {
		return err
	}
	options := p.budgetOptions
	options.Own, options.Served, options.Service = p.namespace, p.webhooks.evictions, p.webhooks.service
	// Admission has most of the requests.
	options.Workers, options.Rate, options.Syncs = p.routing.Workers, max(1, p.qps/10), p.syncs
	return disruptioncontroller.Add(ctx, p.Manager, p.ledger, options)
}

// addResponder answers EvictionRequests, and detects whether the API server serves them.
func (p *program) addResponder(context.Context) error {
	if !p.responder {
		return nil
	}
	server, err := discovery.NewDiscoveryClientForConfigAndClient(p.GetConfig(), p.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("asking what the API server serves: %w", err)
	}
	p.requests = lifecycle.NewDetector(server, p.GetLogger().WithName("evictionrequests"))
	if err := p.Add(p.requests); err != nil {
		return err
	}
	return responder.Add(p.Manager, p.ledger, responder.Options{
		Served: p.requests.Served, Workers: p.routing.Workers, Reports: max(1, p.qps/10), Syncs: p.syncs,
	})
}

func (p *program) addScaleDown(ctx context.Context) error {
	if !p.scaleDown {
		return nil
	}
	evicts, err := p.requester()
	if err != nil {
		return err
	}
	// Routing has half of the requests, and PodLocators the rest for a while.
	return scaledowncontroller.Add(ctx, p.Manager, evicts, scaledowncontroller.Options{
		Budgets: p.budgets, Workers: p.routing.Workers, Rate: max(1, p.qps/4), Burst: max(1, p.burst/4), Syncs: p.syncs,
	})
}

func (p *program) addRollouts(ctx context.Context) error {
	if p.releasePods {
		return rolloutcontroller.AddRelease(p.Manager)
	}
	if !p.rollouts {
		return nil
	}
	evicts, err := p.requester()
	if err != nil {
		return err
	}
	options := rolloutcontroller.Options{Workers: p.routing.Workers, Syncs: p.syncs, Plans: routingcontroller.NewForecast(p.GetClient(), p.routing)}
	if p.ledger != nil {
		options.Budgets = p.ledger
	}
	return rolloutcontroller.Add(ctx, p.Manager, evicts, options)
}

// requester evicts pods.
func (p *program) requester() (*requester.Requester, error) {
	api, err := kubernetes.NewForConfigAndClient(p.GetConfig(), p.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("making a client of evictions: %w", err)
	}
	served := func() bool { return false }
	if p.requests != nil {
		served = p.requests.Served
	}
	return requester.New(api, served), nil
}

func (p *program) addPacing(ctx context.Context) error {
	if !p.webhooks.scales {
		return nil
	}
	p.pacer = pacing.New(p.ledger, p.GetAPIReader(), p.GetClient())
	return scaledowncontroller.AddPacing(ctx, p.Manager, p.pacer, scaledowncontroller.Options{Workers: p.routing.Workers, Syncs: p.syncs})
}

// certify makes the certificates of the webhooks, or nil if none is served.
func (w *webhookConfig) certify(namespace string) (*certificates.Certificates, error) {
	if !w.any() {
		return nil, nil
	}
	if w.folder != "" {
		// A container's root file system is read-only.
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

// addWebhooks serves the webhooks that are switched on.
func (p *program) addWebhooks(context.Context) error {
	if p.certificates == nil {
		return nil
	}
	if err := p.certificates.Register(p.Manager); err != nil {
		return err
	}
	answered, err := admission.NewMetrics(metrics.Registry)
	if err != nil {
		return fmt.Errorf("registering metrics of webhooks: %w", err)
	}
	w := &p.webhooks
	if w.endpointSlices {
		if err := endpointslice.Register(p.Manager, endpointslice.Options{User: p.user(), Exclusion: p.routing.Exclusion, Metrics: answered}); err != nil {
			return fmt.Errorf("adding the webhook of EndpointSlices: %w", err)
		}
	}
	if w.services {
		service.Register(p.Manager, service.Options{Settings: p.routing.Settings, Metrics: answered})
	}
	if w.policies {
		policy.Register(p.Manager, policy.Options{Metrics: answered})
	}
	if w.budgets {
		options := budget.Options{Own: p.namespace, Metrics: answered}
		if p.ledger != nil {
			options.Worlds = p.ledger
		}
		budget.Register(p.Manager, options)
	}
	if w.evictions {
		eviction.Register(p.Manager, eviction.Options{Ledger: p.ledger, Metrics: answered})
	}
	if w.pods {
		pod.Register(p.Manager, pod.Options{Served: p.requests.Served, Metrics: answered})
	}
	if w.ordinals {
		ordinal.Register(p.Manager, ordinal.Options{Metrics: answered})
	}
	if w.scales {
		if err := scale.Register(p.Manager, scale.Options{Pacer: p.pacer, User: p.user(), Namespace: p.namespace, Metrics: answered}); err != nil {
			return fmt.Errorf("adding the webhooks of scale-downs: %w", err)
		}
	}
	if err := p.AddReadyzCheck("webhooks", p.certificates.Serving(w.port)); err != nil {
		return err
	}
	return p.AddReadyzCheck("certificates", p.certificates.Ready)
}
