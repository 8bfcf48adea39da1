package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/lab/test/evictions"
	"vicinity.dev/vicinity/test/kube"
)

// story is the YAML of one of the proposal's stories, from the documentation. Stories without a workload of their own share a
// Deployment.
func story(number int) (string, error) {
	text, err := os.ReadFile(root + "/docs/disruption.md")
	if err != nil {
		return "", err
	}
	block, err := documentedBlock(string(text), "yaml", fmt.Sprintf("# story: %d", number))
	if err != nil || strings.Contains(block, "replicas:") {
		return block, err
	}
	deployment, err := documentedBlock(string(text), "yaml", "# stories: Deployment")
	return block + "\n---\n" + deployment, err
}

// storyCheck describes how a story is checked.
type storyCheck struct {
	number int
	// drains returns the nodes to drain at once.
	drains func(*evictions.Field, []corev1.Pod) []string
	// within, if given, runs beside the drains.
	within func(context.Context, *scene, *evictions.Field, []corev1.Pod) error
	// budgets has the domains of zones by which each budget is checked; other zones are not
	// covered.
	budgets map[string]map[string]string
	// expected is the number of pods that each budget expects.
	expected int
}

// storyChecks returns the stories, with drains of whole zones, of nodes in different zones at once,
// and of one node.
func storyChecks(zones []string) []storyCheck {
	a, b, c := zones[0], zones[1], zones[2]
	own := map[string]string{a: a, b: b, c: c}
	one := map[string]string{a: "all", b: "all", c: "all"}
	nodesIn := func(zones ...string) func(*evictions.Field, []corev1.Pod) []string {
		return func(f *evictions.Field, pods []corev1.Pod) []string { return nodesOfPods(f, pods, 0, zones...) }
	}
	oneNodeIn := func(zones ...string) func(*evictions.Field, []corev1.Pod) []string {
		return func(f *evictions.Field, pods []corev1.Pod) []string { return nodesOfPods(f, pods, 1, zones...) }
	}
	return []storyCheck{
		{
			number: 1, drains: nodesIn(a, b), within: opensZone(a, b),
			budgets: map[string]map[string]string{"app-pdb": {c: c}}, expected: 2,
		},
		{number: 2, drains: oneNodeIn(b, c), budgets: map[string]map[string]string{"app-pdb": own}, expected: 6},
		{number: 3, drains: oneNodeIn(a), budgets: map[string]map[string]string{"app-pdb": one}, expected: 6},
		{number: 4, drains: nodesIn(b), budgets: map[string]map[string]string{"app-pdb": one, "app-pdb-zones": own}, expected: 6},
	}
}

