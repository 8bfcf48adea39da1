package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"vicinity.dev/vicinity/internal/routing/intent"
)

// Networks are other programs that serve Services, as far as DaemonSets and ConfigMaps show. Distributions may run
// kube-proxy in other ways, so it may be missing.
type Networks struct {
	// DaemonSets are those of kube-system, and kube-proxy in any namespace.
	DaemonSets []*appsv1.DaemonSet
	// KubeProxy and Antrea are their settings, nil without any.
	KubeProxy, Antrea *ProxyConfig
	// Cilium is the ConfigMap cilium-config, nil without one.
	Cilium map[string]string
}

// ProxyConfig are settings in a ConfigMap.
type ProxyConfig struct {
	Namespace, ConfigMap string

	Mode  string
	Gates map[string]bool
}

func (c *ProxyConfig) object() Object {
	return Object{Kind: "ConfigMap", Namespace: c.Namespace, Name: c.ConfigMap}
}

func (c *ProxyConfig) show() string {
	return "kubectl -n " + c.Namespace + " get configmap " + c.ConfigMap + " -o yaml"
}

// Feature gates that make kube-proxy follow hints.
var hintGates = []string{"PreferSameTrafficDistribution", "ServiceTrafficDistribution", "TopologyAwareHints"}

// checkNetworks checks for programs that serve Services and do not follow hints.
func (e *examination) checkNetworks() {
	e.checkKubeProxy()
	for _, set := range e.Networks.DaemonSets {
		if set.Name == "kube-router" && set.Status.DesiredNumberScheduled > 0 && servesByKubeRouter(set) {
			e.add(kubeRouterIgnoresHint, objectOf("DaemonSet", set), "kube-router serves Services by its own proxy.",
				"kubectl -n "+set.Namespace+" get daemonset kube-router -o jsonpath='{.spec.template.spec.containers[*].args}'")
		}
	}
	if data := e.Networks.Cilium; replacesKubeProxy(data) && data["enable-service-topology"] != "true" {
		e.add(ciliumIgnoresHints, Object{Kind: "ConfigMap", Namespace: metav1.NamespaceSystem, Name: "cilium-config"},
			fmt.Sprintf("Cilium serves Services in place of kube-proxy (kube-proxy-replacement: %q), and enable-service-topology is %q.", data["kube-proxy-replacement"], data["enable-service-topology"]),
			"kubectl -n kube-system get configmap cilium-config -o jsonpath='{.data.enable-service-topology}'")
	}
	if antrea := e.Networks.Antrea; antrea != nil {
		if on, set := antrea.Gates["TopologyAwareHints"]; set && !on {
			e.add(antreaIgnoresHints, antrea.object(), "The feature gate TopologyAwareHints of antrea-agent is false.", antrea.show())
		}
	}
	for _, node := range e.Nodes {
		if intent.IsWindows(node) {
			e.add(windowsIgnoresHints, objectOf("Node", node), fmt.Sprintf("Node %s runs Windows.", node.Name), "kubectl get nodes -L "+corev1.LabelOSStable)
		}
	}
}

// replacesKubeProxy knows the values that releases of Cilium have had.
func replacesKubeProxy(data map[string]string) bool {
	switch data["kube-proxy-replacement"] {
	case "true", "strict":
		return true
	}
	return false
}

// servesByKubeRouter reports whether kube-router's service proxy is on, which is the default.
func servesByKubeRouter(set *appsv1.DaemonSet) bool {
	on := true
	eachArgument(set, func(argument string) {
		name, value, given := strings.Cut(strings.TrimLeft(argument, "-"), "=")
		if name != "run-service-proxy" {
			return
		}
		is, err := strconv.ParseBool(value)
		on = !given || err != nil || is
	})
	return on
}

