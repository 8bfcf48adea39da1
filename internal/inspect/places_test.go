package inspect

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/routing/capacity"
)

// The sentence about a kube-proxy names all kinds of hints that it ignores.
func TestIgnoredHints(t *testing.T) {
	var nodes []*corev1.Node
	for name, release := range map[string]string{"old": "v1.33.0", "new": "v1.36.0"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		node.Status.NodeInfo.KubeletVersion = release
		nodes = append(nodes, node)
	}
	for range 20 {
		got := map[string]string{}
		for _, place := range PlacesOf(capacity.NewCluster(nodes), nodes, nil, time.Now()).Nodes {
			got[place.Node] = place.Hints
		}
		if got["old"] != "hints for nodes" || got["new"] != "" {
			t.Fatalf("got %q", got)
		}
	}
}
