package charts_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
)

// Each write that needs a part has a warning while the part is off. The warning names the value.
func TestPartsThatAreOffWarn(t *testing.T) {
	annotated := func(key string) string { return "{metadata: {annotations: {" + key + ": x}}, spec: {template: {}}}" }
	labelled := func(key string) string { return "{metadata: {labels: {" + key + ": 'true'}}}" }
	const plain, bare = "{metadata: {name: x}, spec: {template: {}}}", "{metadata: {name: x}, spec: {}}"
	for _, test := range []struct {
		part, value, kind, asks, does string // does is no request for the part
	}{
		{"routing", "routing.enabled", "routingpolicies", bare, ""},
		{"routing", "routing.enabled", "clusterroutingpolicies", bare, ""},
		{"routing", "routing.enabled", "services", annotated("endpointslice.kubernetes.io/same-zone"), annotated("example.com/other")},
		{"routing", "routing.enabled", "services", annotated("vicinity.dev/proxy"), bare},
		{"routing", "routing.enabled", "services", "{metadata: {annotations: {service.kubernetes.io/topology-mode: vicinity.dev/p}}}", "{metadata: {annotations: {service.kubernetes.io/topology-mode: Auto}}}"},
		{"routing", "routing.enabled", "services", annotated("vicinity.dev/proxy"), "{metadata: {annotations: {service.kubernetes.io/topology-mode: vicinity.dev/Routed}}}"},
		{"disruption", "disruption.enabled", "topologydisruptionbudgets", bare, ""},
		{"eviction-requests", "disruption.evictionRequests", "namespaces", labelled("vicinity.dev/eviction-requests"), bare},
		{"rollouts", "rollouts.enabled", "domainrollouts", bare, ""},
		{"rollouts", "rollouts.enabled", "deployments", "{metadata: {}, spec: {template: {spec: {schedulingGates: [{name: vicinity.dev/rollout}]}}}}", plain},
		{"keep-spread", "rollouts.scaleDown", "deployments", annotated("vicinity.dev/keep-spread"), plain},
		{"keep-spread", "rollouts.scaleDown", "namespaces", annotated("vicinity.dev/keep-spread"), bare},
		{"pacing", "rollouts.pacing", "namespaces", labelled("vicinity.dev/pace-scale-down"), bare},
		{"pacing", "rollouts.pacing", "statefulsets", annotated("vicinity.dev/pace-scale-down"), plain},
		{"ordinals", "rollouts.ordinals", "statefulsets", "{metadata: {}, spec: {template: {metadata: {annotations: {vicinity.dev/spread-ordinals: zone}}}}}", plain},
	} {
		r := rendered(t, test.value+"=false,routing.enabled=false,disruption.enabled=false")
		name := "vicinity-" + test.part + "-off"
		stored := object[*admissionv1.ValidatingAdmissionPolicy](t, r, "ValidatingAdmissionPolicy "+name)
		binding := object[*admissionv1.ValidatingAdmissionPolicyBinding](t, r, "ValidatingAdmissionPolicyBinding "+name)
		if binding.Spec.PolicyName != name || !slices.Equal(binding.Spec.ValidationActions, []admissionv1.ValidationAction{admissionv1.Warn}) {
			t.Errorf("%s: the binding is %+v", name, binding.Spec)
		}
		if !slices.ContainsFunc(stored.Spec.MatchConstraints.ResourceRules, func(r admissionv1.NamedRuleWithOperations) bool { return slices.Contains(r.Resources, test.kind) }) {
			t.Errorf("%s does not see %s", name, test.kind)
		}
		p := newPolicy(t, stored)
		p.user = map[string]any{"username": "tenant"}
		if got, _ := p.refuses(t, test.kind, nil, parsed(t, test.asks)); !strings.Contains(got, test.value+" is off") || !strings.Contains(got, test.value+"=true.") {
			t.Errorf("%s: %s %s: the warning is %q", name, test.kind, test.asks, got)
		}
		p.user = map[string]any{"username": "system:serviceaccount:kube-system:deployment-controller"}
		if got, _ := p.refuses(t, test.kind, nil, parsed(t, test.asks)); got != "" {
			t.Errorf("%s warns a controller of Kubernetes: %q", name, got)
		}
		if test.does == "" {
			continue
		}
		p.user = map[string]any{"username": "tenant"}
		if got, _ := p.refuses(t, test.kind, nil, parsed(t, test.does)); got != "" {
			t.Errorf("%s: %s %s: the warning is %q", name, test.kind, test.does, got)
		}
	}
	if left := warningPolicies(names(t, "profile=all,disruption.evictionRequests=true")); len(left) > 0 {
		t.Errorf("with all parts on, there are %q", left)
	}
}

