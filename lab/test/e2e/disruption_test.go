package e2e_test

import (
	"context"
	"time"

	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/test/evictions"
)

// disruptionArea is how evictions are held to budgets by failure domain.
func disruptionArea() area {
	return area{
		name:  "disruption",
		shape: disruptionShape,
		prepare: func(ctx context.Context, c *lab.Cluster) error {
			return c.InstallVicinity(ctx, "disruption.enabled=true", "disruption.evictionRequests=true")
		},
		promises: []promise{
			{name: "drain-waits", keep: drainWaits},
			{name: "contract", keep: evictionContract},
			{name: "stories", keep: stories, within: 4 * time.Minute, beside: true},
			{name: "requests", keep: evictionRequests, within: 3 * time.Minute, beside: true},
			{name: "never-blocked", keep: neverBlocked, within: 3 * time.Minute, beside: true},
			{name: "bad-budgets", keep: badBudgets, within: 3 * time.Minute},
			{name: "recycle", keep: recycle, within: time.Hour},
			{name: "storm", keep: evictionStorm, within: time.Hour},
			{name: "webhooks-down", keep: evictionWebhooksDown, within: 4 * time.Minute},
			{name: "control-plane-away", keep: evictionsWithoutControlPlane, within: 6 * time.Minute},
			{name: "zone-lost", keep: evictionsInLostZone, within: 4 * time.Minute},
			{name: "autoscaler", keep: autoscaler, within: 10 * time.Minute},
		},
	}
}

// disruptionShape is a lab of three zones with a node each, where the controller runs, and nodes
// without network, for the pods that are evicted.
func disruptionShape() shape.Shape {
	s, err := shape.FromOptions(shape.Options{Name: "disruption", NodesPerZone: []int{1}, FakeNodes: 36, SingleStack: true, EvictionRequests: true, DNS: string(shape.DNSNone)})
	if err != nil {
		panic(err) // the options are constants
	}
	return s
}

// field is the scene for evictions.
func (s *scene) field() *evictions.Field {
	return &evictions.Field{
		Client: s.Client, Shape: s.cluster.Shape(), Namespace: s.namespace, Kubectl: root + "/bin/kubectl", Kubeconfig: s.cluster.Kubeconfig(),
	}
}
