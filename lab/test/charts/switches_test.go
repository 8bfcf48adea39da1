package charts_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	release "helm.sh/helm/v4/pkg/release/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	routingcontroller "vicinity.dev/vicinity/internal/routing/controller"
)

// names returns the objects of a release by kind and name.
func names(t *testing.T, assignments ...string) []string {
	t.Helper()
	return slices.Sorted(maps.Keys(objects(t, rendered(t, assignments...))))
}

const noWebhooks = "webhooks.endpointSlices.enabled=false,webhooks.services.enabled=false,webhooks.policies.enabled=false"

func TestDisabledFeaturesInstallNothing(t *testing.T) {
	all := names(t)
	warnings, routingOff := warningPolicies(all), guard("vicinity-routing-off")
	controller := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return slices.Contains(warnings, name) })
	guardOfLocators := guard("vicinity-podlocators")
	proxy := []string{
		"ClusterRole vicinity-proxy", "ClusterRoleBinding vicinity-proxy", "DaemonSet vicinity-proxy", "Role vicinity-proxy",
		"RoleBinding vicinity-proxy", "Service vicinity-proxy-metrics", "ServiceAccount vicinity-proxy",
	}
	probed := append(slices.Clone(proxy), "Service vicinity-proxy-probe")
	guarded := slices.Concat(probed, guard("vicinity-proxy-leases"))
	dns := []string{
		"ClusterRole vicinity-dns", "ClusterRoleBinding vicinity-dns", "ConfigMap vicinity-dns", "Deployment vicinity-dns",
		"PodDisruptionBudget vicinity-dns", "Service vicinity-dns", "ServiceAccount vicinity-dns",
	}
	cilium := []string{"Role vicinity-controller-cilium", "RoleBinding vicinity-controller-cilium"}
	monitors := []string{"ServiceMonitor vicinity-controller", "ServiceMonitor vicinity-dns", "ServiceMonitor vicinity-proxy"}
	for _, test := range []struct {
		name, set   string
		gone, added []string
	}{
		{name: "routing", set: "routing.enabled=false", gone: controller, added: routingOff},
		{name: "everything", set: "routing.enabled=false,warnings.enabled=false", gone: all},
		{name: "warnings", set: "warnings.enabled=false", gone: warnings},
		{name: "ordinals alone", set: "routing.enabled=false,rollouts.ordinals=true,podDisruptionBudget.enabled=false", gone: slices.Concat(
			guard("vicinity-controller-writes"), guard("vicinity-ordinals-off"), cilium, []string{"PodDisruptionBudget vicinity-controller", "ValidatingWebhookConfiguration vicinity"},
		), added: routingOff},
		{name: "slices", set: "webhooks.endpointSlices.enabled=false", gone: []string{"MutatingWebhookConfiguration vicinity"}},
		{name: "hints", set: "routing.hints.enabled=false", gone: append([]string{"MutatingWebhookConfiguration vicinity"}, cilium...)},
		{name: "services", set: "webhooks.services.enabled=false"},
		{
			name: "services and policies", set: "webhooks.services.enabled=false,webhooks.policies.enabled=false",
			gone: []string{"ValidatingWebhookConfiguration vicinity"},
		},
		{name: "all webhooks", set: noWebhooks, gone: []string{
			"MutatingWebhookConfiguration vicinity", "ValidatingWebhookConfiguration vicinity",
			"Secret vicinity-webhook-certificate", "Service vicinity-webhook",
		}},
		{name: "metrics", set: "metrics.enabled=false", gone: []string{"Service vicinity-metrics"}},
		{name: "budget", set: "podDisruptionBudget.enabled=false", gone: []string{"PodDisruptionBudget vicinity-controller"}},
		{name: "guard of writes", set: "rbac.guardWrites=false", gone: slices.Concat(guard("vicinity-controller-writes"), guardOfLocators)},
		{name: "roles of users", set: "rbac.aggregate=false", gone: []string{"ClusterRole vicinity-edit", "ClusterRole vicinity-view"}},
		// The controller, if installed, publishes the addresses of nodes for the proxy.
		{name: "a proxy", set: "proxy.enabled=true", added: append(slices.Clone(guarded), "ConfigMap vicinity-node-addresses")},
		{name: "a proxy alone", set: "proxy.enabled=true,routing.enabled=false,warnings.enabled=false", gone: all, added: guarded},
		{name: "a proxy that removes a taint", set: withTaint + ",routing.enabled=false,warnings.enabled=false", gone: all, added: slices.Concat(guarded, guard(policyOfTaint))},
		{name: "a proxy without a guard", set: "proxy.enabled=true,routing.enabled=false,warnings.enabled=false,proxy.guardLeases=false", gone: all, added: probed},
		{name: "a proxy without probes", set: "proxy.enabled=true,routing.enabled=false,warnings.enabled=false,proxy.guardLeases=false,proxy.probe.enabled=false", gone: all, added: proxy},
		{name: "a DNS server", set: "dns.enabled=true", added: dns},
		{name: "a DNS server alone", set: "dns.enabled=true,routing.enabled=false,warnings.enabled=false", gone: all, added: slices.Concat(dns, guardOfLocators)},
		{name: "a DNS server without a guard", set: "dns.enabled=true,routing.enabled=false,warnings.enabled=false,rbac.guardWrites=false", gone: all, added: dns},
		{name: "monitors", set: "monitoring.serviceMonitors.enabled=true", added: monitors[:1]},
		{
			name: "monitoring of everything", set: allPrograms + "," + monitored,
			added: slices.Concat(guarded, []string{"ConfigMap vicinity-node-addresses"}, dns, monitors, []string{
				"ConfigMap vicinity-dashboard-cluster", "ConfigMap vicinity-dashboard-disruption", "ConfigMap vicinity-dashboard-dns",
				"ConfigMap vicinity-dashboard-proxy", "ConfigMap vicinity-dashboard-service", "PrometheusRule vicinity",
			}),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return slices.Contains(test.gone, name) })
			if len(want)+len(test.gone) != len(all) {
				t.Fatalf("some of %q are missing by default too", test.gone)
			}
			want = slices.Sorted(slices.Values(append(want, test.added...)))
			if got := names(t, test.set); !slices.Equal(got, want) {
				t.Errorf("installs %q, want %q", got, want)
			}
		})
	}
}

