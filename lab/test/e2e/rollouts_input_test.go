package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kube"
)

// rolloutOf is a DomainRollout of a workload, with more of its spec.
func rolloutOf(kind, more string) string {
	return fmt.Sprintf("apiVersion: vicinity.dev/v1alpha1\nkind: DomainRollout\nmetadata: {name: db}\nspec: {topologyKey: topology.kubernetes.io/zone, targetRef: {kind: %s, name: db}%s}\n", kind, more)
}

// rolloutsBadInput has the sentences that people read.
func rolloutsBadInput(ctx context.Context, s *scene) (string, error) {
	var sentences atomic.Int32
	write := map[string]func(context.Context, *inputs) error{ofStatefulSet: inputsOfStatefulSet, ofDaemonSet: inputsOfDaemonSet, ofDeployment: inputsOfDeployment}
	err := s.withEach(ctx, func(ctx context.Context, part *scene, kind string) error {
		return write[kind](ctx, &inputs{&rolled{Field: part.field(), kind: kind, name: "db"}, part, &sentences})
	})
	return fmt.Sprintf("%d mistakes by name; zero replicas, a domain that vanishes and one that appears in mid-rollout, a target that goes and comes again, also with another selector, a budget whose selector changes", sentences.Load()), err
}

// inputs are what people write for one workload.
type inputs struct {
	*rolled
	scene     *scene
	sentences *atomic.Int32
}

func (r *inputs) apply(ctx context.Context, text string) error {
	return r.Apply(ctx, r.Namespace, text)
}

// refused has the API server refuse something.
func (r *inputs) refused(ctx context.Context, text, want string) error {
	if err := r.apply(ctx, text); err == nil || !strings.Contains(err.Error(), want) {
		return fmt.Errorf("the answer is %w, want %q in it", err, want)
	}
	r.sentences.Add(1)
	return nil
}

// invalid waits until a DomainRollout says what is wrong.
func (r *inputs) invalid(ctx context.Context, name, want string) error {
	return kube.Wait(ctx, name+" to be refused", func(ctx context.Context) (string, error) {
		d, err := r.rollout(ctx, name)
		if err != nil {
			return "", err
		}
		for _, c := range d.Status.Conditions {
			if c.Type == v1alpha1.ConditionValid && c.Status == metav1.ConditionFalse && strings.Contains(c.Message, want) {
				r.sentences.Add(1)
				return "", nil
			}
		}
		return fmt.Sprintf("the conditions are %+v, want %q", d.Status.Conditions, want), nil
	})
}

func inputsOfStatefulSet(ctx context.Context, r *inputs) error {
	set := func(replicas int, strategy string) string {
		return fmt.Sprintf("apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\nspec:\n  serviceName: db\n  replicas: %d%s", replicas, strings.Replace(rolledPods, "OnDelete", strategy, 1))
	}
	err := errors.Join(
		r.refused(ctx, rolloutOf("Job", ""), "spec.targetRef.kind"),
		r.refused(ctx, rolloutOf(ofStatefulSet, `, maxUnavailable: "200%"`), "maxUnavailable"),
		r.apply(ctx, rolloutOf(ofStatefulSet, "")),
		r.invalid(ctx, "db", "there is no StatefulSet db in namespace"),
	)
	if err != nil {
		return err
	}
	if err := errors.Join(r.apply(ctx, set(0, "RollingUpdate")), r.invalid(ctx, "db", "set its spec.updateStrategy.type to OnDelete")); err != nil {
		return err
	}
	if err := r.apply(ctx, set(0, "OnDelete")); err != nil {
		return err
	}
	// Without pods it is complete at once.
	if _, err := r.phase(ctx, v1alpha1.PhaseComplete); err != nil {
		return err
	}
	second := strings.Replace(rolloutOf(ofStatefulSet, ""), "{name: db}", "{name: second}", 1)
	if err := errors.Join(r.apply(ctx, second), r.invalid(ctx, "second", "is updated by the DomainRollout db, which is older")); err != nil {
		return err
	}
	if err := errors.Join(r.edit(ctx, `{"order":["zone-x"]}`), r.invalid(ctx, "db", "no node has the value zone-x")); err != nil {
		return err
	}
	if err := errors.Join(r.edit(ctx, `{"order":null}`), r.scale(ctx, 3)); err != nil {
		return err
	}
	if r.pods = 3; r.healthy(ctx) != nil {
		return errors.New("the three pods are not ready")
	}
	if err := r.scene.changeDomains(ctx, r.rolled); err != nil {
		return err
	}
	// A target that goes, and comes again as another one.
	if err := errors.Join(r.AppsV1().StatefulSets(r.Namespace).Delete(ctx, "db", metav1.DeleteOptions{}), r.invalid(ctx, "db", "there is no StatefulSet db in namespace"), r.apply(ctx, set(3, "OnDelete"))); err != nil {
		return err
	}
	_, err = r.phase(ctx, v1alpha1.PhaseComplete)
	return err
}