// nodesOfPods returns the nodes with pods in some zones: at most so many of each zone, or all for
// 0.
func nodesOfPods(f *evictions.Field, pods []corev1.Pod, most int, zones ...string) []string {
	domains := evictions.Domains(f.Shape)
	var nodes []string
	for _, zone := range zones {
		seen := map[string]bool{}
		for i := range pods {
			node := pods[i].Spec.NodeName
			if domains[node] != zone || seen[node] || most > 0 && len(seen) == most {
				continue
			}
			seen[node] = true
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// stories checks that the proposal's stories, as documented, hold during kubectl drain.
func stories(ctx context.Context, s *scene) (string, error) {
	var figures []string
	for _, t := range storyChecks(s.field().Zones()) {
		figure, err := s.checkStory(ctx, t)
		if err != nil {
			return "", fmt.Errorf("story %d: %w", t.number, err)
		}
		figures = append(figures, figure)
	}
	return strings.Join(figures, "; "), nil
}

func (s *scene) checkStory(ctx context.Context, t storyCheck) (figure string, err error) {
	manifests, err := story(t.number)
	if err != nil {
		return "", err
	}
	f := s.field()
	if f.Namespace, err = s.MakeNamespace(ctx, fmt.Sprintf("story-%d", t.number)); err != nil {
		return "", err
	}
	defer undo(&err, func() error {
		ctx := context.WithoutCancel(ctx)
		return errors.Join(s.removeStory(ctx, f.Namespace, manifests), s.RemoveNamespace(ctx, f.Namespace))
	})
	if err := f.Apply(ctx, f.Namespace, manifests); err != nil {
		return "", err
	}
	const all = 6
	var pods []corev1.Pod
	err = kube.Wait(ctx, "the pods of the story", func(ctx context.Context) (string, error) {
		if pods, err = f.Pods(ctx, "foo", ""); err != nil || len(pods) == all {
			return "", err
		}
		return fmt.Sprintf("%d of %d are ready", len(pods), all), nil
	})
	if err != nil {
		return "", err
	}
	if err := f.AtRest(ctx); err != nil {
		return "", err
	}
	h, err := f.Follow(ctx)
	if err != nil {
		return "", err
	}
	defer h.Stop()
	nodes := t.drains(f, pods)
	defer undo(&err, func() error { return f.SetSchedulable(context.WithoutCancel(ctx), true, nodes...) })
	// No replacement starts on a node whose drain begins later.
	if err := f.SetSchedulable(ctx, false, nodes...); err != nil {
		return "", err
	}
	var beside error
	done := make(chan struct{})
	go func() {
		defer close(done)
		if t.within != nil {
			beside = t.within(ctx, s, f, pods)
		}
	}()
	begun := time.Now()
	printed, err := f.Drain(ctx, "app=foo", nodes)
	<-done
	if err := errors.Join(err, beside); err != nil {
		return "", err
	}
	took := time.Since(begun)
	if err := f.AtRest(ctx); err != nil {
		return "", err
	}
	evicted := 0
	for budget, zones := range t.budgets {
		report, err := f.JudgeBy(ctx, h, zones, map[string]int{budget: t.expected})
		if err != nil {
			return "", err
		}
		evicted = report.Evictions
	}
	return fmt.Sprintf("story %d: %d nodes drained in %.0f s, %d pods evicted, with %d refusals",
		t.number, len(nodes), took.Seconds(), evicted, strings.Count(printed, "will retry after 5s")), nil
}

// removeStory deletes a story and waits until its pods are gone: the pods of the next one have the
// same labels, on the same nodes.
func (s *scene) removeStory(ctx context.Context, namespace, manifests string) error {
	if err := s.Delete(ctx, namespace, manifests); err != nil {
		return err
	}
	return kube.Wait(ctx, "the pods of the story to be deleted", func(ctx context.Context) (string, error) {
		list, err := s.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			return fmt.Sprintf("%d remain", len(list.Items)), nil
		}
		return "", err
	})
}

// opensZone waits until all pods of the first zone are replaced and none of the second. Then it
// frees the second zone as an operator does. The budget reports the free zone, and no fault.
func opensZone(first, second string) func(context.Context, *scene, *evictions.Field, []corev1.Pod) error {
	return func(ctx context.Context, s *scene, f *evictions.Field, pods []corev1.Pod) error {
		domains, want := evictions.Domains(f.Shape), 0
		for i := range pods {
			if domains[pods[i].Spec.NodeName] == second {
				want++
			}
		}
		err := kube.Wait(ctx, "the pods of "+first+" to be replaced", func(ctx context.Context) (string, error) {
			list, err := f.CoreV1().Pods(f.Namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return "", err
			}
			left := map[string]int{}
			for i := range list.Items {
				if slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.UID == list.Items[i].UID }) {
					left[domains[list.Items[i].Spec.NodeName]]++
				}
			}
			if left[second] < want {
				return fmt.Sprintf("%d of %d pods of %s are left before its turn", left[second], want, second), nil
			}
			if left[first] > 0 {
				return fmt.Sprintf("%d are left", left[first]), nil
			}
			return "", nil
		})
		if err != nil {
			return err
		}
		for _, args := range [][]string{{"--to", second, "--dry-run"}, {"--to", second}} {
			if err := reportsFree(ctx, f, first); err != nil {
				return err
			}
			if _, err := s.vicinity(ctx, append([]string{"budget", "advance", "app-pdb", "-n", f.Namespace}, args...)...); err != nil {
				return err
			}
		}
		return reportsFree(ctx, f, second)
	}
}

// reportsFree waits until the conditions of a story's budget name one free zone, and no fault.
func reportsFree(ctx context.Context, f *evictions.Field, zone string) error {
	return kube.Wait(ctx, "the budget to name the free zone "+zone, func(ctx context.Context) (string, error) {
		all, err := f.Budgets(ctx)
		if err != nil {
			return "", err
		}
		for i := range all {
			for _, kind := range []string{v1alpha1.ConditionSatisfiable, v1alpha1.ConditionDisruptionAllowed} {
				c := evictions.Condition(&all[i], kind)
				if c == nil || c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, fmt.Sprintf("Only pods of zone %q may be evicted now.", zone)) {
					return fmt.Sprintf("the condition of %s is %+v", all[i].Name, c), nil
				}
			}
		}
		return "", nil
	})
}
