package proxy

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// A change that ends no endpoint ends no connection.
func TestConnectionsOutliveChangesThatEndNoEndpoint(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*world, *corev1.Service, *v1alpha1.EndpointGroup)
	}{
		{"an endpoint goes and still serves", func(w *world, _ *corev1.Service, g *v1alpha1.EndpointGroup) {
			g.Spec.Endpoints[0].Terminating, g.Spec.Endpoints[0].NotReady = true, true
			w.put(g)
		}},
		{"the plan gives the zone's endpoints to another", func(w *world, _ *corev1.Service, g *v1alpha1.EndpointGroup) {
			g.Spec.Consumers, g.Spec.LocalOnly = []v1alpha1.GroupConsumer{{Zone: "b", Weight: 1000}}, true
			w.put(g)
		}},
		{"the plan takes endpoints of another zone", func(w *world, _ *corev1.Service, g *v1alpha1.EndpointGroup) {
			g.Spec.Endpoints = g.Spec.Endpoints[:2]
			w.put(g)
		}},
		{"traffic is to stay on the node", func(w *world, s *corev1.Service, _ *v1alpha1.EndpointGroup) {
			local := corev1.ServiceInternalTrafficPolicyLocal
			s.Spec.InternalTrafficPolicy = &local
			w.put(s)
		}},
		{"the Service is given back", func(w *world, s *corev1.Service, g *v1alpha1.EndpointGroup) {
			delete(s.Labels, v1alpha1.LabelServiceProxyName)
			w.put(s)
			w.run(time.Second)
			w.drop(g)
		}},
		{"an address of the Service goes", func(w *world, s *corev1.Service, _ *v1alpha1.EndpointGroup) {
			s.Spec.ExternalIPs = nil
			w.put(s)
		}},
		{"the Service goes", func(w *world, s *corev1.Service, g *v1alpha1.EndpointGroup) { w.drop(s, g) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			service, group := aService("web", "10.96.0.1"), aGroup("web", "web-1", "10.1.1.1", "10.1.1.2", "10.1.1.3")
			service.Spec.ExternalIPs = []string{"203.0.113.1"}
			group.Spec.Endpoints[1].Node = "node-a"
			group.Spec.Endpoints[2].Zone = "b"
			group.Labels = map[string]string{v1alpha1.LabelNotForPrefix + "c": "true"}
			w.put(service, group)
			w.put(aGroup("web", "web-2", "10.1.1.4"))
			w.run(time.Second)
			w.stale = nil
			test.change(w, service.DeepCopy(), group.DeepCopy())
			w.run(3 * time.Second)
			if len(w.stale) > 0 {
				t.Errorf("connections to endpoints that serve are ended: %v", w.stale)
			}
		})
	}
}

// A Service with a local policy is also served on nodes without endpoints, from before the acknowledgement until
// kube-proxy has taken it back.
func TestServicesOfLocalPolicyAreHandedOverOnAllNodes(t *testing.T) {
	w := newWorld(t)
	service := aService("web", "10.96.0.1")
	service.Spec.Type, service.Spec.ExternalTrafficPolicy = corev1.ServiceTypeNodePort, corev1.ServiceExternalTrafficPolicyLocal
	service.Spec.Ports[0].NodePort = 30080
	named := service.DeepCopy()
	service.Labels = nil
	w.put(service, handedOver(aGroup("web", "web-1", "10.1.1.1"))) // on another node
	for _, step := range []struct {
		name    string
		service *corev1.Service
	}{{"taken", service}, {"named", named}, {"given back", service}} {
		w.put(step.service)
		w.run(time.Second)
		if w.version == 0 {
			t.Errorf("%s: nothing is acknowledged", step.name)
		}
		if !w.kernel.leads("10.1.1.1") {
			t.Errorf("%s: the Service is not served", step.name)
		}
	}
}

// Connections end to an endpoint of another zone that this node does not see any more, and again after a restart.
func TestConnectionsToDrainedEndpointsEnd(t *testing.T) {
	w := newWorld(t)
	drained := aGroup("web", "web-d")
	drained.Spec.Endpoints, drained.Spec.Drained = nil, []string{"10.1.1.9"}
	objects := []metav1.Object{aService("web", "10.96.0.1"), aGroup("web", "web-1", "10.1.1.1")}
	w.put(objects...)
	w.run(time.Second)
	for _, when := range []string{"drained", "restarted"} {
		w.stale = nil
		w.put(append(objects, drained)...)
		w.run(time.Second)
		if len(w.stale) == 0 || !w.stale[0].Drained || w.stale[0].Target.Addr().String() != "10.1.1.9" {
			t.Errorf("%s: connections that end are %v", when, w.stale)
		}
		w.restart()
	}
}
