package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/internal/proxy/cluster"
	"vicinity.dev/vicinity/internal/proxy/events"
	"vicinity.dev/vicinity/internal/proxy/health"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/topology"
)

// Health checks are answered at the node's addresses for Services with local traffic.
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
		t.Errorf("%+v remains", ports.services)
	}
}

// Load balancers learn which Services the node reaches by its hard tiers, as soon as the kernel has the rules.
func TestReachFollowsTheKernel(t *testing.T) {
	w := newWorld(t)
	w.health.SetNode(aNode("a"))
	expect := func(when string, code int) {
		t.Helper()
		recorder := httptest.NewRecorder()
		w.health.Handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/healthz/services/shop/web", nil))
		if recorder.Code != code {
			t.Errorf("%s: %d, want %d: %s", when, recorder.Code, code, recorder.Body)
		}
	}
	expect("before the first sync", http.StatusServiceUnavailable)
	w.run(time.Second)
	expect("without the Service", http.StatusNotFound)
	service, group := aService("web", "10.96.0.1"), aGroup("web", "web-1", "10.1.1.1")
	group.Spec.Tiers = []string{topology.Zone}
	far := group.DeepCopy()
	far.Spec.Endpoints[0].Zone = "b"
	w.kernel.refuses = func(ruleset.Transaction) error { return errRefused }
	w.put(service, group)
	w.run(time.Second)
	expect("before its rules are written", http.StatusNotFound)
	w.refusing()
	w.run(time.Minute)
	expect("with an endpoint in the zone", http.StatusOK)
	w.put(far)
	w.run(time.Second)
	expect("with an endpoint in another zone", http.StatusServiceUnavailable)
	w.drop(service)
	w.run(time.Second)
	expect("after its deletion", http.StatusNotFound)
}

// A taken port is retried and reported once. Ports are opened again after a listener failed.
func TestHealthPortsAreRetried(t *testing.T) {
	w := newWorld(t)
	answers := &fakeHealthPorts{}
	w.healthPorts.answerer = answers
	w.run(time.Second)
	name := types.NamespacedName{Namespace: "shop", Name: "web"}
	answers.fail = map[types.NamespacedName]error{name: errors.New("taken")}
	w.healthPorts.set(t.Context(), nil, map[types.NamespacedName]health.Service{name: {Port: 31000}})
	w.run(events.HealthPortWarnAfter - time.Second)
	if len(w.events.events) > 0 {
		t.Errorf("reported too early: %q", w.events.events)
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
	answers.broken = true
	w.run(time.Second)
	if answers.calls != calls+1 {
		t.Errorf("after a listener failed, the ports are opened %d times, want once", answers.calls-calls)
	}
}

// Services whose refused addresses change constantly leave room for other events, and get one event in ten minutes
// each.
func TestEventsOfOneKindLeaveRoom(t *testing.T) {
	w := newWorld(t)
	w.put(aRange("kubernetes", "10.96.0.0/16"))
	const flappers = 20
	for i := range flappers {
		w.put(aService(fmt.Sprint("f", i), fmt.Sprint("10.96.0.", 10+i)), aGroup(fmt.Sprint("f", i), fmt.Sprint("g", i), "10.1.1.1"))
	}
	flap := func(n int) {
		s := aService(fmt.Sprint("f", n%flappers), fmt.Sprint("10.96.0.", 10+n%flappers))
		if n/flappers%3 != 0 { // else none is refused
			s.Spec.ExternalIPs = []string{fmt.Sprintf("10.96.7.%d", n%251)}
		}
		w.put(s)
		w.run(time.Second)
	}
	for n := range 60 {
		flap(n)
	}
	cut := withExternal(aService("cut", "10.96.0.2"), 5)
	w.bounds.Service = 28
	w.put(cut, aGroup("cut", "cut-1", "10.1.1.2", "10.1.1.3", "10.1.1.4"))
	const minutes = 30
	for n := range minutes * 60 {
		flap(n)
	}
	if !w.bounds.waits(cluster.KeyOf(cut)) {
		t.Fatal("the Service is not cut: this test shows nothing")
	}
	w.warnings.Bypassed(cluster.KeyOf(cut), "IPv4", "x", w.clock.Now())
	w.warnings.WriteDue(w.clock.Now())
	all := strings.Join(w.events.events, "\n")
	for _, reason := range []string{"shop/cut Warning TooManyElements", "RulesBypassed"} {
		if !strings.Contains(all, reason) {
			t.Errorf("there is no event %s", reason)
		}
	}
	for i := range flappers {
		// Once at the beginning and once in each ten minutes after that.
		if got := strings.Count(all, fmt.Sprintf("shop/f%d Warning AddressRefused", i)); got < 2 || got > 1+(minutes+1)/10 {
			t.Errorf("%d events about the addresses of one Service", got)
		}
	}
}
