package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/kube"
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
	if err := s.crowded(ctx); err != nil {
		return "", err
	}
	if err := s.expressionFails(ctx); err != nil {
		return "", err
	}
	if err := s.tenantCannotWrite(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d mistakes refused by name, 1 warned of; an expression that fails told of; 10,000 endpoints in slices of 1,000 routed, a namesake left alone; a tenant kept from EndpointGroups", len(refused)), nil
}

// expressionFails has a policy whose expression compiles and fails when it is
// evaluated: its status says so.
func (s *scene) expressionFails(ctx context.Context) error {
	const manifest = `apiVersion: vicinity.dev/v1alpha1
kind: RoutingPolicy
metadata: {name: failing}
spec:
  selector: {}
  capacity: {type: Expression, expression: "zone.cpu - 1000000.0"}
`
	if err := s.Apply(ctx, s.namespace, manifest); err != nil {
		return err
	}
	return kube.Wait(ctx, "the policy to be called faulty", func(ctx context.Context) (string, error) {
		output, err := s.kubectl(ctx, "", "get", "routingpolicy", "failing", "-o", `jsonpath={.status.conditions[?(@.type=="Accepted")].status} {.status.conditions[?(@.type=="Accepted")].message}`)
		if err != nil {
			return "", err
		}
		if !strings.HasPrefix(output, "False ") || !strings.Contains(output, "expression") {
			return fmt.Sprintf("its condition is %q", output), nil
		}
		return "", nil
	})
}

// crowded has a Service of ten thousand endpoints, in slices as large as the API takes,
// beside one whose name begins alike, which stays as it is.
func (s *scene) crowded(ctx context.Context) error {
	const each, number = 1000, 10
	var manifests strings.Builder
	// No proxy of the lab needs to bear them.
	service := func(name, annotations string) {
		fmt.Fprintf(&manifests, "---\napiVersion: v1\nkind: Service\nmetadata: {name: %s, annotations: {%s}, labels: {service.kubernetes.io/service-proxy-name: nobody}}\nspec: {ports: [{port: 80}]}\n", name, annotations)
	}
	zones := s.inhabited()
	slice := func(service string, index, endpoints int) {
		fmt.Fprintf(&manifests, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %[1]s-%[2]d, labels: {kubernetes.io/service-name: %[1]s, service.kubernetes.io/service-proxy-name: nobody}}\naddressType: IPv4\nports: [{port: 80, protocol: TCP, name: \"\"}]\nendpoints:\n", service, index)
		for i := range endpoints {
			fmt.Fprintf(&manifests, "- {addresses: [10.%d.%d.%d], zone: %s, conditions: {ready: true}}\n", 200+index, i/250, i%250+1, zones[i%len(zones)].Name)
		}
	}
	service("crowd", `endpointslice.kubernetes.io/same-zone: Prefer`)
	for i := range number {
		slice("crowd", i, each)
	}
	service("crowd-too", "")
	slice("crowd-too", 20, 30)
	if err := s.Apply(ctx, s.namespace, manifests.String()); err != nil {
		return err
	}
	if _, err := s.converged(ctx, "crowd", each*number); err != nil {
		return err
	}
	if hinted, err := s.hinted(ctx, "crowd"); err != nil || !hinted {
		return errors.Join(err, errors.New("not all of the ten thousand endpoints carry hints"))
	}
	hints, err := s.allHints(ctx, "crowd-too")
	if err != nil {
		return err
	}
	for address, zones := range hints {
		if zones != "" {
			return fmt.Errorf("endpoint %s of a Service that asks for nothing got hints for %s", address, zones)
		}
	}
	return nil
}

// hostNames has Services with slices of host names, written by hand: they are left
// alone, and it is said, whether there are addresses too or not.
func hostNames(ctx context.Context, s *scene) (string, error) {
	const said = "EndpointSlices of host names (addressType FQDN) are left out: proxies need addresses"
	var manifests strings.Builder
	for _, service := range []string{"names", "both"} {
		fmt.Fprintf(&manifests, `apiVersion: v1
kind: Service
metadata: {name: %[1]s, annotations: {endpointslice.kubernetes.io/same-zone: Prefer}}
spec: {ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-names, labels: {kubernetes.io/service-name: %[1]s}}
addressType: FQDN
ports: [{port: 80, protocol: TCP, name: ""}]
endpoints: [{addresses: [one.example.com]}, {addresses: [other.example.com]}]
---
`, service)
	}
	manifests.WriteString(`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: both-addresses, labels: {kubernetes.io/service-name: both}}
addressType: IPv4
ports: [{port: 80, protocol: TCP, name: ""}]
endpoints:
`)
	zones := s.inhabited()
	for i := range 12 {
		fmt.Fprintf(&manifests, "- {addresses: [10.199.0.%d], zone: %s, conditions: {ready: true}}\n", i+1, zones[i%len(zones)].Name)
	}
	if err := s.Apply(ctx, s.namespace, manifests.String()); err != nil {
		return "", err
	}
	if err := s.warns(ctx, "names", said, "balanced: no endpoint is ready. "+said); err != nil {
		return "", err
	}
	output, err := s.vicinity(ctx, "explain", "svc/names", "-n", s.namespace)
	if err != nil {
		return "", err
	}
	if want := "no plan: no EndpointSlice of the Service has addresses"; !strings.Contains(string(output), want) {
		return "", fmt.Errorf("explain does not say %q but:\n%s", want, output)
	}
	if _, err := s.converged(ctx, "both", 12); err != nil {
		return "", err
	}
	if err := s.warns(ctx, "both", said, "endpoints are divided among zones by optimal, the overload stays below 50 %. "+said); err != nil {
		return "", err
	}
	if hinted, err := s.hinted(ctx, "both"); err != nil || !hinted {
		return "", errors.Join(err, errors.New("the addresses beside the names carry no hints"))
	}
	for _, service := range []string{"names", "both"} {
		slice, err := s.DiscoveryV1().EndpointSlices(s.namespace).Get(ctx, service+"-names", metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		if slice.Generation != 1 {
			return "", fmt.Errorf("slice %s of host names was written: its generation is %d", slice.Name, slice.Generation)
		}
	}
	return "2 slices of host names told of and left as they were, the addresses beside one routed", nil
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

// tenantCannotWrite has someone with the edit role write a policy, and fail to write a
// group.
func (s *scene) tenantCannotWrite(ctx context.Context) error {
	const tenant = "tenant"
	if _, err := s.kubectl(ctx, "", "create", "rolebinding", tenant, "--clusterrole=edit", "--user="+tenant); err != nil {
		return err
	}
	allowed := func(resource string) (bool, error) {
		output, err := s.kubectl(ctx, "", "auth", "can-i", "create", resource, "--as", tenant)
		if answer := strings.TrimSpace(output); answer == "yes" || strings.HasPrefix(answer, "no") {
			return answer == "yes", nil
		}
		return false, err
	}
	// Aggregated roles take a moment.
	err := kube.Wait(ctx, "tenants to be allowed RoutingPolicies", func(context.Context) (string, error) {
		if ok, err := allowed("routingpolicies.vicinity.dev"); err != nil || ok {
			return "", err
		}
		return "not allowed", nil
	})
	if err != nil {
		return err
	}
	if ok, err := allowed("endpointgroups.vicinity.dev"); err != nil || ok {
		return errors.Join(err, errors.New("a tenant may create EndpointGroups, by which one can claim another's addresses"))
	}
	return nil
}
