package routing

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/routing/handover"
)

func TestRefusedOutside(t *testing.T) {
	nodes := []*corev1.Node{
		testNode{name: "a-1", zone: "a", labels: map[string]string{"rack": "r1"}}.object(),
		testNode{name: "a-2", zone: "a", labels: map[string]string{"rack": "r2"}}.object(),
		testNode{name: "b-1", zone: "b", labels: map[string]string{"rack": "r1"}}.object(),
		testNode{name: "c-1", zone: "c"}.object(),
	}
	const rest = ", which reach no endpoint; load balancers find other nodes by the health check /healthz/services/shop/web"
	for name, test := range map[string]struct {
		keys, endpoints string
		change          func(*corev1.Service)
		proxies         []string // all nodes if it is empty
		want            string
	}{
		"a zone without an endpoint":   {keys: "topology.kubernetes.io/zone", endpoints: "a b", want: "all nodes of c"},
		"a zone where one is leaving":  {keys: "topology.kubernetes.io/zone", endpoints: "a b-", want: "all nodes of c"},
		"a zone where one is unready":  {keys: "topology.kubernetes.io/zone", endpoints: "a b!", want: "all nodes of b, c"},
		"racks":                        {keys: "rack", endpoints: "a", want: "all nodes of c and at some nodes of a"},
		"racks, then zones":            {keys: "rack,topology.kubernetes.io/zone", endpoints: "a", want: "all nodes of c"},
		"nodes":                        {keys: "kubernetes.io/hostname", endpoints: "a b", want: "all nodes of c and at some nodes of a"},
		"a zone without a proxy":       {keys: "topology.kubernetes.io/zone", endpoints: "a b", proxies: []string{"a-1", "b-1", "new"}},
		"each zone has one":            {keys: "topology.kubernetes.io/zone", endpoints: "a b c"},
		"soft keys":                    {keys: "topology.kubernetes.io/zone,*", endpoints: "a b"},
		"no endpoint is ready":         {keys: "topology.kubernetes.io/zone", endpoints: "a!"},
		"nothing comes from outside":   {keys: "topology.kubernetes.io/zone", endpoints: "a b", change: func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP }},
		"kube-proxy serves":            {keys: "topology.kubernetes.io/zone", endpoints: "a b", change: func(s *corev1.Service) { s.Labels = nil }},
		"each node answers for itself": {keys: "kubernetes.io/hostname", endpoints: "a b", change: local},
		"external IPs": {keys: "topology.kubernetes.io/zone", endpoints: "a b", want: "all nodes of c", change: func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalIPs = corev1.ServiceTypeClusterIP, []string{"203.0.113.1"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			service := servedService(keys, test.keys, v1alpha1.AnnotationProxy, "true")
			service.Spec.Type, service.Spec.IPFamilies = corev1.ServiceTypeNodePort, []corev1.IPFamily{corev1.IPv4Protocol}
			if test.change != nil {
				test.change(service)
			}
			w := newGroupWorld(t, inputOf(service, nodes, slicesOf(test.endpoints)))
			d := w.decide()
			w.settle(d, GroupState{})
			if len(test.proxies) == 0 {
				test.proxies = []string{"a-1", "a-2", "b-1", "c-1"}
			}
			var proxies []handover.NodeProxy
			for _, node := range test.proxies {
				proxies = append(proxies, handover.NodeProxy{Node: node})
			}
			want := test.want
			if want != "" {
				want = "connections from outside are refused at " + want + rest
			}
			if got := RefusedOutside(w.input(), d, proxies); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			if name == "nodes" { // two endpoints
				if got := RefusedOutside(w.input(), d, slices.Repeat(proxies, mostPairs/(2*len(proxies))+1)); got != "" {
					t.Errorf("a large cluster got %q", got)
				}
			}
			// Only what is stored counts.
			w.in.Slices = slicesOf("a b c")
			if got := RefusedOutside(w.input(), w.decide(), proxies); got != want && test.endpoints != "a!" {
				t.Errorf("before the groups are written: got %q, want %q", got, want)
			}
		})
	}
}

func local(service *corev1.Service) {
	service.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}