// warningPolicies returns the policies that warn of parts that are off.
func warningPolicies(names []string) (found []string) {
	for _, name := range names {
		if strings.HasPrefix(name, "ValidatingAdmissionPolicy") && strings.HasSuffix(name, "-off") {
			found = append(found, name)
		}
	}
	return found
}

// guard returns the objects of a policy.
func guard(policy string) []string {
	return []string{"ValidatingAdmissionPolicy " + policy, "ValidatingAdmissionPolicyBinding " + policy}
}

// Objects are guarded wherever the controller may write them. PodLocators are also guarded wherever
// a program reads them.
func TestLocatorsAreGuarded(t *testing.T) {
	const locators, pods, namespaces, pdbs = "vicinity-podlocators", policyOfPods, policyOfNamespaces, policyOfPDBs
	for set, want := range map[string][]string{
		"routing.enabled=true":                         {locators},
		"routing.enabled=false":                        nil,
		"routing.enabled=false,proxy.enabled=true":     nil,
		"routing.enabled=false,locators.enabled=true":  {locators},
		"routing.enabled=false,dns.enabled=true":       {locators},
		"locators.enabled=true,rbac.guardWrites=false": nil,
		withScaleDown:                                {locators, pods},
		withScaleDown + ",routing.enabled=false":     {locators, pods},
		"rollouts.enabled=false":                     {locators, pods},
		withScaleDown + ",rbac.guardWrites=false":    nil,
		withBudgets:                                  {locators, namespaces, pdbs},
		withBudgets + ",disruption.projectPDBs=true": {locators, namespaces, pdbs},
		withBudgets + ",routing.enabled=false":       {locators, namespaces, pdbs},
		withBudgets + ",rbac.guardWrites=false":      nil,
	} {
		installed := names(t, set)
		for _, policy := range []string{locators, pods, namespaces, pdbs} {
			for _, name := range guard(policy) {
				if got, want := slices.Contains(installed, name), slices.Contains(want, policy); got != want {
					t.Errorf("%s: %s exists: %t, want %t", set, name, got, want)
				}
			}
		}
	}
}

// daemonSet returns the pod spec of the proxy.
func daemonSet(t *testing.T, set string) corev1.PodSpec {
	t.Helper()
	return object[*appsv1.DaemonSet](t, rendered(t, "proxy.enabled=true"+set), "DaemonSet vicinity-proxy").Spec.Template.Spec
}

