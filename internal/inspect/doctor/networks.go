package doctor

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"vicinity.dev/vicinity/internal/routing/consumer"
	"vicinity.dev/vicinity/internal/routing/intent"
)

func configObject(c *consumer.ProxyConfig) Object {
	return Object{Kind: "ConfigMap", Namespace: c.Namespace, Name: c.ConfigMap}
}

// showConfig returns the command that shows settings.
func showConfig(c *consumer.ProxyConfig) string {
	return "kubectl -n " + c.Namespace + " get configmap " + c.ConfigMap + " -o yaml"
}

// checkNetworks checks for programs that serve Services and do not follow hints.
func (e *examination) checkNetworks() {
	e.checkKubeProxy()
	for _, set := range e.Networks.DaemonSets {
		if set.Name == "ovnkube-node" && set.Status.DesiredNumberScheduled > 0 {
			e.add(ovnIgnoresHints, objectOf("DaemonSet", set), "OVN-Kubernetes serves Services.", "kubectl -n "+set.Namespace+" get daemonset ovnkube-node")
		}
		if consumer.IsKubeRouter(set) {
			e.add(kubeRouterIgnoresHint, objectOf("DaemonSet", set), "kube-router serves Services by its own proxy.",
				"kubectl -n "+set.Namespace+" get daemonset kube-router -o jsonpath='{.spec.template.spec.containers[*].args}'")
		}
	}
	if data := e.Networks.Cilium; e.Networks.CiliumServes() && !e.Networks.CiliumFollows() {
		e.add(ciliumIgnoresHints, Object{Kind: "ConfigMap", Namespace: metav1.NamespaceSystem, Name: "cilium-config"},
			fmt.Sprintf("Cilium serves Services in place of kube-proxy (kube-proxy-replacement: %q), and enable-service-topology is %q.", data["kube-proxy-replacement"], data["enable-service-topology"]),
			"kubectl -n kube-system get configmap cilium-config -o jsonpath='{.data.enable-service-topology}'")
	}
	if antrea := e.Networks.Antrea; antrea.IsOff(consumer.AntreaGate) {
		e.add(antreaIgnoresHints, configObject(antrea), "The feature gate TopologyAwareHints of antrea-agent is false.", showConfig(antrea))
	}
	for _, node := range e.Nodes {
		if intent.IsWindows(node) {
			e.add(windowsIgnoresHints, objectOf("Node", node), fmt.Sprintf("Node %s runs Windows.", node.Name), "kubectl get nodes -L "+corev1.LabelOSStable)
		}
	}
}

// checkKubeProxy checks the mode, the feature gates and the version of kube-proxy.
func (e *examination) checkKubeProxy() {
	if e.Networks.IsReplaced() {
		return
	}
	if config := e.Networks.KubeProxy; config != nil {
		e.checkSettings(configObject(config), config.Mode, config.Gates, showConfig(config))
	}
	server, err := version.ParseGeneric(e.Version)
	for _, set := range e.Networks.DaemonSets {
		if !consumer.IsKubeProxy(set) {
			continue
		}
		object := objectOf("DaemonSet", set)
		next := "kubectl -n " + set.Namespace + " get daemonset " + set.Name + " -o yaml"
		mode, gates := consumer.KubeProxyFlags(set)
		e.checkSettings(object, mode, gates, next)
		if release := consumer.Version(set); err == nil {
			if fault := skew(server, release); fault != "" {
				e.add(kubeProxyVersion, object, fmt.Sprintf("kube-proxy is %s, which is %s (%s).", release, fault, e.Version), next)
			}
		}
	}
}

func (e *examination) checkSettings(object Object, mode string, gates map[string]bool, next string) {
	for _, gate := range consumer.GatesOff(gates) {
		e.add(kubeProxyGateOff, object, fmt.Sprintf("The feature gate %s of kube-proxy is false.", gate), next)
	}
	if mode == "ipvs" {
		e.add(kubeProxyIPVS, object, "kube-proxy runs in the mode ipvs.", next)
	}
}
