package e2e_test

import (
	"time"

	"vicinity.dev/vicinity/lab/test/evictions"
)

// disruptionArea is how evictions are held to budgets by failure domain.
func disruptionArea() area {
	return area{
		name:  "disruption",
		setup: fleet,
		promises: []promise{
			{name: "contract", keep: evictionContract, tier: inTest},
			{name: "stories", keep: stories, within: 4 * time.Minute, beside: true, tier: inTest},
			{name: "bad-budgets", keep: badBudgets, within: 3 * time.Minute},
			{name: "recycle", keep: recycle, tier: inSoak},
			{name: "storm", keep: evictionStorm, within: 6 * time.Minute, tier: inTest},
			{name: "webhooks-down", keep: evictionWebhooksDown, within: 4 * time.Minute, tier: inTest},
			{name: "control-plane-away", keep: evictionsWithoutControlPlane, within: 6 * time.Minute},
			{name: "replica-lost", keep: evictionsWithoutAReplica, alone: true, tier: inSoak},
			{name: "zone-lost", keep: evictionsInLostZone, within: 4 * time.Minute},
			{name: "autoscaler", keep: autoscaler, within: 10 * time.Minute},
		},
	}
}

// field is the scene for evictions.
func (s *scene) field() *evictions.Field {
	return &evictions.Field{
		Client: s.Client, Shape: s.cluster.Shape(), Namespace: s.namespace, Kubectl: root + "/bin/kubectl", Kubeconfig: s.cluster.Kubeconfig(),
	}
}