// mistakes are how a Deployment may be written that cannot be updated by domain, and what its DomainRollout says.
var mistakes = []struct{ from, to, says string }{
	{
		"{type: RollingUpdate, rollingUpdate: {maxUnavailable: 0, maxSurge: 3}}", "{type: Recreate, rollingUpdate: null}",
		"spec.strategy.type of Deployment db is Recreate, by which all its pods are deleted at once; set it to RollingUpdate, with maxUnavailable: 0",
	},
	{
		"maxUnavailable: 0", `maxUnavailable: "25%"`,
		"spec.strategy.rollingUpdate.maxUnavailable of Deployment db is 25%, so that it deletes pods of any domain before others have come; set it to 0",
	},
	{
		"      schedulingGates: [{name: vicinity.dev/rollout}]\n", "",
		"the pods that Deployment db makes are not held, so that it replaces them in any domain; add {name: vicinity.dev/rollout} to its spec.template.spec.schedulingGates",
	},
}

// inputsOfDeployment are Deployments that cannot be updated by domain, whose pods come all the same, and selectors that change in
// mid-rollout: of a budget, and of the Deployment.
func inputsOfDeployment(ctx context.Context, r *inputs) error {
	good := workloadOf(ofDeployment)
	if err := r.apply(ctx, rolloutOf(ofDeployment, "")); err != nil {
		return err
	}
	r.pods = 9
	for _, m := range mistakes {
		if err := errors.Join(r.apply(ctx, strings.Replace(good, m.from, m.to, 1)), r.invalid(ctx, "db", m.says), r.healthy(ctx)); err != nil {
			return fmt.Errorf("%s: %w", m.to, err)
		}
	}
	// The gate is a new revision.
	if err := r.apply(ctx, good); err != nil {
		return err
	}
	if _, err := r.phase(ctx, v1alpha1.PhaseComplete); err != nil {
		return err
	}
	const budget = `
apiVersion: vicinity.dev/v1alpha1
kind: TopologyDisruptionBudget
metadata: {name: closed}
spec: {selector: {matchLabels: {app: %s}}, maxUnavailable: 0}
`
	if err := errors.Join(r.apply(ctx, fmt.Sprintf(budget, "db")), r.AtRest(ctx), r.update(ctx, "2", "0s", "")); err != nil {
		return err
	}
	_, err := r.says(ctx, "kept by the budget", func(d *v1alpha1.DomainRollout) bool {
		return strings.Contains(d.Status.WaitingFor, "closed")
	})
	if err != nil {
		return err
	}
	if err := errors.Join(r.apply(ctx, fmt.Sprintf(budget, "other")), r.completes(ctx, "2")); err != nil {
		return err
	}
	return r.madeAnew(ctx)
}

// inputsOfDaemonSet has the selector of a DaemonSet change in mid-rollout.
func inputsOfDaemonSet(ctx context.Context, r *inputs) error {
	if err := r.apply(ctx, workloadOf(ofDaemonSet)+"---\n"+rolloutOf(ofDaemonSet, "")); err != nil {
		return err
	}
	r.pods = 9
	if _, err := r.phase(ctx, v1alpha1.PhaseComplete); err != nil {
		return err
	}
	return errors.Join(r.healthy(ctx), r.madeAnew(ctx))
}

// madeAnew deletes the workload in mid-rollout and makes one with the same name and another selector, which the rollout goes on with.
func (r *inputs) madeAnew(ctx context.Context) error {
	zones := r.Zones()
	if err := errors.Join(r.edit(ctx, `{"pauseBefore":["`+zones[1]+`"]}`), r.update(ctx, "3", "0s", "")); err != nil {
		return err
	}
	if _, err := r.phase(ctx, v1alpha1.PhasePaused); err != nil {
		return err
	}
	err := r.AppsV1().RESTClient().Delete().Namespace(r.Namespace).Resource(strings.ToLower(r.kind) + "s").Name(r.name).
		Body(&metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}).Do(ctx).Error()
	if err := errors.Join(err, r.invalid(ctx, "db", "there is no "+r.kind+" db in namespace")); err != nil {
		return err
	}
	another := strings.ReplaceAll(workloadOf(r.kind), "{app: db}", "{app: db, made: anew}")
	another = strings.Replace(another, "labels: {app: db, made: anew}\n", "labels: {app: db, made: anew, version: anew}\n", 1)
	if err := errors.Join(r.apply(ctx, another), r.completes(ctx, "anew")); err != nil {
		return err
	}
	// The next update is held as those before.
	if err := r.update(ctx, "4", "0s", ""); err != nil {
		return err
	}
	d, err := r.phase(ctx, v1alpha1.PhasePaused)
	if err != nil {
		return err
	}
	approval := fmt.Sprintf(`{"approved":{"revision":%q,"domains":[%q]}}`, d.Status.Revision, zones[1])
	return errors.Join(r.edit(ctx, approval), r.completes(ctx, "4"))
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
