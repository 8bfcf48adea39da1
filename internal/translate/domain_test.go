package translate

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestClusterDomains(t *testing.T) {
	rack := func(n *corev1.Node, value string) *corev1.Node {
		n.Labels["example.com/rack"] = value
		return n
	}
	cluster := NewCluster([]*corev1.Node{
		rack(aNode("b1", "b", "", "1"), "r1"), rack(aNode("a1", "a", "", "1"), "r1"),
		rack(notReady(aNode("a2", "a", "", "1"), corev1.ConditionFalse), "r2"),
		rack(aNode("a3", "a", "", "1"), ""), aNode("a4", "a", "", "1"),
	})
	want := map[string][]string{"r1": {"a1", "b1"}, "r2": {"a2"}}
	if got := cluster.Domains("example.com/rack"); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