// A compromised proxy can change the network of its node, and nothing else.
func TestProxyIsConfined(t *testing.T) {
	pod := daemonSet(t, ",proxy.accounting.bytes=true")
	if !pod.HostNetwork || pod.HostPID || pod.HostIPC || ptr.Deref(pod.HostUsers, true) != true {
		t.Error("the pod is not in the network of its node, or in another namespace of it")
	}
	if pod.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the pod runs as %v", pod.SecurityContext)
	}
	for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
		own := container.SecurityContext
		if !ptr.Deref(own.ReadOnlyRootFilesystem, false) || ptr.Deref(own.AllowPrivilegeEscalation, true) || ptr.Deref(own.Privileged, false) ||
			!slices.Equal(own.Capabilities.Drop, []corev1.Capability{"ALL"}) || !slices.Equal(own.Capabilities.Add, []corev1.Capability{"NET_ADMIN"}) {
			t.Errorf("container %s runs as %v", container.Name, own)
		}
		if container.Name == "proxy" && len(container.VolumeMounts) > 0 {
			t.Errorf("the proxy itself has %v mounted", container.VolumeMounts)
		}
	}
	if len(pod.InitContainers) != 1 || len(pod.Volumes) != 1 || pod.Volumes[0].HostPath == nil || pod.Volumes[0].HostPath.Path != "/proc/sys/net" {
		t.Errorf("the pod has the init containers %v and the volumes %v, want one of each", pod.InitContainers, pod.Volumes)
	}
	mounted := pod.InitContainers[0].VolumeMounts
	if len(mounted) != 1 || !slices.Contains(pod.InitContainers[0].Args, "--sysctl-folder="+mounted[0].MountPath) {
		t.Errorf("the init container has %v mounted and the arguments %q", mounted, pod.InitContainers[0].Args)
	}
	// The init container exists only when kernel settings must be changed.
	const zero = "proxy.conntrack.maxPerCore=0,proxy.conntrack.tcpEstablishedTimeout=0s,proxy.conntrack.tcpCloseWaitTimeout=0s"
	for want, sets := range [][]string{
		{
			"", ",proxy.accounting.bytes=true,proxy.accounting.enabled=false", ",proxy.conntrack.udpTimeout=0s", ",proxy.conntrack.min=262144",
			",proxy.allServices=true," + zero,
		},
		{",proxy.conntrack.tcpBeLiberal=true", ",proxy.conntrack.udpTimeout=1m"},
	} {
		for _, set := range sets {
			if pod := daemonSet(t, set); len(pod.InitContainers) != want || len(pod.Volumes) != want {
				t.Errorf("%s: the pod has the init containers %v and the volumes %v, want %d of each", set, pod.InitContainers, pod.Volumes, want)
			}
		}
	}
}

// Flags tell the controller which parts to run, whether to publish the addresses of nodes, whether
// groups are the default, which pods get a PodLocator, and whether to delete existing ones.
func TestValuesReachTheController(t *testing.T) {
	for _, test := range []struct{ set, flags, want string }{
		{"proxy.enabled=true", "--publish-", "--publish-node-addresses"},
		{"proxy.enabled=false", "--publish-", ""},
		{"proxy.enabled=true", "--groups-", ""},
		{"proxy.allServices=true", "--groups-", ""},
		{"proxy.enabled=true,proxy.allServices=true", "--groups-", "--groups-by-default"},
		{"proxy.enabled=true,proxy.allServices=true,routing.groups.byDefault=false", "--groups-", ""},
		{"proxy.enabled=true,routing.groups.byDefault=true", "--groups-", "--groups-by-default"},
		{"locators.enabled=true", "--locator", "--locators=auto"},
		{"locators.enabled=true,locators.all=true", "--locator", "--locators=all"},
		{"locators.enabled=false,locators.all=true", "--locator", "--locators=off"},
		{"profile=routing", "--routing", ""},
		{"routing.enabled=false,disruption.enabled=true", "--routing", "--routing=false"},
		{"routing.enabled=false,disruption.enabled=true", "--webhook-services", "--webhook-services=false"},
		{"rollouts.enabled=true", "--r", "--replan-after=10m --replan-rate=100 --rollouts"},
		// Pods are released only after users switched rollouts off themselves.
		{"profile=routing", "--release", ""},
		{"rollouts.enabled=false", "--release", "--release-pods"},
	} {
		args := object[*appsv1.Deployment](t, rendered(t, test.set), "Deployment vicinity-controller").Spec.Template.Spec.Containers[0].Args
		args = slices.DeleteFunc(args, func(arg string) bool { return !strings.HasPrefix(arg, test.flags) })
		if got := strings.Join(args, " "); got != test.want {
			t.Errorf("%s: the controller has %q, want %q", test.set, got, test.want)
		}
	}
}

