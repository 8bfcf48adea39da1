package consumer

import (
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// Settings are the traces that programs which serve Services leave in the API. Distributions may run kube-proxy in other
// ways, so it may be missing.
type Settings struct {
	// DaemonSets are those of kube-system, and kube-proxy, calico-node and ovnkube-node in any namespace.
	DaemonSets []*appsv1.DaemonSet
	// KubeProxy and Antrea are their settings, nil without any.
	KubeProxy, Antrea *ProxyConfig
	// Cilium is the ConfigMap cilium-config, nil without one.
	Cilium map[string]string
	// CalicoBPF is spec.bpfEnabled of the FelixConfiguration default.
	CalicoBPF bool
}

// ProxyConfig are settings in a ConfigMap.
type ProxyConfig struct {
	Namespace, ConfigMap string

	Mode  string
	Gates map[string]bool
}

// AntreaGate is the feature gate of Antrea without which it ignores hints.
const AntreaGate = "TopologyAwareHints"

// IsOff reports whether there are settings, and they switch a feature gate off.
func (c *ProxyConfig) IsOff(gate string) bool {
	if c == nil {
		return false
	}
	on, set := c.Gates[gate]
	return set && !on
}

// CiliumServes reports whether Cilium serves Services in place of kube-proxy. It knows the values that releases of Cilium
// have had.
func (s *Settings) CiliumServes() bool {
	value := s.Cilium["kube-proxy-replacement"]
	return value == "true" || value == "strict"
}

// CiliumFollows reports whether Cilium follows the hints of some Services where it serves them. Beside kube-proxy, it can
// still translate cluster IPs for pods.
func (s *Settings) CiliumFollows() bool {
	follows, err := strconv.ParseBool(s.Cilium["enable-service-topology"]) // as Cilium reads it
	return err == nil && follows
}

// IsReplaced reports whether kube-proxy was switched off, perhaps with a DaemonSet without nodes and its settings left
// over. Without another program that can replace it, its absence proves nothing.
func (s *Settings) IsReplaced() bool {
	if _, runs := s.running("kube-proxy"); runs {
		return false
	}
	return s.CiliumServes() || slices.ContainsFunc(s.DaemonSets, func(set *appsv1.DaemonSet) bool {
		return set.Status.DesiredNumberScheduled > 0 && CanReplaceKubeProxy(set)
	})
}

// IsKubeProxy reports whether a DaemonSet is kube-proxy.
func IsKubeProxy(set *appsv1.DaemonSet) bool {
	return set.Labels["k8s-app"] == "kube-proxy" || set.Name == "kube-proxy"
}

// CanReplaceKubeProxy reports whether a DaemonSet can serve Services in place of kube-proxy.
func CanReplaceKubeProxy(set *appsv1.DaemonSet) bool {
	return slices.Contains([]string{"cilium", "calico-node", "antrea-agent", "kube-router", "ovnkube-node"}, set.Name)
}

// IsKubeRouter reports whether a DaemonSet is a kube-router that serves Services, which is its default.
func IsKubeRouter(set *appsv1.DaemonSet) bool {
	on := set.Name == "kube-router" && set.Status.DesiredNumberScheduled > 0
	eachArgument(set, func(name, value string, given bool) {
		if name == "run-service-proxy" {
			is, err := strconv.ParseBool(value)
			on = on && (!given || err != nil || is)
		}
	})
	return on
}

// KubeProxyFlags returns the mode and the feature gates in the arguments of kube-proxy.
func KubeProxyFlags(set *appsv1.DaemonSet) (mode string, gates map[string]bool) {
	gates = map[string]bool{}
	eachArgument(set, func(name, value string, _ bool) {
		switch name {
		case "proxy-mode":
			mode = value
		case "feature-gates":
			for pair := range strings.SplitSeq(value, ",") {
				gate, text, _ := strings.Cut(pair, "=")
				if on, err := strconv.ParseBool(text); err == nil {
					gates[gate] = on
				}
			}
		}
	})
	return mode, gates
}

// eachArgument calls do for each argument, and says whether a value is given.
func eachArgument(set *appsv1.DaemonSet, do func(name, value string, given bool)) {
	for i := range set.Spec.Template.Spec.Containers {
		container := &set.Spec.Template.Spec.Containers[i]
		for _, argument := range slices.Concat(container.Command, container.Args) {
			for word := range strings.FieldsSeq(argument) {
				do(strings.Cut(strings.TrimLeft(word, "-"), "="))
			}
		}
	}
}

// gateNodes is the feature gate of kube-proxy for hints for nodes.
const gateNodes = "PreferSameTrafficDistribution"

// GatesOff returns the feature gates of kube-proxy that are off, without which it does not follow all hints.
func GatesOff(gates map[string]bool) (off []string) {
	for _, gate := range []string{"ServiceTrafficDistribution", "TopologyAwareHints", gateNodes} {
		if on, set := gates[gate]; set && !on {
			off = append(off, gate)
		}
	}
	return off
}

// Version returns the tag of a DaemonSet's image, empty without one. There may be other containers besides kube-proxy's.
func Version(set *appsv1.DaemonSet) string {
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
