package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

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
		zone := ""
		if written {
			node, _ := s.cluster.Shape().Node(name)
			zone = node.Zone
		}
		if err := s.labelNode(ctx, name, zone); err != nil {
			return fmt.Errorf("labelling node %s: %w", name, err)
		}
	}
	return nil
}

// autoSafeguards has nodes without allocatable CPU where zones are compared by it, and then takes the zone label
// from the nodes of one zone, and from all. Conditions explain it, traffic goes on, and is near again when nodes are
// as they were.
func autoSafeguards(ctx context.Context, s *scene) (figure string, err error) {
	const policy = `apiVersion: vicinity.dev/v1alpha1
kind: RoutingPolicy
metadata: {name: by-cpu}
spec: {capacity: {type: CPU}}
`
	withoutCPU := map[string]string{"bare": `{}`, "idle": `{cpu: "0", memory: 1Gi}`}
	var all, away []string
	zones := s.cluster.Shape().Zones
	for _, node := range s.cluster.Shape().Nodes() {
		all = append(all, node.Name)
		if node.Zone == zones[len(zones)-1].Name {
			away = append(away, node.Name)
		}
	}
	defer func() {
		ctx := context.WithoutCancel(ctx)
		for name := range withoutCPU {
			err = errors.Join(err, s.Delete(ctx, "", nodeManifest(name, "", "")))
		}
		err = errors.Join(err, s.labelZone(ctx, true, all...), s.takesOverAuto(ctx, false))
	}()
	if err := s.Apply(ctx, s.namespace, policy); err != nil {
		return "", err
	}
	if err := s.routeBesideAuto(ctx, `{"metadata":{"annotations":{"service.kubernetes.io/topology-mode":"vicinity.dev/by-cpu"}}}`); err != nil {
		return "", err
	}
	bothWarn := func(warning, echo, auto string) error {
		if err := s.warns(ctx, "echo", warning, echo); err != nil {
			return err
		}
		return s.warns(ctx, "auto", warning, auto)
	}
	for name, allocatable := range withoutCPU {
		if err := s.Apply(ctx, "", nodeManifest(name, zones[0].Name, allocatable)); err != nil {
			return "", err
		}
	}
	if err := bothWarn("2 nodes without allocatable CPU: bare, idle", "endpoints are divided among zones by optimal",
		"balanced: a node has no allocatable CPU, and auto needs that of all"); err != nil {
		return "", err
	}
	for name := range withoutCPU {
		if err := s.Delete(ctx, "", nodeManifest(name, "", "")); err != nil {
			return "", err
		}
	}
	if err := s.bothNear(ctx); err != nil {
		return "", fmt.Errorf("without the nodes that have no CPU: %w", err)
	}
	if err := s.PatchService(ctx, s.namespace, "echo", `{"metadata":{"annotations":{"service.kubernetes.io/topology-mode":null,"endpointslice.kubernetes.io/same-zone":"Prefer"}}}`); err != nil {
		return "", err
	}
	if err := s.bothNear(ctx); err != nil {
		return "", err
	}
	if err := s.labelZone(ctx, false, away...); err != nil {
		return "", err
	}
	if err := bothWarn(fmt.Sprintf("%d nodes without the label %s, left out of the capacity: %s", len(away), zoneKey, strings.Join(away, ", ")), "",
		"balanced: a node has no zone, and auto needs the zones of all"); err != nil {
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
	if err := s.warns(ctx, "echo", fmt.Sprintf("%d nodes without the label", len(all)), "balanced: no zone has capacity, so where traffic comes from is unknown"); err != nil {
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
		return "", fmt.Errorf("with the labels again: %w", err)
	}
	return fmt.Sprintf("2 nodes without CPU, %d of %d without a zone, then all: said by name and in the condition, %d requests, 0 failed; near again afterwards",
		len(away), len(all), part.Answered+none.Answered), nil
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