// runsOn reports whether the scheduler allows a pod on a node with these labels.
func runsOn(t *testing.T, pod corev1.PodSpec, node map[string]string) bool {
	t.Helper()
	matches, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: pod}).Match(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: node}})
	if err != nil {
		t.Fatal(err)
	}
	return matches
}

// The controller waits for exactly the nodes on which the DaemonSet runs.
func TestHandOverWaitsForTheNodesOfTheProxy(t *testing.T) {
	nodes := []map[string]string{{}}
	for key, values := range map[string][]string{corev1.LabelOSStable: {"linux", "windows"}, "type": {"", "virtual"}, "gen": {"3", "7"}} {
		for _, node := range slices.Clone(nodes) {
			for _, value := range values {
				more := maps.Clone(node)
				more[key] = value
				nodes = append(nodes, more)
			}
		}
	}
	affinity := func(terms string) string {
		return "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [" + terms + "]}}}"
	}
	with := func(text string) (*release.Release, error) {
		var proxy map[string]any
		if err := yaml.Unmarshal([]byte(text), &proxy); err != nil {
			t.Fatal(err)
		}
		return renderValues(t, map[string]any{"proxy": proxy})
	}
	for _, set := range []string{
		"enabled: true\ntolerations: [{operator: Exists, effect: NoSchedule}, {operator: Exists, effect: NoExecute}]\nnodeSelector: {type: virtual}",
		"enabled: true\ntolerations: [{key: other, operator: Exists}, {operator: Exists}]", "{enabled: true, nodeSelector: {type: virtual}}",
		"enabled: true\n" + affinity("{matchExpressions: [{key: type, operator: NotIn, values: [virtual, other]}]}"),
		"enabled: true\nnodeSelector: {gen: '3'}\n" + affinity("{matchExpressions: [{key: type, operator: DoesNotExist}]}, {}, {matchExpressions: [{key: type, operator: In, values: [virtual]}]}"),
		"enabled: true\n" + affinity("{matchExpressions: [{key: gen, operator: Gt, values: ['5']}]}, {matchExpressions: [{key: type, operator: Exists}]}"),
		"enabled: true\n" + affinity("{matchExpressions: [{key: gen, operator: Lt, values: ['5']}, {key: type, operator: Exists}]}"),
	} {
		r, err := with(set)
		if err != nil {
			t.Fatal(err)
		}
		var rule routingcontroller.NodeRule
		for _, arg := range object[*appsv1.Deployment](t, r, "Deployment vicinity-controller").Spec.Template.Spec.Containers[0].Args {
			if selector, found := strings.CutPrefix(arg, "--proxy-nodes="); found {
				if err := rule.Set(selector); err != nil {
					t.Fatalf("%s: %v", set, err)
				}
			}
		}
		pod := object[*appsv1.DaemonSet](t, r, "DaemonSet vicinity-proxy").Spec.Template.Spec
		runs := 0
		for _, labels := range nodes {
			want := runsOn(t, pod, labels)
			if got := rule.Matches(labels); got != want {
				t.Errorf("%s: the controller waits for a node with %v: %t; the proxy runs there: %t", set, labels, got, want)
			}
			if want {
				runs++
			}
		}
		if runs == 0 || runs == len(nodes) {
			t.Errorf("%s: the proxy runs on %d of %d nodes", set, runs, len(nodes))
		}
	}
	for set, want := range map[string]string{
		"affinity: {podAffinity: {a: b}}":                 "proxy.affinity.podAffinity: the controller could not tell",
		affinity("{matchFields: [{key: metadata.name}]}"): "matchFields",
		affinity("{}"):    "no node would run the proxy",
		"tolerations: []": "proxy.tolerations: the controller could not tell",
		"tolerations: [{key: dedicated, operator: Exists}, {operator: Exists, effect: NoSchedule}]": "add {operator: Exists}",
		affinity("{matchExpressions: [{key: a, operator: Near, values: [b]}]}"):                     "operator Near",
	} {
		if _, err := with("enabled: true\n" + set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want one about %q", set, err, want)
		}
	}
}

