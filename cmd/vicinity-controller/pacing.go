package main

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	controller "vicinity.dev/vicinity/internal/controller/pacing"
	"vicinity.dev/vicinity/internal/controller/shell"
	"vicinity.dev/vicinity/internal/pacing"
	"vicinity.dev/vicinity/internal/reservation"
)

func (c *config) addPacingFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&c.webhooks.scales, "pace-scale-downs", false, "serve the webhooks that hold scale-downs to TopologyDisruptionBudgets in namespaces with the label vicinity.dev/pace-scale-down, and go on with those that were not allowed whole")
}

func (c *config) checkPacing() error {
	switch {
	case !c.webhooks.scales:
		return nil
	case !c.disruption.enabled:
		return fmt.Errorf("--pace-scale-downs: true is not allowed without --budgets; there is nothing to hold scale-downs to")
	case c.serviceAccount == "":
		return fmt.Errorf("--service-account: it is empty, and the webhooks of scale-downs must know which writes are the controller's own")
	}
	return nil
}

// addPacing has the manager go on with scale-downs, and returns what says how far these may go.
func (c *config) addPacing(ctx context.Context, mgr manager.Manager, ledger *reservation.Ledger, syncs *shell.Syncs) (*pacing.Pacer, error) {
	if !c.webhooks.scales {
		return nil, nil
	}
	pacer := pacing.New(ledger, mgr.GetAPIReader(), mgr.GetClient())
	return pacer, controller.Add(ctx, mgr, pacer, controller.Options{Workers: c.routing.Workers, Syncs: syncs})
}
