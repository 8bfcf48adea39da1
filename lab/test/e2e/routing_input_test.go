package e2e_test

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// badInput has each mistake refused, or taken with a warning, in words that name it.
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
	warned, err := s.warnings(ctx, service(`{endpointslice.kubernetes.io/same-zone: "Sometimes"}`, ""))
	if err != nil {
		return "", err
	}
	if !strings.Contains(warned, "Sometimes") || !strings.Contains(warned, "same-zone") {
		return "", fmt.Errorf("an unknown value gives the warning %q", warned)
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

// warnings are what kubectl shows when a manifest is applied.
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
