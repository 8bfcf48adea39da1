package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"vicinity.dev/vicinity/lab/test/bench/meter"
	"vicinity.dev/vicinity/lab/test/evictions"
	"vicinity.dev/vicinity/test/kube"
)

// disruptionArea is how evictions are held to budgets by failure domain.
func disruptionArea() area {
	return area{
		name:  "disruption",
		setup: fleet,
		promises: []promise{
			{name: "contract", keep: evictionContract, tier: inTest},
			{name: "stories", keep: stories, within: 4 * time.Minute, beside: true, tier: inTest},
			{name: "many-budgets", keep: manyBudgets, within: 3 * time.Minute},
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

// evictionStorm evicts pods, many at a time, over as many budgets as workloads and then over one, while
// pods die and one of two replicas of the controller is killed and comes back. None is admitted beyond a budget.
func evictionStorm(ctx context.Context, s *scene) (string, error) {
	o := evictions.BudgetsOptions{Workloads: 10, Evictions: 30, Died: 500 * time.Millisecond}
	if soaking() {
		o.Workloads, o.Evictions = 100, 5000
	}
	// About as many as one budget over all allows, so that it refuses some.
	o.InFlight = 2 * o.Workloads
	f := s.field()
	check(f.Run(ctx, "", evictions.CrowdWorkloads(o.Workloads)...))
	shaken := o
	shaken.Midway, shaken.Hasty = s.killWebhook, !soaking()
	many, err := f.EvictCrowd(ctx, shaken)
	if err != nil {
		return "", fmt.Errorf("over %d budgets: %w", o.Workloads, err)
	}
	check(s.vicinityWorks(ctx))
	o.OneBudget = true
	one, err := f.EvictCrowd(ctx, o)
	if err != nil {
		return "", fmt.Errorf("over one budget: %w", err)
	}
	if one.Failed > 0 {
		return "", fmt.Errorf("with both replicas there %d evictions were not answered, such as %q", one.Failed, one.Failures)
	}
	if many.Webhook.Calls() == 0 || one.Webhook.Calls() == 0 {
		return "", errors.New("the API server has not counted the calls of eviction.vicinity.dev")
	}
	all := many.Add(one.Figures)
	over := many.OverBudget + many.Unreserved + one.OverBudget + one.Unreserved
	// A refusal costs a request too.
	asked := many.Calls + one.Calls
	calls, perAnswer := asked/float64(all.Admitted), asked/float64(all.Admitted+all.Refused)
	p99 := meter.Milliseconds(meter.Quantile(all.Times, 0.99))
	fmt.Printf("RESULT evictions=%d over_budget=%d p99_ms=%.1f per_second=%.1f api_calls_per_pod=%.2f api_calls_per_answer=%.2f\n", all.Admitted, over, p99, all.PerSecond(), calls, perAnswer)
	return fmt.Sprintf("%d evictions over %d budgets and one, %d at a time, %d refused and %d deaths meanwhile: over budget %d; %.0f a second, %.0f ms at p99, of which the webhook %v over many and %v over one; "+
		"%.2f API calls a pod and %.2f an answer, %.2f evictions a write over one budget; %d not answered while a webhook was killed, and a death not known for %.0f s at most",
		all.Admitted, o.Workloads, o.InFlight, all.Refused, all.Deaths, over, all.PerSecond(), p99, many.Webhook.Quantile(0.99), one.Webhook.Quantile(0.99),
		calls, perAnswer, float64(one.Reservations)/float64(one.Writes), many.Failed, max(many.Unseen, one.Unseen).Seconds()), nil
}

// killWebhook ends one of the controller's pods at once.
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

// recycle moves a service of 420 pods to other nodes, by draining its nodes: a zone at a time under
// a TopologyDisruptionBudget, a pod at a time under a PodDisruptionBudget.
func recycle(ctx context.Context, s *scene) (string, error) {
	const pods, startTime = 420, 2 * time.Second
	f := s.field()
	byZone := must(f.Recycle(ctx, evictions.RecycleOptions{
		Pods: pods, StartTime: startTime,
		Budget: evictions.ByZone("service", "app", "service", `maxUnavailable: "100%"`, "maxUnavailableDomains: 1"),
	}))
	if byZone.Report.Disturbed > 1 || byZone.Moved != pods {
		return "", fmt.Errorf("%d pods were moved with up to %d zones down, want %d and 1", byZone.Moved, byZone.Report.Disturbed, pods)
	}
	byPod := must(f.Recycle(ctx, evictions.RecycleOptions{
		Pods: pods, StartTime: startTime,
		Budget: evictions.OneAtATime("service"),
	}))
	if byPod.Moved == 0 {
		return "", errors.New("under a PodDisruptionBudget no pod was moved")
	}
	whole := byPod.Took * time.Duration(pods) / time.Duration(byPod.Moved)
	zones := time.Duration(len(f.Zones()))
	return fmt.Sprintf("%d pods that take %v to start: a zone at a time in %.0f s, never two zones down, at best %v; under a PodDisruptionBudget with maxUnavailable 1 %d pods in %.0f s, all in %.0f s, at best %v",
		pods, startTime, byZone.Took.Seconds(), zones*startTime, byPod.Moved, byPod.Took.Seconds(), whole.Seconds(), time.Duration(pods)*startTime), nil
}

// autoscaler has drainers that look at PodDisruptionBudgets alone ask every second for what a budget
// does not allow: each costs one answer.
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
		return "", fmt.Errorf("%d evictions were refused, and %d were not answered, such as %q", figures.Refused, figures.Failed, figures.Failure)
	}
	if figures.Writes > figures.Admitted {
		return "", fmt.Errorf("%d refusals and %d evictions of pods that were going wrote budgets %d times", figures.Refused, figures.Admitted, figures.Writes)
	}
	perRefusal := figures.Calls / float64(figures.Refused)
	if most := 1.5; perRefusal > most {
		return "", fmt.Errorf("a refusal costs %.2f API calls, more than %.1f", perRefusal, most)
	}
	return fmt.Sprintf("%d drainers ask every second: %.0f refusals a second, %.0f ms at p99, %.2f API calls each and no write; %d were not answered in time", nodes,
		float64(figures.Refused)/figures.Took.Seconds(), meter.Milliseconds(meter.Quantile(figures.Times, 0.99)), perRefusal, figures.Failed), nil
}

// manyBudgets makes 1,000 budgets of which one covers a pod, and measures how long an eviction of it takes.
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
