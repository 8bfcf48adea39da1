package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/lab/test/evictions"
	"vicinity.dev/vicinity/test/kube"
)

// calmStorm evicts pods of a workload, a few at a time, while do runs, and some more afterwards.
func (s *scene) calmStorm(ctx context.Context, h *evictions.History, inFlight int, do func(context.Context, *evictions.Storm) error) (evictions.Figures, error) {
	storm := &evictions.Storm{API: s.Client, History: h, InFlight: inFlight}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := do(ctx, storm); err != nil {
			cancel(err)
			return
		}
		const after = 10
		storm.End(after)
	}()
	figures, err := storm.Run(ctx)
	<-done
	return figures, err
}

// waitEvictions waits until more evictions are admitted.
func waitEvictions(ctx context.Context, storm *evictions.Storm, more int) error {
	before := storm.Progress()
	return kube.Wait(ctx, "further evictions", func(context.Context) (string, error) {
		if n := storm.Progress() - before; n < more {
			return fmt.Sprintf("%d of %d were admitted", n, more), nil
		}
		return "", nil
	})
}

// evictionWebhooksDown stops webhooks during evictions. While one of two is away, evictions
// succeed. Without both, only evictions in namespaces with a budget fail.
func evictionWebhooksDown(ctx context.Context, s *scene) (figure string, err error) {
	f := s.field()
	w := evictions.Workload{Name: "calm", Replicas: 12}
	check(f.Run(ctx, evictions.ByZone("calm", "app", "calm", "maxUnavailable: 1"), w))
	h := must(f.Follow(ctx))
	defer h.Stop()
	figures := must(s.calmStorm(ctx, h, 4, func(ctx context.Context, storm *evictions.Storm) error {
		if err := waitEvictions(ctx, storm, 10); err != nil {
			return err
		}
		pods, err := controllers(ctx, s.Client)
		if err != nil {
			return err
		}
		if err := s.CoreV1().Pods(vicinityNamespace).Delete(ctx, pods[0].Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		return errors.Join(waitEvictions(ctx, storm, 20), s.waitControllers(ctx))
	}))
	if figures.Failed > 0 {
		return "", fmt.Errorf("while a webhook was replaced %d evictions of %d failed, such as %q", figures.Failed, figures.Admitted+figures.Refused, figures.Failures)
	}
	must(f.Judge(ctx, h, map[string]int{"calm": w.Replicas}))
	message := must(s.withoutWebhooks(ctx, w.Name))
	return fmt.Sprintf("%d evictions while a webhook was replaced, 0 failed; without both %q, and other namespaces are not affected", figures.Admitted, message), nil
}

// withoutWebhooks stops all webhooks, and returns the message of an eviction under a budget.
func (s *scene) withoutWebhooks(ctx context.Context, workload string) (message string, err error) {
	f := s.field()
	other := s.field()
	other.Namespace = must(s.MakeNamespace(ctx, "free"))
	defer undo(&err, func() error { return s.RemoveNamespace(context.WithoutCancel(ctx), other.Namespace) })
	free := evictions.Workload{Name: "free", Replicas: 3}
	check(other.Run(ctx, "", free))
	check(s.replicas(ctx, 0))
	defer undo(&err, func() error {
		ctx := context.WithoutCancel(ctx)
		return errors.Join(s.replicas(ctx, 2), s.waitControllers(ctx))
	})
	pods := must(f.Pods(ctx, workload, ""))
	check(kube.Wait(ctx, "evictions to fail", func(ctx context.Context) (string, error) {
		failed := f.Evict(ctx, pods[0].Name, &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsInternalError(failed) || !strings.Contains(failed.Error(), "vicinity.dev") {
			return fmt.Sprintf("the answer is %v", failed), nil
		}
		message = failed.Error()
		return "", nil
	}))
	others := must(other.Pods(ctx, free.Name, ""))
	if err := other.Evict(ctx, others[0].Name, nil); err != nil {
		return "", fmt.Errorf("in a namespace without a budget: %w", err)
	}
	if err := f.CoreV1().Pods(f.Namespace).Delete(ctx, pods[0].Name, metav1.DeleteOptions{}); err != nil {
		return "", fmt.Errorf("deleting a pod that a budget covers: %w", err)
	}
	return message, f.WaitDeployment(ctx, f.Namespace, workload)
}

// evictionsWithoutControlPlane kills the leading controller and the API server and stops etcd for a
// while, during evictions. No eviction exceeds a budget, and evictions resume.
func evictionsWithoutControlPlane(ctx context.Context, s *scene) (string, error) {
	stopped := 3 * time.Second
	if soaking() {
		stopped = time.Minute
	}
	f := s.field()
	w := evictions.Workload{Name: "shaken", Replicas: 30}
	check(f.Run(ctx, evictions.ByZone("shaken", "app", "shaken", "maxUnavailable: 2", "maxUnavailableTotal: 4"), w))
	h := must(f.Follow(ctx))
	defer h.Stop()
	figures := must(s.calmStorm(ctx, h, 20, func(ctx context.Context, storm *evictions.Storm) error {
		if err := waitEvictions(ctx, storm, 10); err != nil {
			return err
		}
		leader, err := s.leader(ctx)
		if err != nil {
			return err
		}
		if leader == "" {
			return errors.New("no controller is the leader")
		}
		if err := s.CoreV1().Pods(vicinityNamespace).Delete(ctx, leader, atOnce()); err != nil {
			return err
		}
		if err := errors.Join(waitEvictions(ctx, storm, 10), s.waitControllers(ctx)); err != nil {
			return err
		}
		if err := errors.Join(s.cluster.KillComponent(ctx, "kube-apiserver"), s.cluster.StartComponent(ctx, "kube-apiserver")); err != nil {
			return err
		}
		if err := waitEvictions(ctx, storm, 10); err != nil {
			return err
		}
		if err := s.cluster.StopComponent(ctx, "etcd"); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(stopped):
		}
		if err := s.cluster.StartComponent(ctx, "etcd"); err != nil {
			return err
		}
		return waitEvictions(ctx, storm, 10)
	}))
	// Interrupted reservations expire after two minutes. The short form does not wait for that.
	err := f.WaitDeployment(ctx, f.Namespace, w.Name)
	if err == nil && soaking() {
		err = f.AtRest(ctx)
	}
	check(err)
	report := must(f.Judge(ctx, h, map[string]int{"shaken": w.Replicas}))
	return fmt.Sprintf("the leader and the API server killed, etcd stopped for %v: %d evictions, %d over budget, %d without an answer; the history has %d gaps",
		stopped, figures.Admitted, report.OverBudget, figures.Failed, report.Gaps), s.waitControllers(ctx)
}

// evictionsInLostZone cuts off a zone: evictions elsewhere are refused until it is back.
func evictionsInLostZone(ctx context.Context, s *scene) (figure string, err error) {
	f := s.field()
	w := evictions.Workload{Name: "zonal", Replicas: 18, Toleration: 3 * time.Second}
	check(f.Run(ctx, evictions.ByZone("zonal", "app", "zonal", "maxUnavailable: 2", "maxUnavailableDomains: 1"), w))
	lost, kept := f.Zones()[2], f.Zones()[0]
	elsewhere := must(f.Pods(ctx, w.Name, kept))
	dry := &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	if err := f.Evict(ctx, elsewhere[0].Name, dry); err != nil {
		return "", fmt.Errorf("before: %w", err)
	}
	heal := func(ctx context.Context) error {
		failed := []error{s.cluster.HealZone(ctx, lost)}
		for _, node := range f.Nodes(lost) {
			failed = append(failed, s.cluster.StartNode(ctx, node))
		}
		return errors.Join(append(failed, s.waitControllers(ctx))...)
	}
	healed := false
	defer undo(&err, func() error {
		if healed {
			return nil
		}
		return heal(context.WithoutCancel(ctx))
	})
	begun := time.Now()
	for _, node := range f.Nodes(lost) {
		check(s.cluster.StopNode(ctx, node))
	}
	check(s.cluster.CutZone(ctx, lost))
	message := ""
	check(kube.Wait(ctx, "evictions elsewhere to be refused", func(ctx context.Context) (string, error) {
		refused := f.Evict(ctx, elsewhere[0].Name, dry)
		if !apierrors.IsTooManyRequests(refused) || !strings.Contains(refused.Error(), lost) {
			return fmt.Sprintf("the answer is %v", refused), nil
		}
		message = refused.Error()
		return "", nil
	}))
	frozen := time.Since(begun)
	if err := f.Evict(ctx, elsewhere[0].Name, dry); !apierrors.IsTooManyRequests(err) {
		return "", fmt.Errorf("an eviction elsewhere while the zone is lost: got %w", err)
	}
	check(heal(ctx))
	healed = true
	begun = time.Now()
	check(kube.Wait(ctx, "evictions elsewhere to be admitted", func(ctx context.Context) (string, error) {
		if err := f.Evict(ctx, elsewhere[0].Name, dry); err != nil {
			return err.Error(), nil
		}
		return "", nil
	}))
	return fmt.Sprintf("elsewhere evictions are refused %.1f s after the loss of the zone (%s), and admitted %.1f s after its return",
		frozen.Seconds(), message, time.Since(begun).Seconds()), nil
}
