package translate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
)

// Proxies are the nodes whose kube-proxy is known to ignore some hints of EndpointSlices. The
// API does not have the version of kube-proxy: that of the kubelet stands for it, since
// distributions update both together. It does not say either whether a node runs another
// proxy.
type Proxies struct {
	// Nodes is the number of all nodes.
	Nodes int
	// Windows are nodes whose kube-proxy ignores all hints, in order.
	Windows []string
	// WithoutHints are other nodes whose kube-proxy follows hints only of Services with an
	// annotation for it, and WithoutNodeHints those whose kube-proxy ignores hints for nodes,
	// both in order. The chart needs a control plane whose supported nodes are newer than the
	// former, but some nodes are left behind for years.
	WithoutHints, WithoutNodeHints []string
}

// The first releases whose kube-proxy follows hints without an annotation, and hints for nodes.
var (
	releaseHints     = version.MajorMinor(1, 31)
	releaseNodeHints = version.MajorMinor(1, 34)
)

// Proxies are those of the cluster's nodes.
func (c *Cluster) Proxies() Proxies { return c.proxies }

func (p *Proxies) add(node *corev1.Node) {
	p.Nodes++
	if node.Labels[corev1.LabelOSStable] == string(corev1.Windows) || strings.EqualFold(node.Status.NodeInfo.OperatingSystem, string(corev1.Windows)) {
		p.Windows = append(p.Windows, node.Name)
		return
	}
	release, err := version.ParseGeneric(node.Status.NodeInfo.KubeletVersion)
	if err != nil {
		return // nothing is known of it
	}
	if release.LessThan(releaseHints) {
		p.WithoutHints = append(p.WithoutHints, node.Name)
	}
	if release.LessThan(releaseNodeHints) {
		p.WithoutNodeHints = append(p.WithoutNodeHints, node.Name)
	}
}

func (p *Proxies) sort() {
	slices.Sort(p.Windows)
	slices.Sort(p.WithoutHints)
	slices.Sort(p.WithoutNodeHints)
}
