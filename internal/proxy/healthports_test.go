package proxy

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/internal/proxy/events"
	"vicinity.dev/vicinity/internal/proxy/health"
)

// Load balancers are answered at the node's addresses about Services with local traffic.
func TestHealthChecksOfLoadBalancers(t *testing.T) {
	w := newWorld(t)
	ports := &fakeHealthPorts{}
	w.healthPorts.answerer = ports
	service := aService("web", "10.96.0.1")
	service.Spec.Type = corev1.ServiceTypeLoadBalancer
	service.Spec.ExternalTrafficPolicy, service.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, 31000
	group := aGroup("web", "web-1", "10.1.0.1", "10.1.1.1")
	group.Spec.Endpoints[0].Node = "node-a"
	w.put(service, group)
	w.run(time.Second)
	name := types.NamespacedName{Namespace: "shop", Name: "web"}
	if got := ports.services[name]; got != (health.Service{Port: 31000, LocalEndpoints: 1}) {
		t.Errorf("%+v", ports.services)
	}
	if len(ports.addresses) != 1 || ports.addresses[0] != netip.MustParseAddr("192.0.2.1") {
		t.Errorf("at %v", ports.addresses)
	}
	calls := ports.calls
	w.put(aService("more", "10.96.0.2"), aGroup("more", "more-1", "10.1.1.2"))
	w.run(time.Minute)
	if ports.calls != calls {
		t.Errorf("%d calls though nothing has changed", ports.calls-calls)
	}
	w.drop(service)
	w.run(time.Second)
	if len(ports.services) != 0 {
		t.Errorf("%+v is left", ports.services)
	}
}

// A taken port is tried again, and told once if it stays taken.
func TestHealthPortsThatAreTaken(t *testing.T) {
	w := newWorld(t)
	answers := &fakeHealthPorts{}
	w.healthPorts.answerer = answers
	w.run(time.Second)
	name := types.NamespacedName{Namespace: "shop", Name: "web"}
	answers.fail = map[types.NamespacedName]error{name: errors.New("taken")}
	w.healthPorts.set(t.Context(), nil, map[types.NamespacedName]health.Service{name: {Port: 31000}})
	w.run(events.HealthPortWarnAfter - time.Second)
	if len(w.events.events) > 0 {
		t.Errorf("told too early: %q", w.events.events)
	}
	w.run(time.Minute)
	want := "shop/web Warning FailedToStartServiceHealthcheck: node node-a does not answer health checks of load balancers on port 31000: taken"
	if got := strings.Join(w.events.events, "\n"); got != want || w.counter("failures", stepHealth) != 1 {
		t.Errorf("events %q, %g failures are counted", got, w.counter("failures", stepHealth))
	}
	answers.fail = nil
	w.run(time.Second)
	calls := answers.calls
	w.run(time.Minute)
	if answers.calls != calls {
		t.Error("an open port is opened again")
	}
}
