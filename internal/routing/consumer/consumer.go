// Package consumer tells which programs serve Services on the nodes of a cluster, and which of them ignore the hints of a
// Service. The controller, the doctor and explain ask it, so all of them say the same.
//
// It claims nothing that the API does not show: a program that leaves no trace there is missing.
package consumer

import (
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/routing/hints"
	"vicinity.dev/vicinity/internal/routing/intent"
)

const notForNodes = " for zones, and ignores those for nodes"

// Consumer is a program that serves Services on nodes.
type Consumer struct {
	Name string
	// Version is the tag of its image, empty if the API does not show it.
	Version string
	// Unknown says that it is not known whether the program follows hints where Ignores claims nothing.
	Unknown bool
	// Exception continues the sentence "it follows hints". It is empty if the program follows all hints.
	Exception string

	why, remedy string // for all Services, unless ignores decides
	ignores     func(*corev1.Service) (why, remedy string)
	// forNodes is the remedy of a program that reads no hints for nodes, empty if it reads them or if that is not known.
	forNodes string
	// homed says that the program follows hints only if all endpoints are in zones.
	homed bool
	// unsure says that the program may ignore hints if an endpoint is in no zone, or if the Service has a distribution.
	unsure bool
}

// IsUnknown reports whether it is not known if the program follows the hints of a Service that Ignores claims nothing about.
func (c *Consumer) IsUnknown(service *corev1.Service, kinds hints.Kinds) bool {
	return c.Unknown || c.unsure && (kinds.Homeless || service.Spec.TrafficDistribution != nil)
}

// Ignores says why the program ignores the hints of a Service, and what makes it follow them. Why is a clause, and remedy
// an imperative. Both are empty if it follows some of them, or if that is not known.
func (c *Consumer) Ignores(service *corev1.Service, kinds hints.Kinds) (why, remedy string) {
	switch {
	case c.why != "":
		return c.why, c.remedy
	case c.forNodes != "" && !kinds.Zones:
		return "it reads no hints for nodes", c.forNodes
	case c.homed && kinds.Homeless:
		return "an endpoint is in no zone", "give all nodes with endpoints the label " + corev1.LabelTopologyZone
	case c.ignores != nil:
		return c.ignores(service)
	}
	return "", ""
}

// Consumers returns the programs that serve Services.
func (s *Settings) Consumers() (found []Consumer) {
	if set, runs := s.running("kube-proxy"); runs || s.KubeProxy != nil && !s.IsReplaced() {
		c := Consumer{Name: "kube-proxy", Version: Version(set)}
		_, gates := KubeProxyFlags(set)
		if s.KubeProxy != nil {
			maps.Copy(gates, s.KubeProxy.Gates)
		}
		release, err := version.ParseGeneric(c.Version)
		old := err == nil && release.LessThan(version.MajorMinor(1, 34)) && !gates[gateNodes]
		switch off := GatesOff(gates); {
		case len(off) == 0 && old:
			c.Exception, c.forNodes = notForNodes, "upgrade kube-proxy to 1.34 or newer"
		case len(off) == 0:
		case off[0] == gateNodes:
			c.Exception, c.forNodes = notForNodes, "remove "+gateNodes+" from the feature gates of kube-proxy"
		default:
			c.why, c.remedy = "its feature gate "+off[0]+" is false", "remove "+off[0]+" from the feature gates of kube-proxy"
		}
		found = append(found, c)
	}
	if len(s.Cilium) > 0 {
		set, _ := s.running("cilium")
		release, err := version.ParseGeneric(Version(set))
		// Beside kube-proxy, it may translate cluster IPs for pods all the same.
		c := Consumer{Name: "Cilium", Version: Version(set), Unknown: err != nil || !s.CiliumServes()}
		if s.CiliumServes() {
			c.Exception, c.forNodes, c.homed = notForNodes, "ask for same-zone too, since it follows hints for zones", true
		}
		if s.CiliumServes() && s.CiliumFollows() {
			c.ignores = func(service *corev1.Service) (why, remedy string) { return lacksMark(service, release) }
		} else if s.CiliumServes() {
			c.why, c.remedy = "its setting enable-service-topology is not true", "set loadBalancer.serviceTopology=true in Cilium's chart"
		}
		found = append(found, c)
	}
	if set, runs := s.running("calico-node"); runs && (s.CalicoBPF || isBPF(set)) {
		c := Consumer{Name: "Calico eBPF", Version: Version(set), unsure: true}
		// The first release with https://github.com/projectcalico/calico/pull/11751 is 3.31.5.
		release, err := version.ParseGeneric(c.Version)
		if c.Unknown = err != nil; !c.Unknown && release.LessThan(version.MustParseGeneric("3.31.5")) {
			c.Exception, c.forNodes, c.ignores, c.unsure = notForNodes, upgradeCalico, lacksAuto, false
		}
		found = append(found, c)
	}
	if set, runs := s.running("antrea-agent"); runs && !s.Antrea.IsOff("AntreaProxy") {
		c := Consumer{Name: "Antrea", Version: Version(set), Exception: " for zones; whether it follows those for nodes is not known", unsure: true}
		if s.Antrea.IsOff(AntreaGate) {
			c.why, c.remedy = "its feature gate "+AntreaGate+" is false", "remove "+AntreaGate+": false from antrea-agent.conf in ConfigMap antrea-config"
		}
		found = append(found, c)
	}
	if set, runs := s.running("ovnkube-node"); runs {
		found = append(found, Consumer{Name: "OVN-Kubernetes", Version: Version(set), why: "it reads no hints", remedy: "let vicinity-proxy serve the Service, if it works there"})
	}
	if set, _ := s.running("kube-router"); IsKubeRouter(set) {
		found = append(found, Consumer{
			Name: "kube-router", Version: Version(set),
			why: "its service proxy ignores all hints", remedy: "run kube-router with --run-service-proxy=false and kube-proxy beside it",
		})
	}
	return found
}

