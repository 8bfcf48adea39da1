package inspect

import (
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/routing"
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

// A node that has just become ready does not count as without a proxy, as for the controller.
func TestNodesThatHaveJustBecomeReady(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	node := func(name string, readyFor time.Duration) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-readyFor)),
			}}},
		}
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web",
		Labels:      map[string]string{v1alpha1.LabelServiceProxyName: v1alpha1.ServiceProxyName},
		Annotations: map[string]string{v1alpha1.AnnotationProxy: "true"},
	}}
	nodes := []*corev1.Node{node("new", time.Second), node("old", time.Hour)}
	h := HandOverOf(&Reading{Input: routing.Input{Service: service}, Now: now}, allocate.DeliveryGroups, NodeProxies(nodes, nil))
	if !slices.Equal(h.Missing, []string{"old"}) {
		t.Errorf("missing are %q", h.Missing)
	}
}
