package consumer

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/routing/hints"
)

const (
	older = v1alpha1.AnnotationTopologyAwareHints
	newer = v1alpha1.AnnotationTopologyMode
)

// daemonSet returns one with a container of the image with these arguments, on three nodes.
func daemonSet(name, image string, args ...string) *appsv1.DaemonSet {
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name}, Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 3}}
	set.Spec.Template.Spec.Containers = []corev1.Container{{Name: name, Image: image, Args: args}}
	return set
}

func calico(version, bpf string) *appsv1.DaemonSet {
	set := daemonSet("calico-node", "quay.io/calico/node:"+version)
	set.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "FELIX_BPFENABLED", Value: bpf}}
	return set
}

func sets(all ...*appsv1.DaemonSet) Settings { return Settings{DaemonSets: all} }

// cilium returns the settings of a Cilium in place of kube-proxy.
func cilium(topology string) Settings {
	s := sets(daemonSet("cilium", "quay.io/cilium/cilium:v1.20.1@sha256:00"))
	s.Cilium = map[string]string{"kube-proxy-replacement": "true", "enable-service-topology": topology}
	return s
}

func service(distribution string, annotations map[string]string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", Annotations: annotations}}
	if distribution != "" {
		s.Spec.TrafficDistribution = &distribution
	}
	return s
}

