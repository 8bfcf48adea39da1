package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab/test/bench/meter"
)

// inNamespace is the scene with a namespace of its own, for a part of a promise that runs beside others.
func (s *scene) inNamespace(ctx context.Context, name string, do func(context.Context, *scene) error) (err error) {
	part := *s
	if part.namespace, err = s.MakeNamespace(ctx, name); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.RemoveNamespace(context.WithoutCancel(ctx), part.namespace)) }()
	return do(ctx, &part)
}

// withBoth does something with a StatefulSet and with a DaemonSet, beside each other.
func (s *scene) withBoth(ctx context.Context, do func(context.Context, *scene, string) error) error {
	kinds := []string{ofStatefulSet, ofDaemonSet}
	return meter.InParallel(ctx, len(kinds), len(kinds), func(ctx context.Context, i int) error {
		return s.inNamespace(ctx, strings.ToLower(kinds[i]), func(ctx context.Context, part *scene) error {
			if err := do(ctx, part, kinds[i]); err != nil {
				return fmt.Errorf("%s: %w", kinds[i], err)
			}
			return nil
		})
	})
}

// rolledByDomain updates workloads zone by zone, then once more while the controller that leads is killed whenever the status of a
// rollout changes.
func rolledByDomain(ctx context.Context, s *scene) (string, error) {
	var first, second seen
	err := s.withBoth(ctx, func(ctx context.Context, part *scene, kind string) error {
		r, err := part.roll(ctx, kind, "maxUnavailable: 2")
		if err != nil {
			return err
		}
		o, err := r.observe(ctx)
		if err != nil {
			return err
		}
		defer o.stop()
		if err := errors.Join(r.update(ctx, "2", "500ms", ""), r.completes(ctx, "2")); err != nil {
			return err
		}
		found := o.since()
		if kind == ofStatefulSet {
			first = found
		}
		return found.within(2, r.inOrder()...)
	})
	if err != nil {
		return "", err
	}
	kills := 0
	// Pods that take their time, or else all would be done before the controller can be killed often.
	r, err := s.roll(ctx, ofStatefulSet, "maxUnavailable: 2", "healthGate: {readyFor: 2s}")
	if err != nil {
		return "", err
	}
	o, err := r.observe(ctx)
	if err != nil {
		return "", err
	}
	defer o.stop()
	if err := r.update(ctx, "2", "500ms", ""); err != nil {
		return "", err
	}
	if kills, err = s.killAtEveryStep(ctx, r); err != nil {
		return "", err
	}
	if err := r.completes(ctx, "2"); err != nil {
		return "", err
	}
	if second = o.since(); kills < 3 {
		return "", fmt.Errorf("the controller was killed %d times, want 3 at least", kills)
	}
	return fmt.Sprintf("a StatefulSet and a DaemonSet by zones %v, %d pods of one zone down at most; with the leading controller killed %d times, one zone at a time as well",
		first.order, first.most, kills), second.within(2, r.inOrder()...)
}

// inOrder are the zones as rollouts update them.
func (r *rolled) inOrder() []string {
	zones := r.Zones()
	return []string{zones[1], zones[0], zones[2]}
}

// killAtEveryStep kills the controller that leads each time that the status of the rollout has changed, until it is complete. The first
// time its lease has to run out; then it gives it back, so that the next one is killed soon.
func (s *scene) killAtEveryStep(ctx context.Context, r *rolled) (kills int, err error) {
	before := ""
	err = kube.Wait(ctx, "the rollout to be complete", func(ctx context.Context) (string, error) {
		d, err := r.rollout(ctx, r.name)
		if err != nil {
			return "", err
		}
		if d.Status.Phase == v1alpha1.PhaseComplete && kills > 0 {
			return "", nil
		}
		waits := fmt.Sprintf("%s: %s", d.Status.Phase, d.Status.WaitingFor)
		if d.ResourceVersion == before || d.Status.Phase == v1alpha1.PhaseComplete {
			return waits, nil
		}
		leader, err := s.leader(ctx)
		if err != nil || leader == "" {
			return waits, err
		}
		before = d.ResourceVersion
		how := metav1.DeleteOptions{}
		if kills == 0 {
			how = atOnce()
		}
		kills++
		return waits, s.CoreV1().Pods(vicinityNamespace).Delete(ctx, leader, how)
	})
	return kills, errors.Join(err, s.vicinityWorks(ctx))
}