// A compromised pod has only the rights of its program.
func TestPodsAreConfined(t *testing.T) {
	r := rendered(t, "dns.enabled=true")
	for name, added := range map[string][]corev1.Capability{"vicinity-controller": nil, "vicinity-dns": {"NET_BIND_SERVICE"}} {
		pod := object[*appsv1.Deployment](t, r, "Deployment "+name).Spec.Template.Spec
		shared, own := pod.SecurityContext, pod.Containers[0].SecurityContext
		if !ptr.Deref(shared.RunAsNonRoot, false) || ptr.Deref(shared.RunAsUser, 0) == 0 || shared.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("the pod of %s runs as %v", name, shared)
		}
		if !ptr.Deref(own.ReadOnlyRootFilesystem, false) || ptr.Deref(own.AllowPrivilegeEscalation, true) ||
			!slices.Equal(own.Capabilities.Drop, []corev1.Capability{"ALL"}) || !slices.Equal(own.Capabilities.Add, added) {
			t.Errorf("the container of %s runs as %v", name, own)
		}
		for _, volume := range pod.Volumes {
			if volume.EmptyDir == nil && volume.ConfigMap == nil {
				t.Errorf("volume %s is of the node or of the API", volume.Name)
			}
		}
		if pod.HostNetwork || pod.HostPID || pod.HostIPC {
			t.Errorf("the pod of %s is in a namespace of the node", name)
		}
	}
}

// The garbage collector gets less memory than the container's limit, in whatever unit the limit is
// written.
func TestMemoryIsKeptBelowTheLimit(t *testing.T) {
	for _, test := range []struct {
		limit any
		want  string
	}{
		{"1.5Gi", "1449551462"},
		{"1e9", "900000000"},
		{float64(1 << 30), "966367642"},
		{"128974848000m", "116077363"},
		{nil, ""},
	} {
		r, err := renderValues(t, map[string]any{"resources": map[string]any{"limits": map[string]any{"memory": test.limit}}})
		if err != nil {
			t.Errorf("%v: %v", test.limit, err)
			continue
		}
		container := object[*appsv1.Deployment](t, r, "Deployment vicinity-controller").Spec.Template.Spec.Containers[0]
		got := ""
		for _, env := range container.Env {
			if env.Name == "GOMEMLIMIT" {
				got = env.Value
			}
		}
		if got != test.want {
			t.Errorf("with a limit of %v GOMEMLIMIT is %q, want %q", test.limit, got, test.want)
			continue
		}
		if limit := container.Resources.Limits.Memory(); got != "" {
			if heap := resource.MustParse(got); heap.AsApproximateFloat64()/limit.AsApproximateFloat64() > 0.901 || heap.AsApproximateFloat64()/limit.AsApproximateFloat64() < 0.899 {
				t.Errorf("%s is not 90 %% of what Kubernetes reads, %s", got, limit)
			}
		}
	}
	if _, err := render(t, "resources.limits.memory=1GiB"); err == nil || !strings.Contains(err.Error(), `resources.limits.memory: "1GiB" is not a quantity`) {
		t.Errorf("1GiB is not refused by name: %v", err)
	}
}

// Selectors match the labels of pods, and separate proxies from controllers, whatever labels users
// add.
func TestSelectorsFindThePods(t *testing.T) {
	r := rendered(t, "podLabels.a=b,podLabels.app\\.kubernetes\\.io/component=other,nameOverride=near",
		"proxy.enabled=true,proxy.podLabels.a=b,proxy.podLabels.app\\.kubernetes\\.io/component=controller")
	deployment := object[*appsv1.Deployment](t, r, "Deployment vicinity-near-controller").Spec
	proxies := object[*appsv1.DaemonSet](t, r, "DaemonSet vicinity-near-proxy").Spec
	selector := func(service string) map[string]string {
		return object[*corev1.Service](t, r, "Service "+service).Spec.Selector
	}
	for _, test := range []struct {
		labels    map[string]string
		component string
		selectors []map[string]string
	}{
		{deployment.Template.Labels, "controller", []map[string]string{deployment.Selector.MatchLabels, selector("vicinity-near-webhook"), selector("vicinity-near-metrics")}},
		{proxies.Template.Labels, "proxy", []map[string]string{proxies.Selector.MatchLabels, selector("vicinity-near-proxy-metrics")}},
	} {
		if test.labels["a"] != "b" || test.labels["app.kubernetes.io/component"] != test.component {
			t.Errorf("the labels are %v", test.labels)
		}
		for _, selector := range test.selectors {
			if selector["app.kubernetes.io/component"] != test.component {
				t.Errorf("%v does not select the component %s", selector, test.component)
			}
			for key, value := range selector {
				if test.labels[key] != value {
					t.Errorf("%s=%s is selected, the pods have %q", key, value, test.labels[key])
				}
			}
		}
	}
}
