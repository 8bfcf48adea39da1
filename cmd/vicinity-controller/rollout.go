package main

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"vicinity.dev/vicinity/internal/controller/rollout"
	controller "vicinity.dev/vicinity/internal/controller/routing"
	"vicinity.dev/vicinity/internal/controller/shell"
	"vicinity.dev/vicinity/internal/requester"
	"vicinity.dev/vicinity/internal/reservation"
)

func (c *config) addRolloutFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&c.rollouts, "rollouts", false, "follow DomainRollouts: replace the pods of StatefulSets and DaemonSets with the update strategy OnDelete, and of Deployments whose pods wait for it, by failure domain, as budgets allow")
}

// addRollouts has the manager follow DomainRollouts. The ledger is nil if budgets are not kept.
func (c *config) addRollouts(ctx context.Context, mgr manager.Manager, ledger *reservation.Ledger, syncs *shell.Syncs) error {
	if !c.rollouts {
		return nil
	}
	evicts, err := c.requester(mgr)
	if err != nil {
		return err
	}
	options := rollout.Options{Workers: c.routing.Workers, Syncs: syncs, Plans: controller.NewForecast(mgr.GetClient(), c.routing)}
	if ledger != nil {
		options.Budgets = ledger
	}
	return rollout.Add(ctx, mgr, evicts, options)
}

// requester asks for evictions.
func (c *config) requester(mgr manager.Manager) (*requester.Requester, error) {
	api, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("making a client of evictions: %w", err)
	}
	served := func() bool { return false }
	if c.requests != nil {
		served = c.requests.Served
	}
	return requester.New(api, served), nil
}
