package doctor

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"vicinity.dev/vicinity/internal/routing/intent"
)

// OldestKubernetes is the oldest release that Vicinity is tested with.
const OldestKubernetes = "1.35"

// mostSkew is how many minor releases older than the API server kubelets and kube-proxy may be.
const mostSkew = 3

func (e *examination) checkKubernetes() {
	server, err := version.ParseGeneric(e.Version)
	if err != nil {
		return // an unknown version
	}
	if server.LessThan(version.MustParseGeneric(OldestKubernetes)) {
		e.add(kubernetesTooOld, clusterObject, fmt.Sprintf("The API server is %s, and Vicinity needs %s or newer.", e.Version, OldestKubernetes), "kubectl version")
	}
	for _, node := range e.Nodes {
		kubelet := node.Status.NodeInfo.KubeletVersion
		if isVirtual(node) {
			continue // its version is that of another program
		}
		if fault := skew(server, kubelet); fault != "" {
			e.add(kubeletVersion, objectOf("Node", node), fmt.Sprintf("The kubelet is %s, which is %s (%s).", kubelet, fault, e.Version),
				"kubectl get nodes -o wide")
		} else if release, err := version.ParseGeneric(kubelet); err == nil && release.LessThan(version.MajorMinor(1, 34)) && !intent.IsWindows(node) {
			e.add(nodeIgnoresNodeHints, objectOf("Node", node), fmt.Sprintf("The kubelet is %s.", kubelet), "kubectl get nodes -o wide")
		}
	}
}

// skew returns the fault of a version compared with the API server's, empty if it has none or is none of Kubernetes.
func skew(server *version.Version, text string) string {
	other, err := version.ParseGeneric(text)
	switch {
	case err != nil, other.Major() != server.Major():
		return ""
	case other.Minor() > server.Minor():
		return "newer than the API server"
	case server.Minor()-other.Minor() > mostSkew:
		return fmt.Sprintf("more than %d minor releases older than the API server", mostSkew)
	}
	return ""
}

// clusterObject stands for the cluster as a whole.
var clusterObject = Object{Kind: "Cluster", Name: "cluster"}

type named interface {
	GetNamespace() string
	GetName() string
}

func objectOf(kind string, object named) Object {
	return Object{Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName()}
}

// isVirtual reports whether a node is virtual, as those of virtual-kubelet.
func isVirtual(node *corev1.Node) bool { return node.Labels["type"] == "virtual-kubelet" }

// isPassing reports whether a node is new or about to be deleted, so that it need not be ready or labelled.
func (e *examination) isPassing(node *corev1.Node) bool {
	return node.DeletionTimestamp != nil || e.now().Sub(node.CreationTimestamp.Time) < settling
}