func TestConsumersIgnoreHints(t *testing.T) {
	plain := service("", nil)
	kubeProxy := daemonSet("kube-proxy", "registry.k8s.io/kube-proxy:v1.37.2")
	off := daemonSet("kube-proxy", "registry.k8s.io/kube-proxy:v1.37.2")
	off.Status.DesiredNumberScheduled = 0
	beside := cilium("")
	beside.DaemonSets, beside.Cilium["kube-proxy-replacement"] = append(beside.DaemonSets, kubeProxy), "false"
	operator := sets(daemonSet("calico-node", "quay.io/calico/node:v3.31.5"))
	operator.CalicoBPF = true
	oldCilium, settingsOfCilium := cilium("true"), Settings{Cilium: cilium("true").Cilium}
	oldCilium.DaemonSets = []*appsv1.DaemonSet{daemonSet("cilium", "quay.io/cilium/cilium:v1.19.6")}
	replaced := sets(daemonSet("ovnkube-node", "ovn-kube-f:1.2"), off)
	replaced.KubeProxy = &ProxyConfig{}
	antrea := func(gate string) Settings {
		s := sets(daemonSet("antrea-agent", "antrea/antrea-agent-ubuntu:v2.5.0"), kubeProxy)
		s.Antrea = &ProxyConfig{Gates: map[string]bool{gate: false}}
		return s
	}
	const mark = "let routing.markServices in Vicinity's chart be auto, and its controller read cilium-config; or set spec.trafficDistribution: PreferClose"
	const upgrade = "upgrade Calico to 3.31.5 or newer, which has projectcalico/calico#11751"
	type ignored struct{ name, version, why, remedy string }
	for name, c := range map[string]struct {
		settings Settings
		service  *corev1.Service
		want     []ignored
	}{
		"nothing is visible": {Settings{}, plain, nil},
		"kube-proxy":         {sets(kubeProxy), plain, []ignored{{"kube-proxy", "v1.37.2", "", ""}}},
		"settings of kube-proxy alone": {
			Settings{KubeProxy: &ProxyConfig{Gates: map[string]bool{"TopologyAwareHints": false}}},
			plain,
			[]ignored{{"kube-proxy", "", "its feature gate TopologyAwareHints is false", "remove TopologyAwareHints from the feature gates of kube-proxy"}},
		},
		"kube-proxy without a gate": {
			sets(daemonSet("kube-proxy", "kube-proxy", "--feature-gates=A=true,ServiceTrafficDistribution=false")), plain,
			[]ignored{{"kube-proxy", "", "its feature gate ServiceTrafficDistribution is false", "remove ServiceTrafficDistribution from the feature gates of kube-proxy"}},
		},

		"Cilium beside kube-proxy": {beside, plain, []ignored{{"kube-proxy", "v1.37.2", "", ""}, {"Cilium", "v1.20.1", "", ""}}},
		"Cilium, another true":     {cilium("1"), service(corev1.ServiceTrafficDistributionPreferClose, nil), []ignored{{"Cilium", "v1.20.1", "", ""}}},
		"Cilium as installed":      {cilium(""), plain, []ignored{{"Cilium", "v1.20.1", "its setting enable-service-topology is not true", "set loadBalancer.serviceTopology=true in Cilium's chart"}}},
		"Cilium, no mark":          {cilium("true"), plain, []ignored{{"Cilium", "v1.20.1", "the Service lacks the annotation " + newer, mark}}},
		"Cilium, marked":           {cilium("true"), service("", map[string]string{newer: v1alpha1.MarkRouted}), []ignored{{"Cilium", "v1.20.1", "", ""}}},
		"Cilium, close":            {cilium("true"), service(corev1.ServiceTrafficDistributionPreferClose, map[string]string{newer: "disabled"}), []ignored{{"Cilium", "v1.20.1", "", ""}}},
		"Cilium, same zone":        {cilium("true"), service(corev1.ServiceTrafficDistributionPreferSameZone, map[string]string{newer: "disabled"}), []ignored{{"Cilium", "v1.20.1", "", ""}}},
		"Cilium, same node": {
			cilium("true"), service(corev1.ServiceTrafficDistributionPreferSameNode, map[string]string{newer: v1alpha1.MarkRouted}),
			[]ignored{{"Cilium", "v1.20.1", "spec.trafficDistribution: PreferSameNode makes it choose by node, without hints", "set spec.trafficDistribution: PreferSameZone"}},
		},
		"Cilium, another value":        {cilium("true"), service("Other", nil), []ignored{{"Cilium", "v1.20.1", "the Service lacks the annotation " + newer, mark}}},
		"Cilium of old, close":         {oldCilium, service(corev1.ServiceTrafficDistributionPreferClose, nil), []ignored{{"Cilium", "v1.19.6", "", ""}}},
		"Cilium of old, same zone":     {oldCilium, service(corev1.ServiceTrafficDistributionPreferSameZone, nil), []ignored{{"Cilium", "v1.19.6", "the Service lacks the annotation " + newer, mark}}},
		"Cilium of old, same node":     {oldCilium, service(corev1.ServiceTrafficDistributionPreferSameNode, map[string]string{newer: v1alpha1.MarkRouted}), []ignored{{"Cilium", "v1.19.6", "", ""}}},
		"settings of Cilium alone":     {settingsOfCilium, plain, []ignored{{"Cilium", "", "the Service lacks the annotation " + newer, mark}}},
		"settings alone and same zone": {settingsOfCilium, service(corev1.ServiceTrafficDistributionPreferSameZone, nil), []ignored{{"Cilium", "", "", ""}}},
		"settings alone and same node": {settingsOfCilium, service(corev1.ServiceTrafficDistributionPreferSameNode, nil), []ignored{{"Cilium", "", "", ""}}},
		"Cilium, disabled": {
			cilium("true"), service("", map[string]string{newer: "Disabled"}),
			[]ignored{{"Cilium", "v1.20.1", "the Service has the annotation " + newer + ": Disabled", "remove the annotation " + newer}},
		},
		"Cilium, the older annotation first": {
			cilium("true"), service("", map[string]string{older: "", newer: "Auto"}),
			[]ignored{{"Cilium", "v1.20.1", "the Service has the annotation " + older + ": ", "remove the annotation " + older}},
		},

		"Calico without eBPF":  {sets(calico("v3.30.2", "false"), kubeProxy), plain, []ignored{{"kube-proxy", "v1.37.2", "", ""}}},
		"Calico of old":        {sets(calico("v3.31.4", "true")), plain, []ignored{{"Calico eBPF", "v3.31.4", "this release needs the annotation " + newer + ": Auto", upgrade}}},
		"Calico of old, off":   {sets(calico("v3.31.4", "true")), service("", map[string]string{older: "", newer: "Auto"}), []ignored{{"Calico eBPF", "v3.31.4", "this release needs the annotation " + older + ": Auto", upgrade}}},
		"Calico of old, older": {sets(calico("v3.30.2", "true")), service("", map[string]string{older: "auto"}), []ignored{{"Calico eBPF", "v3.30.2", "", ""}}},
		"Calico of old, newer": {sets(calico("v3.30.2", "true")), service("", map[string]string{newer: "Auto"}), []ignored{{"Calico eBPF", "v3.30.2", "", ""}}},
		"Calico":               {operator, plain, []ignored{{"Calico eBPF", "v3.31.5", "", ""}}},
		"Calico of a vendor":   {sets(calico("v3.31.5-1", "true")), plain, []ignored{{"Calico eBPF", "v3.31.5-1", "", ""}}},
		"Calico of no release": {sets(calico("master", "true")), plain, []ignored{{"Calico eBPF", "master", "", ""}}},
		"OVN-Kubernetes":       {replaced, plain, []ignored{{"OVN-Kubernetes", "1.2", "it reads no hints", "let vicinity-proxy serve the Service, if it works there"}}},
		"settings of Antrea":   {Settings{Antrea: &ProxyConfig{}}, plain, nil},
		"Antrea":               {antrea("Other"), plain, []ignored{{"kube-proxy", "v1.37.2", "", ""}, {"Antrea", "v2.5.0", "", ""}}},
		"Antrea without proxy": {antrea("AntreaProxy"), plain, []ignored{{"kube-proxy", "v1.37.2", "", ""}}},
		"Antrea without gate": {antrea("TopologyAwareHints"), plain, []ignored{
			{"kube-proxy", "v1.37.2", "", ""},
			{"Antrea", "v2.5.0", "its feature gate TopologyAwareHints is false", "remove TopologyAwareHints: false from antrea-agent.conf in ConfigMap antrea-config"},
		}},
		"kube-router": {
			sets(daemonSet("kube-router", "kube-router:v2.6.0"), off), service(corev1.ServiceTrafficDistributionPreferClose, nil),
			[]ignored{{"kube-router", "v2.6.0", "its service proxy ignores all hints", "run kube-router with --run-service-proxy=false and kube-proxy beside it"}},
		},
		"kube-router without its proxy": {sets(daemonSet("kube-router", "kube-router:v2.6.0", "--run-router --run-service-proxy=false"), kubeProxy), plain, []ignored{{"kube-proxy", "v1.37.2", "", ""}}},
	} {
		t.Run(name, func(t *testing.T) {
			consumers := c.settings.Consumers()
			if len(consumers) != len(c.want) {
				t.Fatalf("%d programs serve: %+v", len(consumers), consumers)
			}
			for i, want := range c.want {
				why, remedy := consumers[i].Ignores(c.service, hints.Kinds{Zones: true})
				if got := (ignored{consumers[i].Name, consumers[i].Version, why, remedy}); got != want {
					t.Errorf("got %+v, want %+v", got, want)
				}
			}
		})
	}
}

