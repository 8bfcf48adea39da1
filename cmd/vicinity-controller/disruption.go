package main

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"vicinity.dev/vicinity/internal/controller/budget"
	"vicinity.dev/vicinity/internal/controller/responder"
	"vicinity.dev/vicinity/internal/controller/shell"
	"vicinity.dev/vicinity/internal/lifecycle"
	"vicinity.dev/vicinity/internal/reservation"
)

// disruptionConfig says what is done for TopologyDisruptionBudgets.
type disruptionConfig struct {
	enabled   bool
	budgets   budget.Options
	responder bool
}

func (c *config) addDisruptionFlags(flags *pflag.FlagSet) {
	d := &c.disruption
	flags.BoolVar(&d.enabled, "budgets", false, "keep TopologyDisruptionBudgets: their status and events, and the label of namespaces by which evictions are checked")
	flags.BoolVar(&d.budgets.ProjectPDBs, "project-pdbs", false, "keep PodDisruptionBudgets, one for each zone, for budgets that these can express; without it those of before are removed")
	flags.BoolVar(&d.responder, "eviction-responder", false, "answer EvictionRequests for pods that name the responder vicinity.dev/budget, where the API server serves them")
	flags.IntVar(&d.budgets.Top, "top-budgets", budget.DefaultTop, "budgets, those that allow the least, that have metrics of their own")
}

func (c *config) checkDisruption() error {
	d := &c.disruption
	switch {
	case d.enabled && c.namespace == "":
		return fmt.Errorf("--namespace: it is empty, and evictions there must not be checked")
	case d.budgets.ProjectPDBs && !d.enabled:
		return fmt.Errorf("--project-pdbs: true is not allowed without --budgets; there is nothing to project")
	case c.webhooks.evictions && !d.enabled:
		return fmt.Errorf("--webhook-evictions: true is not allowed without --budgets; no namespace would be labelled")
	case d.responder && !d.enabled:
		return fmt.Errorf("--eviction-responder: true is not allowed without --budgets; there is nothing to wait for")
	case c.webhooks.pods && !d.responder:
		return fmt.Errorf("--webhook-pods: true is not allowed without --eviction-responder; requests to evict the pods would wait 20 minutes for an answer")
	case d.budgets.Top < 0 || d.budgets.Top > 1000:
		return fmt.Errorf("--top-budgets: %d is not allowed; it must be from 0 to 1000", d.budgets.Top)
	}
	o := &d.budgets
	o.Own, o.Served, o.Service = c.namespace, c.webhooks.evictions, c.webhooks.service
	// Admission has most of the requests at any time.
	o.Workers, o.Rate = c.routing.Workers, max(1, c.qps/10)
	return nil
}

// addDisruption has the manager keep budgets, and returns what admits evictions.
func (c *config) addDisruption(ctx context.Context, mgr manager.Manager, syncs *shell.Syncs) (*reservation.Ledger, error) {
	if !c.disruption.enabled {
		return nil, nil
	}
	counted, err := reservation.NewMetrics(metrics.Registry)
	if err != nil {
		return nil, fmt.Errorf("registering metrics of evictions: %w", err)
	}
	ledger, err := reservation.New(ctx, mgr, reservation.Options{Metrics: counted, Ahead: c.clock.Ahead})
	if err != nil {
		return nil, err
	}
	if err := mgr.AddReadyzCheck("budgets", ledger.Synced); err != nil {
		return nil, err
	}
	options := c.disruption.budgets
	options.Syncs = syncs
	if err := budget.Add(ctx, mgr, ledger, options); err != nil {
		return nil, err
	}
	return ledger, c.addResponder(mgr, ledger, syncs)
}

// addResponder has the manager answer EvictionRequests, and know whether these are served.
func (c *config) addResponder(mgr manager.Manager, ledger *reservation.Ledger, syncs *shell.Syncs) error {
	if !c.disruption.responder {
		return nil
	}
	server, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("asking what the API server serves: %w", err)
	}
	c.requests = lifecycle.NewDetector(server, mgr.GetLogger().WithName("evictionrequests"))
	if err := mgr.Add(c.requests); err != nil {
		return err
	}
	return responder.Add(mgr, ledger, responder.Options{
		Served: c.requests.Served, Workers: c.routing.Workers, Reports: max(1, c.qps/10), Syncs: syncs,
	})
}