// The warning about the scheduling gate says whether pods wait for ever.
func TestWarningSaysWhatHappensAtTheGate(t *testing.T) {
	for set, want := range map[string]string{"profile=routing": "are never scheduled", "rollouts.enabled=false": "are released at once"} {
		policy := object[*admissionv1.ValidatingAdmissionPolicy](t, rendered(t, set), "ValidatingAdmissionPolicy vicinity-rollouts-off")
		if got := policy.Spec.Validations[0].Message; !strings.Contains(got, want) {
			t.Errorf("%s: the warning is %q", set, got)
		}
	}
}

// The profile decides the switches that are null, as docs/install.md has it. A user's value wins.
func TestProfiles(t *testing.T) {
	profiles := []string{"routing", "names", "disruption", "all"}
	// Each switch, and an object or a flag of the controller that it adds.
	switches := map[string]string{
		"routing.enabled": "ValidatingAdmissionPolicy vicinity-controller-writes", "routing.hints.enabled": "--hints=true",
		"proxy.enabled": "DaemonSet vicinity-proxy", "dns.enabled": "Deployment vicinity-dns", "locators.enabled": "--locators=auto",
		"disruption.enabled": "--budgets", "rollouts.enabled": "--rollouts", "rollouts.scaleDown": "--scale-down",
		"rollouts.pacing": "--pace-scale-downs", "rollouts.ordinals": "--webhook-ordinals",
	}
	text := string(must(os.ReadFile("../../../docs/install.md")))
	for _, name := range slices.Sorted(maps.Keys(switches)) {
		row := "| `" + name + "` |"
		for _, profile := range profiles {
			is := map[bool]string{true: "on", false: "off"}
			on := adds(t, switches[name], "profile="+profile)
			row += is[on] + "|"
			given := fmt.Sprintf("profile=%s,%s=%t", profile, name, !on)
			if name == "disruption.enabled" && on {
				given += ",rollouts.pacing=false"
			}
			if name == "rollouts.pacing" && !on {
				given += ",disruption.enabled=true"
			}
			if adds(t, switches[name], given) == on {
				t.Errorf("%s does not count", given)
			}
		}
		if !strings.Contains(text, "\n"+row) {
			t.Errorf("docs/install.md lacks the row %s", row)
		}
	}
	if rendered(t).Manifest != rendered(t, "profile=routing").Manifest {
		t.Error("the profile routing is not the default")
	}
}

// adds reports whether a release has an object or a flag of the controller.
func adds(t *testing.T, wanted, set string) bool {
	t.Helper()
	all := objects(t, rendered(t, set))
	if !strings.HasPrefix(wanted, "--") {
		return all[wanted] != nil
	}
	controller, ok := all["Deployment vicinity-controller"].(*appsv1.Deployment)
	return ok && slices.Contains(controller.Spec.Template.Spec.Containers[0].Args, wanted)
}

// Every part works without routing.
func TestPartsRunWithoutRouting(t *testing.T) {
	for _, set := range []string{"locators.enabled=true", "disruption.enabled=true", "rollouts.enabled=true", "rollouts.scaleDown=true", "rollouts.ordinals=true"} {
		if !adds(t, "--routing=false", "routing.enabled=false,"+set) {
			t.Errorf("with %s alone no controller runs, or it routes", set)
		}
	}
}