// Some programs read hints of one kind only, or none while an endpoint is in no zone.
func TestKindsOfHints(t *testing.T) {
	const nodes, home = "it reads no hints for nodes", "an endpoint is in no zone"
	beside := cilium("true")
	beside.Cilium["kube-proxy-replacement"] = "false"
	plain, marked := service("", nil), service("", map[string]string{newer: v1alpha1.MarkRouted})
	for name, c := range map[string]struct {
		settings Settings
		service  *corev1.Service
		kinds    hints.Kinds
		want     string
	}{
		"Cilium, for nodes":               {cilium("true"), marked, hints.Kinds{Nodes: true}, nodes},
		"Cilium, for both":                {cilium("true"), marked, hints.Kinds{Zones: true, Nodes: true}, ""},
		"Cilium, homeless":                {cilium("true"), marked, hints.Kinds{Zones: true, Homeless: true}, home},
		"Cilium beside, for nodes":        {beside, marked, hints.Kinds{Nodes: true, Homeless: true}, ""},
		"Calico of old, for nodes":        {sets(calico("v3.31.4", "true")), service("", map[string]string{newer: "Auto"}), hints.Kinds{Nodes: true}, nodes},
		"kube-proxy of old and its gate":  {sets(daemonSet("kube-proxy", "kube-proxy:v1.33.9", "--feature-gates=PreferSameTrafficDistribution=true")), plain, hints.Kinds{Nodes: true}, ""},
		"kube-proxy of old, another gate": {sets(daemonSet("kube-proxy", "kube-proxy:v1.33.9", "--feature-gates=TopologyAwareHints=false")), plain, hints.Kinds{Zones: true}, "its feature gate TopologyAwareHints is false"},
		"kube-proxy, for nodes":           {sets(daemonSet("kube-proxy", "kube-proxy:v1.34.0")), plain, hints.Kinds{Nodes: true, Homeless: true}, ""},
		"kube-proxy of old, for nodes":    {sets(daemonSet("kube-proxy", "kube-proxy:v1.33.9")), plain, hints.Kinds{Nodes: true}, nodes},
		"kube-proxy of old, for zones":    {sets(daemonSet("kube-proxy", "kube-proxy:v1.33.9")), plain, hints.Kinds{Zones: true}, ""},
		"kube-proxy without its gate":     {sets(daemonSet("kube-proxy", "kube-proxy", "--feature-gates=PreferSameTrafficDistribution=false")), plain, hints.Kinds{Nodes: true}, nodes},
		"kube-proxy without another gate": {sets(daemonSet("kube-proxy", "kube-proxy", "--feature-gates=PreferSameTrafficDistribution=false,TopologyAwareHints=false")), plain, hints.Kinds{Zones: true}, "its feature gate TopologyAwareHints is false"},
	} {
		t.Run(name, func(t *testing.T) {
			if why, _ := c.settings.Consumers()[0].Ignores(c.service, c.kinds); why != c.want {
				t.Errorf("got %q, want %q", why, c.want)
			}
		})
	}
}

