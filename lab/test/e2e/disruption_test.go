package e2e_test

import (
	"context"
	"fmt"
	"time"

	"vicinity.dev/vicinity/lab/test/bench/meter"
	"vicinity.dev/vicinity/lab/test/evictions"
	"vicinity.dev/vicinity/test/kube"
)

// disruptionArea covers evictions under budgets by failure domain.
func disruptionArea() area {
	return area{
		name:  "disruption",
		setup: fleet,
		promises: []promise{
			{name: "contract", keep: evictionContract, tier: inTest},
			{name: "stories", keep: stories, within: 4 * time.Minute, beside: true, tier: inTest},
			{name: "many-budgets", keep: manyBudgets, within: 3 * time.Minute},
			{name: "storm", keep: evictionStorm, within: 6 * time.Minute, tier: inTest},
			{name: "webhooks-down", keep: evictionWebhooksDown, within: 4 * time.Minute, tier: inTest},
			{name: "control-plane-away", keep: evictionsWithoutControlPlane, within: 6 * time.Minute},
			{name: "replica-lost", keep: evictionsWithoutAReplica, alone: true, tier: inSoak},
			{name: "zone-lost", keep: evictionsInLostZone, within: 4 * time.Minute},
			{name: "autoscaler", keep: autoscaler, within: 10 * time.Minute},
		},
	}
}

// field returns the scene in the form that evictions need.
func (s *scene) field() *evictions.Field {
	return &evictions.Field{
		Client: s.Client, Shape: s.cluster.Shape(), Namespace: s.namespace, Kubectl: root + "/bin/kubectl", Kubeconfig: s.cluster.Kubeconfig(),
	}
}

// evictionStorm evicts pods, many at a time, under a budget for each workload and then under one
// budget. Meanwhile pods die, and one of two replicas of the controller is killed and comes back.
// No eviction exceeds a budget.
func evictionStorm(ctx context.Context, s *scene) (string, error) {
	o := evictions.BudgetsOptions{Workloads: 10, Evictions: 30, Died: 500 * time.Millisecond}
	if soaking() {
		o.Workloads, o.Evictions = 100, 5000
	}
	// This is about as many as one budget for all allows, so that it refuses some.
	o.InFlight = 2 * o.Workloads
	f := s.field()
	check(f.Run(ctx, "", evictions.CrowdWorkloads(o.Workloads)...))
	shaken := o
	shaken.Midway, shaken.Hasty = s.killWebhook, !soaking()
	many, err := f.EvictCrowd(ctx, shaken)
	if err != nil {
		return "", fmt.Errorf("over %d budgets: %w", o.Workloads, err)
	}
	check(s.waitControllers(ctx))
	o.OneBudget = true
	one, err := f.EvictCrowd(ctx, o)
	if err != nil {
		return "", fmt.Errorf("over one budget: %w", err)
	}
	if one.Failed > 0 {
		return "", fmt.Errorf("with both replicas running %d evictions got no answer, such as %q", one.Failed, one.Failures)
	}
	all := many.Add(one.Figures)
	over := many.OverBudget + many.Unreserved + one.OverBudget + one.Unreserved
	return fmt.Sprintf("%d evictions over %d budgets and one, %d at a time, %d refused and %d deaths meanwhile: %d over budget; %.0f a second, %.0f ms at p99; "+
		"%d without an answer while a webhook was killed, and a death unknown for %.0f s at most",
		all.Admitted, o.Workloads, o.InFlight, all.Refused, all.Deaths, over, all.PerSecond(), meter.Milliseconds(meter.Quantile(all.Times, 0.99)),
		many.Failed, max(many.Unseen, one.Unseen).Seconds()), nil
}

// killWebhook kills one of the controller's pods.
func (s *scene) killWebhook(ctx context.Context) error {
	pods, err := controllers(ctx, s.Client)
	if err != nil {
		return err
	}
	if len(pods) != 2 {
		return fmt.Errorf("%d pods of the controller are ready, want 2", len(pods))
	}
	return s.CoreV1().Pods(vicinityNamespace).Delete(ctx, pods[0].Name, atOnce())
}

// autoscaler runs drainers that know only PodDisruptionBudgets, and repeat refused evictions every
// second. Each refusal costs one answer and no write.
func autoscaler(ctx context.Context, s *scene) (string, error) {
	f := s.field()
	nodes, during := 200, 10*time.Second
	if soaking() {
		nodes, during = 500, 10*time.Minute
	}
	w := evictions.Workload{Name: "idle", Replicas: nodes}
	check(f.Run(ctx, evictions.ByZone("idle", "app", "idle", "maxUnavailable: 0"), w))
	pods := must(f.Pods(ctx, w.Name, ""))
	figures := must(f.Retry(ctx, during, names(pods), map[string]int{w.Name: nodes}))
	if figures.Failed >= figures.Refused {
		return "", fmt.Errorf("%d evictions were refused, and %d got no answer, such as %q", figures.Refused, figures.Failed, figures.Failure)
	}
	if figures.Writes > figures.Admitted {
		return "", fmt.Errorf("%d refusals and %d evictions of pods that were ending wrote budgets %d times", figures.Refused, figures.Admitted, figures.Writes)
	}
	perRefusal := figures.Calls / float64(figures.Refused)
	if most := 1.5; perRefusal > most {
		return "", fmt.Errorf("a refusal costs %.2f API calls, more than %.1f", perRefusal, most)
	}
	return fmt.Sprintf("%d drainers ask every second: %.0f refusals a second, %.2f API calls each and no write; %d got no answer in time", nodes,
		float64(figures.Refused)/figures.Took.Seconds(), perRefusal, figures.Failed), nil
}

// manyBudgets makes 1,000 budgets, one of them for a pod, and measures how long an eviction of the
// pod takes.
func manyBudgets(ctx context.Context, s *scene) (string, error) {
	f := s.field()
	w := evictions.Workload{Name: "one", Replicas: 6}
	check(f.Run(ctx, "", w))
	manifests := []string{evictions.ByZone("one", "app", w.Name, "maxUnavailable: 1")}
	for i := range 999 {
		manifests = append(manifests, evictions.ByZone(fmt.Sprintf("other-%d", i), "app", fmt.Sprintf("other-%d", i), "maxUnavailable: 1"))
	}
	check(f.ApplyAll(ctx, manifests))
	pods := must(f.Pods(ctx, w.Name, ""))
	var took time.Duration
	err := kube.Wait(ctx, "an eviction among 1,000 budgets", func(ctx context.Context) (string, error) {
		begun := time.Now()
		if err := f.Evict(ctx, pods[0].Name, nil); err != nil {
			return err.Error(), nil
		}
		took = time.Since(begun)
		return "", nil
	})
	return fmt.Sprintf("with 1,000 budgets in its namespace a pod is evicted in %v", took.Round(time.Millisecond)), err
}
