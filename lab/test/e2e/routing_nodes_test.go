package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/lab"
)

// Services for Auto, which upstream supports only if every node has a zone and allocatable
// CPU.
const autoMode = `service.kubernetes.io/topology-mode: Auto`

// routeBesideAuto runs an echo Service that says something, and another for the same
// pods that asks for Auto, of which Vicinity takes care in the cluster from now on.
func (s *scene) routeBesideAuto(ctx context.Context, patch string) error {
	if err := s.takesOverAuto(ctx, true); err != nil {
		return err
	}
	if err := s.route(ctx, 12, patch); err != nil {
		return err
	}
	if err := s.Apply(ctx, s.namespace, twin("auto", autoMode)); err != nil {
		return err
	}
	return s.bothNear(ctx)
}

// takesOverAuto has Vicinity take care of Services with the mode Auto, or not.
func (s *scene) takesOverAuto(ctx context.Context, does bool) error {
	return s.cluster.ChangeVicinity(ctx, fmt.Sprintf("routing.takeOverAuto=%t", does))
}

// bothNear waits until both Services are routed, by hints.
func (s *scene) bothNear(ctx context.Context) error {
	for _, service := range []string{"echo", "auto"} {
		if _, err := s.converged(ctx, service, 12); err != nil {
			return err
		}
		if err := s.WaitHints(ctx, s.namespace, service, true); err != nil {
			return err
		}
	}
	return s.stays(ctx)
}

// labelZone writes the zone of nodes on them, or takes it away.
func (s *scene) labelZone(ctx context.Context, written bool, nodes ...string) error {
	for _, name := range nodes {
		node, _ := s.cluster.Shape().Node(name)
		value := "null"
		if written {
			value = fmt.Sprintf("%q", node.Zone)
		}
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, corev1.LabelTopologyZone, value)
		if _, err := s.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("labelling node %s: %w", name, err)
		}
	}
	return nil
}

// zonesWithoutLabels removes the zone label from the nodes of one zone, then from all.
// Conditions explain it, traffic goes on, and is near again when the labels are back.
func zonesWithoutLabels(ctx context.Context, s *scene) (figure string, err error) {
	var all, away []string
	zones := s.inhabited()
	for _, node := range s.cluster.Shape().Nodes() {
		all = append(all, node.Name)
		if node.Zone == zones[len(zones)-1].Name {
			away = append(away, node.Name)
		}
	}
	defer func() {
		ctx := context.WithoutCancel(ctx)
		err = errors.Join(err, s.labelZone(ctx, true, all...), s.takesOverAuto(ctx, false))
	}()
	if err := s.routeBesideAuto(ctx, preferZone); err != nil {
		return "", err
	}
	if err := s.labelZone(ctx, false, away...); err != nil {
		return "", err
	}
	warning := fmt.Sprintf("%d nodes without the label %s, left out of the capacity: %s", len(away), corev1.LabelTopologyZone, strings.Join(away, ", "))
	if err := s.warns(ctx, "echo", warning, ""); err != nil {
		return "", err
	}
	if err := s.warns(ctx, "auto", warning, "balanced: a node has no zone, and auto needs the zones of all"); err != nil {
		return "", err
	}
	if _, err := s.converged(ctx, "echo", 12); err != nil {
		return "", err
	}
	part, err := s.flawless(ctx, lab.LoadOptions{Plan: lightPlan()})
	if err != nil {
		return "", err
	}
	if err := s.labelZone(ctx, false, all...); err != nil {
		return "", err
	}
	warning = fmt.Sprintf("%d nodes without the label", len(all))
	if err := s.warns(ctx, "echo", warning, "balanced: no zone has capacity, so where traffic comes from is unknown"); err != nil {
		return "", err
	}
	if err := s.WaitHints(ctx, s.namespace, "echo", false); err != nil {
		return "", err
	}
	none, err := s.flawless(ctx, lab.LoadOptions{Plan: lightPlan()})
	if err != nil {
		return "", err
	}
	if err := s.labelZone(ctx, true, all...); err != nil {
		return "", err
	}
	if err := s.bothNear(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d of %d nodes without a zone, then all: said by name and in the condition, %d requests, 0 failed; near again with the labels",
		len(away), len(all), part.Answered+none.Answered), nil
}

// nodeWithoutCPU has nodes without allocatable CPU where zones are compared by it: they
// count as none, and a condition says so.
func nodeWithoutCPU(ctx context.Context, s *scene) (figure string, err error) {
	const policy = `apiVersion: vicinity.dev/v1alpha1
kind: RoutingPolicy
metadata: {name: by-cpu}
spec: {capacity: {type: CPU}}
`
	nodes := map[string]string{"bare": `{}`, "idle": `{cpu: "0", memory: 1Gi}`}
	defer func() {
		ctx := context.WithoutCancel(ctx)
		for name := range nodes {
			err = errors.Join(err, s.Delete(ctx, "", nodeManifest(name, "", "")))
		}
		err = errors.Join(err, s.takesOverAuto(ctx, false))
	}()
	if err := s.Apply(ctx, s.namespace, policy); err != nil {
		return "", err
	}
	if err := s.routeBesideAuto(ctx, `{"metadata":{"annotations":{"service.kubernetes.io/topology-mode":"vicinity.dev/by-cpu"}}}`); err != nil {
		return "", err
	}
	before, err := s.explain(ctx, "echo")
	if err != nil {
		return "", err
	}
	for name, allocatable := range nodes {
		if err := s.Apply(ctx, "", nodeManifest(name, s.inhabited()[0].Name, allocatable)); err != nil {
			return "", err
		}
	}
	const warning = "2 nodes without allocatable CPU: bare, idle"
	if err := s.warns(ctx, "echo", warning, "endpoints are divided among zones by optimal"); err != nil {
		return "", err
	}
	if err := s.warns(ctx, "auto", warning, "balanced: a node has no allocatable CPU, and auto needs that of all"); err != nil {
		return "", err
	}
	after, err := s.converged(ctx, "echo", 12)
	if err != nil {
		return "", err
	}
	if now, had := fmt.Sprint(after.Families), fmt.Sprint(before.Families); now != had {
		return "", fmt.Errorf("nodes that have no CPU changed the plan from %s to %s", had, now)
	}
	for name := range nodes {
		if err := s.Delete(ctx, "", nodeManifest(name, "", "")); err != nil {
			return "", err
		}
	}
	if err := s.bothNear(ctx); err != nil {
		return "", err
	}
	return "2 nodes without CPU: by CPU the plan stays as it was, Auto is balanced, both say why; near again without them", nil
}

// nodeManifest is a node that is nothing but its object, and that no pod can be bound to.
func nodeManifest(name, zone, allocatable string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Node
metadata: {name: %s, labels: {%s: %q}}
spec: {unschedulable: true}
status:
  allocatable: %s
  conditions: [{type: Ready, status: "True"}]
`, name, corev1.LabelTopologyZone, zone, allocatable)
}