func eachArgument(set *appsv1.DaemonSet, do func(argument string)) {
	for i := range set.Spec.Template.Spec.Containers {
		container := &set.Spec.Template.Spec.Containers[i]
		for _, argument := range slices.Concat(container.Command, container.Args) {
			for word := range strings.FieldsSeq(argument) {
				do(word)
			}
		}
	}
}

// IsKubeProxy reports whether a DaemonSet is kube-proxy.
func IsKubeProxy(set *appsv1.DaemonSet) bool {
	return set.Labels["k8s-app"] == "kube-proxy" || set.Name == "kube-proxy"
}

// others are DaemonSets that can serve Services in place of kube-proxy.
var others = []string{"cilium", "calico-node", "antrea-agent", "kube-router"}

// isReplaced reports whether kube-proxy was switched off, perhaps with a DaemonSet without nodes and its settings left
// over. Without another program that can replace it, its absence proves nothing.
func (n *Networks) isReplaced() bool {
	replaced := replacesKubeProxy(n.Cilium)
	for _, set := range n.DaemonSets {
		switch runs := set.Status.DesiredNumberScheduled > 0; {
		case runs && IsKubeProxy(set):
			return false
		case runs && slices.Contains(others, set.Name):
			replaced = true
		}
	}
	return replaced
}

// checkKubeProxy checks the mode, the feature gates and the version of kube-proxy.
func (e *examination) checkKubeProxy() {
	if e.Networks.isReplaced() {
		return
	}
	if config := e.Networks.KubeProxy; config != nil {
		e.checkGates(config.object(), config.Gates, config.show())
		e.checkMode(config.object(), config.Mode, config.show())
	}
	server, err := version.ParseGeneric(e.Version)
	for _, set := range e.Networks.DaemonSets {
		if !IsKubeProxy(set) {
			continue
		}
		object := objectOf("DaemonSet", set)
		next := "kubectl -n " + set.Namespace + " get daemonset " + set.Name + " -o yaml"
		gates, mode := map[string]bool{}, ""
		eachArgument(set, func(argument string) {
			switch name, value, _ := strings.Cut(strings.TrimLeft(argument, "-"), "="); name {
			case "proxy-mode":
				mode = value
			case "feature-gates":
				maps.Copy(gates, readGates(value))
			}
		})
		e.checkGates(object, gates, next)
		e.checkMode(object, mode, next)
		if release := programVersion(set); err == nil {
			if fault := skew(server, release); fault != "" {
				e.add(kubeProxyVersion, object, fmt.Sprintf("kube-proxy is %s, which is %s (%s).", release, fault, e.Version), next)
			}
		}
	}
}

func (e *examination) checkGates(object Object, gates map[string]bool, next string) {
	for _, gate := range hintGates {
		if on, set := gates[gate]; set && !on {
			e.add(kubeProxyGateOff, object, fmt.Sprintf("The feature gate %s of kube-proxy is false.", gate), next)
		}
	}
}

func (e *examination) checkMode(object Object, mode, next string) {
	if mode == "ipvs" {
		e.add(kubeProxyIPVS, object, "kube-proxy runs in the mode ipvs.", next)
	}
}

func readGates(text string) map[string]bool {
	gates := map[string]bool{}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(pair, "=")
		if on, err := strconv.ParseBool(value); err == nil {
			gates[name] = on
		}
	}
	return gates
}

// programVersion returns the tag of a DaemonSet's image, empty without one. There may be other containers besides
// kube-proxy's.
func programVersion(set *appsv1.DaemonSet) string {
	containers := set.Spec.Template.Spec.Containers
	i := 0
	if IsKubeProxy(set) {
		i = slices.IndexFunc(containers, func(c corev1.Container) bool { return strings.Contains(c.Name+c.Image, "kube-proxy") })
	}
	if i < 0 || i >= len(containers) {
		return ""
	}
	image, _, _ := strings.Cut(containers[i].Image, "@")
	name := image[strings.LastIndex(image, "/")+1:]
	_, tag, _ := strings.Cut(name, ":")
	return tag
}
