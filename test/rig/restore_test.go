package rig

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestOnlyLabsForTestsAreRestored(t *testing.T) {
	node := func(name string, labels map[string]string) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}
	lab := []corev1.Node{node("zone-a-1", nil), node("zone-b-1", nil), node("zone-c-1", nil)}
	unmarked := append([]corev1.Node{}, lab...)
	for i := range FakeNodes {
		name := fmt.Sprintf("fake-%d", i+1)
		lab, unmarked = append(lab, node(name, map[string]string{"lab.vicinity.dev/fake": "true"})), append(unmarked, node(name, nil))
	}
	const here = "https://127.0.0.1:6443"
	for _, test := range []struct {
		name, server string
		nodes        []corev1.Node
		want         string // empty if it is restored
	}{
		{"a lab for tests", here, lab, ""},
		{"a node of an earlier test", here, append([]corev1.Node{node("n1", nil)}, lab...), ""},
		{"another machine", "https://192.0.2.1:6443", lab, "address"},
		{"a name", "https://cluster.example.com", lab, "address"},
		{"another cluster of this machine", here, []corev1.Node{node("kind-control-plane", nil)}, "no node zone-a-1"},
		{"a test has deleted a node", here, lab[:len(lab)-1], fmt.Sprintf("no node fake-%d", FakeNodes)},
		{"nodes with the names but without the label", here, unmarked, "fake-1 has no label"},
	} {
		err := verifyLab(test.server, test.nodes)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", test.name, err, test.want)
		}
	}
}
