package cli

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Of a Service that kube-proxy serves it is said which connections hints are not for.
func TestExplainNodeSaysWhatKubeProxyKeepsLocal(t *testing.T) {
	internal := func(s *corev1.Service) {
		local := corev1.ServiceInternalTrafficPolicyLocal
		s.Spec.InternalTrafficPolicy = &local
	}
	for _, test := range []struct {
		change                 func(*corev1.Service)
		clusterIP, fromOutside bool
	}{
		{change: notHandedOver},
		{change: func(s *corev1.Service) { notHandedOver(s); internal(s) }, clusterIP: true},
		{change: func(s *corev1.Service) { notHandedOver(s); isLocal(s) }, fromOutside: true},
	} {
		c := newProxiedCluster(proxiedService(test.change))
		c.objects = append(c.objects, aSlice("shop", "web", "a=2", "b=1"))
		code, stdout, stderr := c.explain(t.Context(), "a1")
		if code != 0 {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
		for text, want := range map[string]bool{
			"warning: connections to the cluster IP have internalTrafficPolicy Local: kube-proxy sends them to endpoints on the node alone": test.clusterIP,
			"warning: connections from outside have externalTrafficPolicy Local: kube-proxy sends them to endpoints on the node alone":      test.fromOutside,
		} {
			if strings.Contains(stdout, text) != want {
				t.Errorf("%q: want %t in\n%s", text, want, stdout)
			}
		}
	}
}
