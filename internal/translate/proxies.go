package translate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
)

// Proxies says of which nodes it is known that their kube-proxy does not go by all hints of
// EndpointSlices. The version of a kube-proxy is not in the API: that of the node's kubelet
// stands for it, since distributions update both together. Whether a node runs another
// proxy than kube-proxy, and whether that one goes by hints, the API does not say either.
type Proxies struct {
	// Nodes is the number of all nodes.
	Nodes int
	// Windows are nodes whose kube-proxy goes by no hints, in order.
	Windows []string
	// WithoutHints are other nodes whose kube-proxy goes by hints only on Services that
	// have an annotation for it, and WithoutNodeHints those whose kube-proxy does not go by
	// hints for nodes, both in order. The former are looked for although the chart wants a
	// control plane whose supported nodes are all newer: some are left behind for years, and
	// a condition that says True of them would be false.
	WithoutHints, WithoutNodeHints []string
}

// The releases whose kube-proxy goes by hints whatever the annotations say, and by hints for
// nodes.
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

// Kinds says of each kind of nodes whether none, some or all are of it: what a decision
// depends on.
func (p Proxies) Kinds() (kinds [3]byte) {
	for i, names := range [][]string{p.Windows, p.WithoutHints, p.WithoutNodeHints} {
		switch len(names) {
		case 0:
		case p.Nodes:
			kinds[i] = 2
		default:
			kinds[i] = 1
		}
	}
	return kinds
}
