package inspect

import (
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/plaintext"
)

// Anybody with access to the Lease can write its annotation, so its failure is cut to one short, printable line.
func TestFailuresOfProxiesAreShort(t *testing.T) {
	name, renewed := "a-1", metav1.NowMicro()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ProxyLeasePrefix + name, Annotations: map[string]string{v1alpha1.AnnotationProbeFailure: "lost\x1b[2J\n" + strings.Repeat("x", 1<<18)}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, RenewTime: &renewed},
	}
	got := NodeProxies([]*corev1.Node{node}, []*coordinationv1.Lease{lease})[0].Failure
	if !strings.HasPrefix(got, "lost") || len(got) > plaintext.MaxBytes || strings.ContainsAny(got, "\x1b\n") {
		t.Errorf("got %d bytes: %.40q", len(got), got)
	}
}