// running returns the DaemonSet of a program that has nodes to run on.
func (s *Settings) running(name string) (set *appsv1.DaemonSet, runs bool) {
	for _, set := range s.DaemonSets {
		if set.Status.DesiredNumberScheduled > 0 && (set.Name == name || name == "kube-proxy" && IsKubeProxy(set)) {
			return set, true
		}
	}
	return &appsv1.DaemonSet{}, false
}

func isBPF(set *appsv1.DaemonSet) bool {
	return slices.ContainsFunc(set.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return slices.Contains(c.Env, corev1.EnvVar{Name: "FELIX_BPFENABLED", Value: "true"})
	})
}

// lacksMark returns why a Cilium that follows hints ignores those of a Service, empty if it does not, or if that depends on
// its release and the release is nil. Since 1.20 it knows all distributions: https://github.com/cilium/cilium/pull/44771.
func lacksMark(service *corev1.Service, release *version.Version) (why, remedy string) {
	distribution, knows := distributionOf(service), release != nil && release.AtLeast(version.MajorMinor(1, 20))
	name, value := intent.Heuristic(service)
	switch _, given := service.Annotations[name]; {
	case distribution == corev1.ServiceTrafficDistributionPreferClose, distribution != "" && release == nil, distribution == corev1.ServiceTrafficDistributionPreferSameZone && knows:
		return "", ""
	case distribution == corev1.ServiceTrafficDistributionPreferSameNode && knows:
		return "spec.trafficDistribution: PreferSameNode makes it choose by node, without hints", "set spec.trafficDistribution: PreferSameZone"
	case value != "" && value != "disabled" && value != "Disabled":
		return "", ""
	case given:
		return "the Service has the annotation " + name + ": " + plaintext.Of(value), "remove the annotation " + name
	}
	return "the Service lacks the annotation " + name, "let routing.markServices in Vicinity's chart be auto, and its controller read cilium-config; or set spec.trafficDistribution: PreferClose"
}

// NeedsMark reports whether a Service needs v1alpha1.MarkRouted where Cilium follows hints, whether or not it has it. An
// annotation of a user stays.
func NeedsMark(service *corev1.Service) bool {
	_, older := service.Annotations[v1alpha1.AnnotationTopologyAwareHints]
	_, given := service.Annotations[v1alpha1.AnnotationTopologyMode]
	return !older && (!given || IsMarked(service)) && distributionOf(service) != corev1.ServiceTrafficDistributionPreferClose
}

// IsMarked reports whether a Service has v1alpha1.MarkRouted.
func IsMarked(service *corev1.Service) bool {
	return service.Annotations[v1alpha1.AnnotationTopologyMode] == v1alpha1.MarkRouted
}

func distributionOf(service *corev1.Service) string {
	if service.Spec.TrafficDistribution == nil {
		return ""
	}
	return *service.Spec.TrafficDistribution
}

const upgradeCalico = "upgrade Calico to 3.31.5 or newer, which has projectcalico/calico#11751"

// lacksAuto is for Calico before 3.31.5.
func lacksAuto(service *corev1.Service) (why, remedy string) {
	if name, value := intent.Heuristic(service); value != "auto" && value != "Auto" {
		return "this release needs the annotation " + name + ": Auto", upgradeCalico
	}
	return "", ""
}
