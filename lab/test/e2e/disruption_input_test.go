package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab/test/evictions"
)

// badBudgets has budgets that do little good taken with a warning, in words that name why, and budgets
// that change amid evictions keep to what they say.
func badBudgets(ctx context.Context, s *scene) (string, error) {
	f := s.field()
	w := evictions.Workload{Name: "bad", Replicas: 6}
	if err := f.Run(ctx, "", w); err != nil {
		return "", err
	}
	const all = "apiVersion: vicinity.dev/v1alpha1\nkind: TopologyDisruptionBudget\nmetadata: {name: all}\nspec: {selector: {}, maxUnavailable: 1}\n"
	const nowhere = "apiVersion: vicinity.dev/v1alpha1\nkind: TopologyDisruptionBudget\nmetadata: {name: nowhere}\n" +
		"spec: {selector: {matchLabels: {app: bad}}, maxUnavailable: 1, nodeSelectorTerm: {matchExpressions: [{key: example.com/nowhere, operator: Exists}]}}\n"
	for _, warned := range []struct{ what, manifest, want string }{
		{"a selector that matches everything", all, "selector"},
		{"a budget that covers no node", nowhere, "example.com/nowhere"},
	} {
		text, err := s.warnings(ctx, warned.manifest)
		if err != nil {
			return "", err
		}
		if !strings.Contains(text, warned.want) {
			return "", fmt.Errorf("%s is taken with the warning %q, which does not name %q", warned.what, text, warned.want)
		}
	}
	if err := s.Delete(ctx, s.namespace, all+"---\n"+nowhere); err != nil {
		return "", err
	}
	if err := s.budgetChanges(ctx, w); err != nil {
		return "", err
	}
	took, err := s.thousandBudgets(ctx, w)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("2 mistakes warned of by name; a budget was edited, deleted and its domains relabelled amid evictions; with 1,000 budgets in its namespace a pod is evicted in %v",
		took.Round(time.Millisecond)), nil
}

// budgetChanges edits a budget, relabels a node and deletes the budget while a pod is reserved.
func (s *scene) budgetChanges(ctx context.Context, w evictions.Workload) (err error) {
	f := s.field()
	budget := func(most int) string {
		return evictions.ByZone("bad", "app", w.Name, fmt.Sprintf("maxUnavailable: %d", most))
	}
	if err := f.Run(ctx, budget(0)); err != nil {
		return err
	}
	pods, err := f.Pods(ctx, w.Name, f.Zones()[0])
	if err != nil {
		return err
	}
	if err := f.Evict(ctx, pods[0].Name, nil); !apierrors.IsTooManyRequests(err) {
		return fmt.Errorf("a budget of 0 gives %w", err)
	}
	// Decisions are by the newest spec, not only once its status is written.
	if err := s.Apply(ctx, s.namespace, budget(1)); err != nil {
		return err
	}
	if err := s.admitted(ctx, "an edited budget to admit an eviction", pods[0].Name); err != nil {
		return err
	}
	if err := errors.Join(f.WaitDeployment(ctx, f.Namespace, w.Name), f.AtRest(ctx)); err != nil {
		return err
	}
	// A pod whose node changes its zone is one of the other zone, whose pods are then three.
	node := pods[1].Spec.NodeName
	if err := s.labelNode(ctx, node, "elsewhere"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.labelNode(context.WithoutCancel(ctx), node, f.Zones()[0])) }()
	err = kube.Wait(ctx, "a new domain to be known", func(ctx context.Context) (string, error) {
		all, err := f.Budgets(ctx)
		if err != nil {
			return "", err
		}
		for i := range all {
			for _, d := range all[i].Status.Domains {
				if d.Domain == "elsewhere" {
					return "", nil
				}
			}
		}
		return "it is not", nil
	})
	if err != nil {
		return err
	}
	// A budget that goes while a pod is reserved takes its reservation along.
	pods, err = f.Pods(ctx, w.Name, f.Zones()[1])
	if err != nil {
		return err
	}
	if err := f.Evict(ctx, pods[0].Name, nil); err != nil {
		return err
	}
	if err := s.Delete(ctx, s.namespace, budget(1)); err != nil {
		return err
	}
	return s.admitted(ctx, "evictions without a budget", pods[1].Name)
}

// admitted waits until a pod is evicted.
func (s *scene) admitted(ctx context.Context, what, pod string) error {
	return kube.Wait(ctx, what, func(ctx context.Context) (string, error) {
		if err := s.field().Evict(ctx, pod, nil); err != nil && !apierrors.IsNotFound(err) {
			return err.Error(), nil
		}
		return "", nil
	})
}

// thousandBudgets makes 1,000 budgets of which one covers a pod, and measures how long an eviction
// of it takes.
func (s *scene) thousandBudgets(ctx context.Context, w evictions.Workload) (time.Duration, error) {
	f := s.field()
	var manifests []string
	for i := range 999 {
		manifests = append(manifests, evictions.ByZone(fmt.Sprintf("other-%d", i), "app", fmt.Sprintf("other-%d", i), "maxUnavailable: 1"))
	}
	manifests = append(manifests, evictions.ByZone("bad", "app", w.Name, "maxUnavailable: 1"))
	if err := f.ApplyAll(ctx, manifests); err != nil {
		return 0, err
	}
	if err := f.WaitDeployment(ctx, f.Namespace, w.Name); err != nil {
		return 0, err
	}
	pods, err := f.Pods(ctx, w.Name, f.Zones()[2])
	if err != nil {
		return 0, err
	}
	var took time.Duration
	return took, kube.Wait(ctx, "an eviction among 1,000 budgets", func(ctx context.Context) (string, error) {
		begun := time.Now()
		if err := f.Evict(ctx, pods[0].Name, nil); err != nil {
			return err.Error(), nil
		}
		took = time.Since(begun)
		return "", nil
	})
}
