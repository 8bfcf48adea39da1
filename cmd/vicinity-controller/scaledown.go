package main

import (
	"context"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"vicinity.dev/vicinity/internal/controller/scaledown"
	"vicinity.dev/vicinity/internal/controller/shell"
)

// scaleDownConfig says what is done for Deployments and ReplicaSets that keep their spread.
type scaleDownConfig struct {
	enabled bool
	options scaledown.Options
}

func (c *config) addScaleDownFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&c.scaleDown.enabled, "scale-down", false, "keep the spread of Deployments and ReplicaSets that are annotated with vicinity.dev/keep-spread, or whose namespace is: by deletion costs of their pods")
}

func (c *config) checkScaleDown() {
	// Routing has half of the requests at any time, and PodLocators the rest of them for a while.
	o := &c.scaleDown.options
	o.Budgets, o.Workers, o.Rate, o.Burst = c.disruption.enabled, c.routing.Workers, max(1, c.qps/4), max(1, c.burst/4)
}

// addScaleDown has the manager keep spreads.
func (c *config) addScaleDown(ctx context.Context, mgr manager.Manager, syncs *shell.Syncs) error {
	if !c.scaleDown.enabled {
		return nil
	}
	evicts, err := c.requester(mgr)
	if err != nil {
		return err
	}
	options := c.scaleDown.options
	options.Syncs = syncs
	return scaledown.Add(ctx, mgr, evicts, options)
}