// For some Services it is not known what some programs do.
func TestUnsureConsumers(t *testing.T) {
	antrea := sets(daemonSet("antrea-agent", "antrea/antrea-agent-ubuntu:v2.5.0"))
	plain, near := service("", nil), service(corev1.ServiceTrafficDistributionPreferClose, nil)
	for name, settings := range map[string]Settings{"Calico": sets(calico("v3.32.0", "true")), "Antrea": antrea} {
		c := settings.Consumers()[0]
		if c.IsUnknown(plain, hints.Kinds{Zones: true}) || !c.IsUnknown(plain, hints.Kinds{Zones: true, Homeless: true}) || !c.IsUnknown(near, hints.Kinds{Zones: true}) {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

func TestUnknownConsumers(t *testing.T) {
	beside := cilium("true")
	beside.Cilium["kube-proxy-replacement"] = "false"
	for name, c := range map[string]struct {
		settings Settings
		want     bool
	}{
		"Cilium":                   {cilium("true"), false},
		"Cilium beside kube-proxy": {beside, true},
		"Cilium of no release":     {Settings{Cilium: cilium("true").Cilium}, true},
		"Calico":                   {sets(calico("v3.32.0", "true")), false},
		"Calico of old":            {sets(calico("v3.31.4", "true")), false},
		"Calico by digest":         {sets(daemonSet("calico-node", "quay.io/calico/node@sha256:00")), true},
	} {
		t.Run(name, func(t *testing.T) {
			c.settings.CalicoBPF = true
			if got := c.settings.Consumers()[0].Unknown; got != c.want {
				t.Errorf("unknown is %v", got)
			}
		})
	}
}
