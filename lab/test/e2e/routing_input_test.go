package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/load"
	"vicinity.dev/vicinity/test/kube"
)

// autoMode asks for Auto. Kubernetes supports it only if every node has a zone and allocatable CPU.
const autoMode = `service.kubernetes.io/topology-mode: Auto`

// routeBesideAuto runs an echo Service with a patch, and a Service of the mode Auto for the same
// pods, which Vicinity takes over.
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
	return s.waitBothNear(ctx)
}

// takesOverAuto sets whether Vicinity takes over Services of the mode Auto.
func (s *scene) takesOverAuto(ctx context.Context, does bool) error {
	return s.cluster.ChangeVicinity(ctx, fmt.Sprintf("routing.takeOverAuto=%t", does))
}

// waitBothNear waits until both Services are routed by hints.
func (s *scene) waitBothNear(ctx context.Context) error {
	for _, service := range []string{"echo", "auto"} {
		if _, err := s.waitConverged(ctx, service, 12); err != nil {
			return err
		}
		if err := s.WaitHints(ctx, s.namespace, service, true); err != nil {
			return err
		}
	}
	return s.waitInZone(ctx)
}

// labelZone sets or removes the zone label of nodes.
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

// autoSafeguards adds nodes without allocatable CPU while zones are compared by CPU. Then it
// removes the zone label from the nodes of one zone, and from all. Conditions explain the effect,
// traffic continues, and it is near again when the nodes are restored.
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
	defer undo(&err, func() (err error) {
		ctx := context.WithoutCancel(ctx)
		for name := range withoutCPU {
			err = errors.Join(err, s.Delete(ctx, "", nodeManifest(name, "", "")))
		}
		return errors.Join(err, s.labelZone(ctx, true, all...), s.takesOverAuto(ctx, false))
	})
	check(s.Apply(ctx, s.namespace, policy))
	check(s.routeBesideAuto(ctx, `{"metadata":{"annotations":{"service.kubernetes.io/topology-mode":"vicinity.dev/by-cpu"}}}`))
	bothWarn := func(warning, echo, auto string) error {
		if err := s.waitWarning(ctx, "echo", warning, echo); err != nil {
			return err
		}
		return s.waitWarning(ctx, "auto", warning, auto)
	}
	for name, allocatable := range withoutCPU {
		check(s.Apply(ctx, "", nodeManifest(name, zones[0].Name, allocatable)))
	}
	check(bothWarn("2 nodes without allocatable CPU: bare, idle", "endpoints are divided among zones by optimal",
		"balanced: a node has no allocatable CPU, and auto needs that of all"))
	for name := range withoutCPU {
		check(s.Delete(ctx, "", nodeManifest(name, "", "")))
	}
	if err := s.waitBothNear(ctx); err != nil {
		return "", fmt.Errorf("without the nodes that have no CPU: %w", err)
	}
	check(s.PatchService(ctx, s.namespace, "echo", `{"metadata":{"annotations":{"service.kubernetes.io/topology-mode":null,"endpointslice.kubernetes.io/same-zone":"Prefer"}}}`))
	check(s.waitBothNear(ctx))
	check(s.labelZone(ctx, false, away...))
	check(bothWarn(fmt.Sprintf("%d nodes without the label %s, left out of the capacity: %s", len(away), zoneKey, strings.Join(away, ", ")), "",
		"balanced: a node has no zone, and auto needs the zones of all"))
	must(s.waitConverged(ctx, "echo", 12))
	part := must(s.flawless(ctx, lab.LoadOptions{Plan: lightPlan()}))
	check(s.labelZone(ctx, false, all...))
	check(s.waitWarning(ctx, "echo", fmt.Sprintf("%d nodes without the label", len(all)), "balanced: no zone has capacity, so the origin of traffic is unknown"))
	check(s.WaitHints(ctx, s.namespace, "echo", false))
	none := must(s.flawless(ctx, lab.LoadOptions{Plan: lightPlan()}))
	check(s.labelZone(ctx, true, all...))
	if err := s.waitBothNear(ctx); err != nil {
		return "", fmt.Errorf("with the labels again: %w", err)
	}
	return fmt.Sprintf("2 nodes without CPU, %d of %d without a zone, then all: named by explain and in the condition, %d requests, 0 failed; near again afterwards",
		len(away), len(all), part.Answered+none.Answered), nil
}

// nodeManifest returns a node without a kubelet, to which no pod can be bound.
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

