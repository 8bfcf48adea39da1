package main

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"vicinity.dev/vicinity/internal/controller/budget"
	"vicinity.dev/vicinity/internal/controller/shell"
	"vicinity.dev/vicinity/internal/reservation"
)

// disruptionConfig says what is done for TopologyDisruptionBudgets.
type disruptionConfig struct {
	enabled bool
	budgets budget.Options
}

func (c *config) addDisruptionFlags(flags *pflag.FlagSet) {
	d := &c.disruption
	flags.BoolVar(&d.enabled, "budgets", false, "keep TopologyDisruptionBudgets: their status and events, and the label of namespaces by which evictions are checked")
	flags.BoolVar(&d.budgets.ProjectPDBs, "project-pdbs", false, "keep PodDisruptionBudgets, one for each zone, for budgets that these can express; without it those of before are removed")
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
	case d.budgets.Top < 0 || d.budgets.Top > 1000:
		return fmt.Errorf("--top-budgets: %d is not allowed; it must be from 0 to 1000", d.budgets.Top)
	}
	o := &d.budgets
	o.Own, o.Served, o.Service = c.namespace, c.webhooks.evictions, c.webhooks.service
	// Admission has most of the requests at any time.
	o.Workers, o.Rate = c.routing.Workers, max(1, c.qps/4)
	return nil
}

// addDisruption has the manager keep budgets, and returns what admits evictions.
func (c *config) addDisruption(ctx context.Context, mgr manager.Manager, syncs *shell.Syncs) (*reservation.Ledger, error) {
	if !c.disruption.enabled {
		return nil, nil
	}
	ledger, err := reservation.New(ctx, mgr, reservation.Options{})
	if err != nil {
		return nil, err
	}
	options := c.disruption.budgets
	options.Syncs = syncs
	return ledger, budget.Add(ctx, mgr, ledger, options)
}