// badRevision has a revision that is bad in the second zone, and one that is bad everywhere: the rollout stops there, and a
// rollback restores.
func badRevision(ctx context.Context, s *scene) (figure string, err error) {
	var waits string
	const bad = "example.com/bad"
	zones := s.field().Zones()
	// Nodes of the second zone in the order do not take the pods.
	for _, node := range s.field().Nodes(zones[0]) {
		if err := s.labelNode(ctx, node, bad, "true"); err != nil {
			return "", err
		}
		defer func() { err = errors.Join(err, s.labelNode(context.WithoutCancel(ctx), node, bad, "")) }()
	}
	const elsewhere = `,"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"` + bad + `","operator":"DoesNotExist"}]}]}}}}`
	err = s.inNamespace(ctx, "second-zone", func(ctx context.Context, part *scene) error {
		r, err := part.roll(ctx, ofStatefulSet, "healthGate: {progressDeadline: 10s}", `maxUnavailable: "100%"`)
		if err != nil {
			return err
		}
		o, err := r.observe(ctx)
		if err != nil {
			return err
		}
		defer o.stop()
		if err := r.update(ctx, "2", "500ms", elsewhere); err != nil {
			return err
		}
		d, err := r.phase(ctx, v1alpha1.PhaseFailed)
		if err != nil {
			return err
		}
		waits = d.Status.WaitingFor
		if f := d.Status.Failure; f == nil || f.Domain != zones[0] {
			return fmt.Errorf("the failure is %+v, want one in %s", f, zones[0])
		}
		if err := o.since().within(3, zones[1], zones[0]); err != nil {
			return err
		}
		// It stays as it is: a person has to look.
		if err := r.edit(ctx, fmt.Sprintf(`{"stop":{"revision":%q,"action":"Rollback"},"healthGate":null}`, d.Status.Revision)); err != nil {
			return err
		}
		if err := r.completes(ctx, ""); err != nil {
			return err
		}
		restored, err := r.rollout(ctx, r.name)
		if err != nil {
			return err
		}
		if st := restored.Status; st.Revision != d.Status.PreviousRevision || !slices.Contains(st.AbandonedRevisions, d.Status.Revision) {
			return fmt.Errorf("%s was rolled back to %s, and the revision is %s with %v abandoned", d.Status.Revision, d.Status.PreviousRevision, st.Revision, st.AbandonedRevisions)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	// Pods that are never ready, under a budget that they use up.
	err = s.withBoth(ctx, func(ctx context.Context, part *scene, kind string) error {
		r, err := part.roll(ctx, kind, "healthGate: {progressDeadline: 8s}", "onFailure: Rollback", "maxUnavailable: 2")
		if err != nil {
			return err
		}
		if err := r.Apply(ctx, r.Namespace, oneDown); err != nil {
			return err
		}
		if err := r.AtRest(ctx); err != nil {
			return err
		}
		o, err := r.observe(ctx)
		if err != nil {
			return err
		}
		defer o.stop()
		if err := r.update(ctx, "2", "1h", ""); err != nil {
			return err
		}
		if _, err := r.says(ctx, "rolling back", func(d *v1alpha1.DomainRollout) bool { return d.Status.RollingBack }); err != nil {
			return err
		}
		if err := r.completes(ctx, ""); err != nil {
			return err
		}
		return o.since().within(1, zones[1])
	})
	return fmt.Sprintf("in the second zone it stops (%q) and a rollback restores; of pods that are never ready one was made, under a budget of one, and the rollback got past it", waits), err
}

// oneDown is a budget that one bad pod uses up.
const oneDown = `
apiVersion: vicinity.dev/v1alpha1
kind: TopologyDisruptionBudget
metadata: {name: db}
spec: {selector: {matchLabels: {app: db}}, maxUnavailable: 1}
`

// changedInBetween has people change things amid an update.
func changedInBetween(ctx context.Context, s *scene) (string, error) {
	zones := s.field().Zones()
	err := s.withBoth(ctx, func(ctx context.Context, part *scene, kind string) error {
		r, err := part.roll(ctx, kind, "maxUnavailable: 2", "pauseBefore: ["+zones[0]+"]")
		if err != nil {
			return err
		}
		o, err := r.observe(ctx)
		if err != nil {
			return err
		}
		defer o.stop()
		if err := r.update(ctx, "2", "500ms", ""); err != nil {
			return err
		}
		first, err := r.phase(ctx, v1alpha1.PhasePaused)
		if err != nil {
			return err
		}
		// A new revision begins in the zone where the rollout stands, and asks again before the next one.
		if err := r.update(ctx, "3", "500ms", ""); err != nil {
			return err
		}
		d, err := r.says(ctx, "paused with the new revision", func(d *v1alpha1.DomainRollout) bool {
			return d.Status.Revision != first.Status.Revision && d.Status.Phase == v1alpha1.PhasePaused && len(d.Status.Domains) > 0 && d.Status.Domains[0].Updated == d.Status.Domains[0].Pods && d.Status.Domains[0].Pods > 0
		})
		if err != nil {
			return err
		}
		if err := o.since().within(2, zones[1]); err != nil {
			return err
		}
		if kind == ofStatefulSet {
			// Three pods more, of the new revision from the beginning.
			if err := r.scale(ctx, 12); err != nil {
				return err
			}
			r.pods = 12
			if err := r.healthy(ctx); err != nil {
				return err
			}
		}
		edit := fmt.Sprintf(`{"approved":{"revision":%q,"domains":[%q]},"maxUnavailable":1,"order":[%q,%q]}`, d.Status.Revision, zones[0], zones[1], zones[0])
		if err := errors.Join(r.edit(ctx, edit), r.completes(ctx, "3")); err != nil {
			return err
		}
		if err := o.since().within(1, zones[0], zones[2]); err != nil {
			return err
		}
		// What is complete is left alone: a pod that dies is the business of its controller.
		pods, err := r.Pods(ctx, "db", zones[2])
		if err != nil {
			return err
		}
		if err := r.CoreV1().Pods(r.Namespace).Delete(ctx, pods[0].Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		return errors.Join(r.healthy(ctx), r.completes(ctx, "3"))
	})
	return "a new revision begins where the rollout stands and asks anew before the next zone; 9 to 12 pods, another order and another maxUnavailable in mid-rollout", err
}

func (r *rolled) scale(ctx context.Context, replicas int) error {
	_, err := r.AppsV1().StatefulSets(r.Namespace).Patch(ctx, "db", types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{})
	return err
}

// rolledWithoutNode loses a node of the last zone amid an update. The pods that it had count as down there, and the rollout says
// what it waits for until the node is back.
func rolledWithoutNode(ctx context.Context, s *scene) (figure string, err error) {
	zones := s.field().Zones()
	r, err := s.roll(ctx, ofDaemonSet, "maxUnavailable: 2", "pauseBefore: ["+zones[2]+"]")
	if err != nil {
		return "", err
	}
	if err := r.update(ctx, "2", "500ms", ""); err != nil {
		return "", err
	}
	d, err := r.phase(ctx, v1alpha1.PhasePaused)
	if err != nil {
		return "", err
	}
	lost := r.Nodes(zones[2])[0]
	back := false
	heal := func(ctx context.Context) error {
		back = true
		return s.cluster.StartNode(ctx, lost)
	}
	defer func() {
		if !back {
			err = errors.Join(err, heal(context.WithoutCancel(ctx)))
		}
	}()
	if err := s.cluster.StopNode(ctx, lost); err != nil {
		return "", err
	}
	err = kube.Wait(ctx, "the pod of the lost node to be down", func(ctx context.Context) (string, error) {
		pods, err := r.Pods(ctx, "db", zones[2])
		if err == nil && len(pods) != 2 {
			return fmt.Sprintf("%d pods of the zone are ready", len(pods)), nil
		}
		return "", err
	})
	if err != nil {
		return "", err
	}
	if err := r.edit(ctx, fmt.Sprintf(`{"approved":{"revision":%q,"domains":[%q]}}`, d.Status.Revision, zones[2])); err != nil {
		return "", err
	}
	d, err = r.says(ctx, "waiting for the lost node's pod", func(d *v1alpha1.DomainRollout) bool {
		return d.Status.Phase == v1alpha1.PhaseProgressing && d.Status.Domains[2].Updated >= 2 && d.Status.Domains[2].Healthy >= 2
	})
	if err != nil {
		return "", err
	}
	waits := d.Status.WaitingFor
	if err := errors.Join(heal(ctx), r.completes(ctx, "2")); err != nil {
		return "", err
	}
	return fmt.Sprintf("the other pods of its zone are updated, one at a time, and then the rollout %s; it ends when the node is back", waits), nil
}

// workloadOfStories is the YAML of a workload that is updated under the budgets of the stories, from the documentation.
func workloadOfStories(kind string) (string, error) {
	text, err := os.ReadFile(root + "/docs/rollouts.md")
	if err != nil {
		return "", err
	}
	_, block, found := strings.Cut(string(text), "```yaml\n# stories: "+kind+"\n")
	if !found {
		return "", fmt.Errorf("docs/rollouts.md has no %s of the stories", kind)
	}
	block, _, _ = strings.Cut(block, "```")
	return block, nil
}

// budgetsOfStory are the budgets of a story, without its workload.
func budgetsOfStory(number int) (string, error) {
	text, err := story(number)
	if err != nil {
		return "", err
	}
	var budgets []string
	for part := range strings.SplitSeq(text, "---\n") {
		if strings.Contains(part, "kind: TopologyDisruptionBudget\n") {
			budgets = append(budgets, part)
		}
	}
	if len(budgets) == 0 {
		return "", fmt.Errorf("story %d has no budget", number)
	}
	return strings.Join(budgets, "---\n"), nil
}

// storiesOfUpdates has the proposal's stories, as the documentation writes them, hold for updates of a StatefulSet and a DaemonSet.
func storiesOfUpdates(ctx context.Context, s *scene) (string, error) {
	var mu sync.Mutex
	most := 0
	stopped := ""
	err := meter.InParallel(ctx, 4, 4, func(ctx context.Context, i int) error {
		return s.withBoth(ctx, func(ctx context.Context, part *scene, kind string) error {
			found, waits, err := part.tellOfUpdate(ctx, i+1, kind)
			if err != nil {
				return fmt.Errorf("story %d: %w", i+1, err)
			}
			mu.Lock()
			defer mu.Unlock()
			most = max(most, found.most)
			if waits != "" && kind == ofStatefulSet {
				stopped = waits
			}
			return nil
		})
	})
	return fmt.Sprintf("four stories with a StatefulSet and a DaemonSet, %d pods of a zone down at most; in the first one the rollout %s, and goes on as the budget is edited", most, stopped), err
}

// tellOfUpdate updates a workload of the stories under the budgets of one.
func (s *scene) tellOfUpdate(ctx context.Context, number int, kind string) (found seen, waits string, err error) {
	workload, err := workloadOfStories(kind)
	if err != nil {
		return seen{}, "", err
	}
	budgets, err := budgetsOfStory(number)
	if err != nil {
		return seen{}, "", err
	}
	r := &rolled{Field: s.field(), kind: kind, name: "foo", pods: map[string]int{ofStatefulSet: 6, ofDaemonSet: 12}[kind]}
	if err := r.Apply(ctx, r.Namespace, workload+"---\n"+budgets); err != nil {
		return seen{}, "", err
	}
	if err := errors.Join(r.healthy(ctx), r.AtRest(ctx)); err != nil {
		return seen{}, "", err
	}
	if _, err := r.phase(ctx, v1alpha1.PhaseComplete); err != nil {
		return seen{}, "", err
	}
	o, err := r.observe(ctx)
	if err != nil {
		return seen{}, "", err
	}
	defer o.stop()
	h, err := r.Follow(ctx)
	if err != nil {
		return seen{}, "", err
	}
	defer h.Stop()
	if err := r.update(ctx, "2", "0s", ""); err != nil {
		return seen{}, "", err
	}
	zones := r.Zones()
	if number == 1 {
		for i, zone := range zones[1:] {
			d, err := r.stopsBefore(ctx, zone)
			if err != nil {
				return seen{}, "", err
			}
			if i == 0 {
				waits = d.Status.WaitingFor
			}
			// One more zone is not covered any more.
			budgets = strings.Replace(budgets, "- "+zones[0]+"\n", "- "+zones[0]+"\n      - "+zone+"\n", 1)
			if err := r.Apply(ctx, r.Namespace, budgets); err != nil {
				return seen{}, "", err
			}
		}
		if err := r.completes(ctx, "2"); err != nil {
			return seen{}, "", err
		}
		found = o.since()
		return found, waits, found.within(r.pods, zones...)
	}
	if err := r.completes(ctx, "2"); err != nil {
		return seen{}, "", err
	}
	expected, domains := map[string]int{"app-pdb": r.pods}, map[string]string{}
	for _, zone := range zones {
		domains[zone] = zone
	}
	if number != 2 {
		domains = map[string]string{zones[0]: "all", zones[1]: "all", zones[2]: "all"}
	}
	if _, err := r.JudgeBy(ctx, h, domains, expected); err != nil {
		return seen{}, "", err
	}
	found = o.since()
	return found, "", found.within(1, zones...)
}

// stopsBefore waits until the budget keeps the rollout from a zone, with the zones before it updated and none of its pods gone.
func (r *rolled) stopsBefore(ctx context.Context, zone string) (*v1alpha1.DomainRollout, error) {
	return r.says(ctx, "kept from "+zone, func(d *v1alpha1.DomainRollout) bool {
		before := true
		for _, domain := range d.Status.Domains {
			switch {
			case domain.Name == zone:
				before = false
				if domain.Updated > 0 {
					return false
				}
			case before && domain.Healthy < domain.Pods:
				return false
			}
		}
		return !before && strings.Contains(d.Status.WaitingFor, "app-pdb")
	})
}

// rolloutsBadInput has the sentences that people read.
func rolloutsBadInput(ctx context.Context, s *scene) (string, error) {
	const kind = "apiVersion: vicinity.dev/v1alpha1\nkind: DomainRollout\nmetadata: {name: db}\nspec: {topologyKey: topology.kubernetes.io/zone, targetRef: {kind: %s, name: db}%s}\n"
	r := &rolled{Field: s.field(), kind: ofStatefulSet, name: "db", pods: 0}
	sentences := 0
	refused := func(text, want string) error {
		if err := r.Apply(ctx, r.Namespace, text); err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("the answer is %w, want %q in it", err, want)
		}
		sentences++
		return nil
	}
	invalid := func(name, want string) error {
		return kube.Wait(ctx, name+" to be refused", func(ctx context.Context) (string, error) {
			d, err := r.rollout(ctx, name)
			if err != nil {
				return "", err
			}
			for _, c := range d.Status.Conditions {
				if c.Type == v1alpha1.ConditionValid && c.Status == metav1.ConditionFalse && strings.Contains(c.Message, want) {
					sentences++
					return "", nil
				}
			}
			return fmt.Sprintf("the conditions are %+v, want %q", d.Status.Conditions, want), nil
		})
	}
	set := func(replicas int, strategy string) string {
		return fmt.Sprintf("apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\nspec:\n  serviceName: db\n  replicas: %d%s", replicas, strings.Replace(rolledPods, "OnDelete", strategy, 1))
	}
	apply := func(text string) error { return r.Apply(ctx, r.Namespace, text) }
	err := errors.Join(
		refused(fmt.Sprintf(kind, "Job", ""), "spec.targetRef.kind"),
		refused(fmt.Sprintf(kind, ofStatefulSet, `, maxUnavailable: "200%"`), "maxUnavailable"),
		apply(fmt.Sprintf(kind, ofStatefulSet, "")),
		invalid("db", "there is no StatefulSet db in namespace"),
	)
	if err != nil {
		return "", err
	}
	if err := errors.Join(apply(set(0, "RollingUpdate")), invalid("db", "set its spec.updateStrategy.type to OnDelete")); err != nil {
		return "", err
	}
	if err := apply(set(0, "OnDelete")); err != nil {
		return "", err
	}
	// Without pods it is complete at once.
	if _, err := r.phase(ctx, v1alpha1.PhaseComplete); err != nil {
		return "", err
	}
	second := strings.Replace(fmt.Sprintf(kind, ofStatefulSet, ""), "{name: db}", "{name: second}", 1)
	if err := errors.Join(apply(second), invalid("second", "is updated by the DomainRollout db, which is older")); err != nil {
		return "", err
	}
	if err := errors.Join(r.edit(ctx, `{"order":["zone-x"]}`), invalid("db", "no node has the value zone-x")); err != nil {
		return "", err
	}
	if err := errors.Join(r.edit(ctx, `{"order":null}`), r.scale(ctx, 3)); err != nil {
		return "", err
	}
	if r.pods = 3; r.healthy(ctx) != nil {
		return "", errors.New("the three pods are not ready")
	}
	if err := s.changeDomains(ctx, r); err != nil {
		return "", err
	}
	// A target that goes, and comes again as another one.
	if err := errors.Join(r.AppsV1().StatefulSets(r.Namespace).Delete(ctx, "db", metav1.DeleteOptions{}), invalid("db", "there is no StatefulSet db in namespace"), apply(set(3, "OnDelete"))); err != nil {
		return "", err
	}
	if _, err := r.phase(ctx, v1alpha1.PhaseComplete); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d mistakes by name; zero replicas, a domain that vanishes and one that appears in mid-rollout, a target that goes and comes again", sentences), nil
}

// changeDomains has a domain vanish in mid-rollout and another one appear.
func (s *scene) changeDomains(ctx context.Context, r *rolled) (err error) {
	const key = "example.com/row"
	for _, zone := range r.Zones() {
		for _, node := range r.Nodes(zone) {
			if err := s.labelNode(ctx, node, key, "row-"+zone); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, s.labelNode(context.WithoutCancel(ctx), node, key, "")) }()
		}
	}
	pods, err := r.Pods(ctx, "db", "")
	if err != nil {
		return err
	}
	last := ""
	for i := range pods {
		node, err := s.CoreV1().Nodes().Get(ctx, pods[i].Spec.NodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		last = max(last, node.Labels[key])
	}
	if err := errors.Join(r.edit(ctx, fmt.Sprintf(`{"topologyKey":%q,"pauseBefore":[%q]}`, key, last)), r.update(ctx, "2", "500ms", "")); err != nil {
		return err
	}
	if _, err := r.phase(ctx, v1alpha1.PhasePaused); err != nil {
		return err
	}
	for _, node := range r.Nodes(strings.TrimPrefix(last, "row-")) {
		if err := s.labelNode(ctx, node, key, "new"); err != nil {
			return err
		}
	}
	return r.completes(ctx, "2")
}