// badInput writes mistakes. Each is refused, or accepted with a warning, by a message that names
// it.
func badInput(ctx context.Context, s *scene) (string, error) {
	policy := func(spec string) string {
		return "apiVersion: vicinity.dev/v1alpha1\nkind: RoutingPolicy\nmetadata: {name: bad}\nspec: " + spec + "\n"
	}
	service := func(annotations, spec string) string {
		return "apiVersion: v1\nkind: Service\nmetadata: {name: bad, annotations: " + annotations + "}\nspec: {ports: [{port: 80}], selector: {app: bad}" + spec + "}\n"
	}
	refused := []struct {
		what, manifest string
		want           []string
	}{
		{"a negative threshold", policy(`{overloadThreshold: "-5%"}`), []string{"overloadThreshold", "-5%"}},
		{"a * that is not last", policy(`{keys: ["*", topology.kubernetes.io/zone]}`), []string{"keys", "*"}},
		{"a bad label key", policy(`{keys: ["no spaces allowed"]}`), []string{"keys"}},
		{"a mode with keys", policy(`{mode: Prefer, keys: [topology.kubernetes.io/zone]}`), []string{"mode", "keys"}},
		{"an algorithm that is unknown", policy(`{algorithm: magic}`), []string{"algorithm", "magic"}},
		{"an expression that does not compile", policy(`{capacity: {type: Expression, expression: "zone.cpus * 2"}}`), []string{"capacity.expression", "cpus"}},
		{"an expression that is no number", policy(`{capacity: {type: Expression, expression: "zone.name"}}`), []string{"capacity.expression"}},
		{"keys that are no labels", service(`{vicinity.dev/topology-keys: "a b"}`, ""), []string{"vicinity.dev/topology-keys", "a b"}},
		{
			"keys beside externalTrafficPolicy: Local", service(`{vicinity.dev/topology-keys: "topology.kubernetes.io/zone"}`, ", type: NodePort, externalTrafficPolicy: Local"),
			[]string{"vicinity.dev/topology-keys", "externalTrafficPolicy"},
		},
	}
	for _, r := range refused {
		err := s.Apply(ctx, s.namespace, r.manifest)
		if err == nil {
			return "", fmt.Errorf("%s was accepted", r.what)
		}
		for _, want := range r.want {
			if !strings.Contains(err.Error(), want) {
				return "", fmt.Errorf("%s is refused without naming %q: %w", r.what, want, err)
			}
		}
	}
	warned := must(s.warnings(ctx, service(`{endpointslice.kubernetes.io/same-zone: "Sometimes"}`, "")))
	if !strings.Contains(warned, "Sometimes") || !strings.Contains(warned, "same-zone") {
		return "", fmt.Errorf("the warning of an unknown value is %q", warned)
	}
	return fmt.Sprintf("%d mistakes refused by name, 1 warned of", len(refused)), nil
}

// kubectl runs the lab's kubectl in the scene's namespace.
func (s *scene) kubectl(ctx context.Context, input string, args ...string) (output string, err error) {
	cmd := exec.CommandContext(ctx, root+"/bin/kubectl", append(args, "-n", s.namespace, "--kubeconfig", s.cluster.Kubeconfig())...)
	cmd.Stdin = strings.NewReader(input)
	all, err := cmd.CombinedOutput()
	if err != nil {
		return string(all), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, all)
	}
	return string(all), nil
}

// warnings returns the warnings of kubectl when a manifest is applied.
func (s *scene) warnings(ctx context.Context, manifest string) (string, error) {
	output, err := s.kubectl(ctx, manifest, "apply", "-f", "-")
	if err != nil {
		return "", err
	}
	var warnings []string
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, "Warning:") {
			warnings = append(warnings, line)
		}
	}
	return strings.Join(warnings, ""), nil
}

// ownZone labels a Service as users of Gardener do. Each of 3, 1 and 0 endpoints gets a hint for
// its own zone, whatever the load; clients of the zone without endpoints use all. Without the label
// the hints are removed.
func ownZone(ctx context.Context, s *scene) (string, error) {
	zones := s.cluster.Shape().Zones
	empty := zones[2].Name
	check(s.serve(ctx, lab.UnevenEchoManifests("echo", map[string]int{zones[0].Name: 3, zones[1].Name: 1, empty: 0}), 4))
	label := func(value string) error {
		return s.PatchService(ctx, s.namespace, "echo", fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, v1alpha1.LabelOwnZone, value))
	}
	check(label(`"true"`))
	check(s.waitHintedToOwnZone(ctx))
	plan := lab.LoadOptions{Plan: load.Plan{Rate: 600, Duration: time.Second}}
	check(kube.Wait(ctx, "traffic to follow the hints", func(ctx context.Context) (string, error) {
		result, err := s.load(ctx, plan)
		if err != nil {
			return "", err
		}
		if off := leavesZone(result, empty, 4); off != "" {
			return off, nil
		}
		return failures(result), nil
	}))
	result := must(s.flawless(ctx, plan))
	if off := leavesZone(result, empty, 4); off != "" {
		return "", errors.New(off)
	}
	check(label("null"))
	check(s.WaitHints(ctx, s.namespace, "echo", false))
	return fmt.Sprintf("3, 1 and 0 endpoints, each hinted to its own zone: %d requests: those of zones with endpoints stayed there, those of %s used all; 0 failed; without the label no hints",
		result.Answered, empty), nil
}

// waitHintedToOwnZone waits until each endpoint of the echo Service has exactly a hint for its own
// zone.
func (s *scene) waitHintedToOwnZone(ctx context.Context) error {
	return kube.Wait(ctx, "hints for the endpoints' own zones", func(ctx context.Context) (string, error) {
		endpoints, err := s.Endpoints(ctx, s.namespace, "echo", discoveryv1.AddressTypeIPv4)
		if err != nil {
			return "", err
		}
		for address, e := range endpoints {
			if e.Hints == nil || e.Zone == nil || !slices.Equal(e.Hints.ForZones, []discoveryv1.ForZone{{Name: *e.Zone}}) {
				return fmt.Sprintf("%s has %v", address, e.Hints), nil
			}
		}
		return "", nil
	})
}

// leavesZone describes a zone whose clients were answered from another one, or a node of the empty
// zone that does not use all endpoints.
func leavesZone(result load.Result, empty string, endpoints int) string {
	used := map[string]map[string]bool{} // endpoints, by the nodes of the empty zone
	for _, flow := range result.Flows {
		if flow.Zone != empty {
			if flow.To.Zone != flow.Zone {
				return fmt.Sprintf("%s is answered from %s", flow.Zone, flow.To.Zone)
			}
			continue
		}
		if used[flow.Node] == nil {
			used[flow.Node] = map[string]bool{}
		}
		used[flow.Node][flow.To.Pod] = true
	}
	for node, pods := range used {
		if len(pods) < endpoints {
			return fmt.Sprintf("%s uses %d of %d endpoints", node, len(pods), endpoints)
		}
	}
	if len(used) == 0 {
		return "no client of " + empty + " is answered"
	}
	return ""
}
