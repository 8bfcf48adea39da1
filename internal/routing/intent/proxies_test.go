package intent

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestProxiesOfNodes(t *testing.T) {
	var nodes []*corev1.Node
	for name, info := range map[string]corev1.NodeSystemInfo{
		"new":         {KubeletVersion: "v1.37.2"},
		"first-nodes": {KubeletVersion: "v1.34.0-rc.1"},
		"gke":         {KubeletVersion: "v1.33.4-gke.1350000"},
		"eks":         {KubeletVersion: "v1.30.14-eks-3abbec1"},
		"plus":        {KubeletVersion: "v1.29+"},
		"unknown":     {},
		"odd":         {KubeletVersion: "main"},
		"windows":     {KubeletVersion: "v1.30.0", OperatingSystem: "windows"},
	} {
		node := aNode(name, "a", "", "1")
		node.Status.NodeInfo = info
		nodes = append(nodes, node)
	}
	labelled := aNode("labelled", "a", "", "1")
	labelled.Labels[corev1.LabelOSStable] = "windows"
	p := NewCluster(append(nodes, labelled)).Proxies()
	if !slices.Equal(p.Windows, []string{"labelled", "windows"}) || !slices.Equal(p.WithoutNodeHints, []string{"eks", "gke", "plus"}) {
		t.Errorf("%+v", p)
	}
}
