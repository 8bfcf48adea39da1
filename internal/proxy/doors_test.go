package proxy

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"vicinity.dev/vicinity/internal/proxy/health"
)

// Load balancers are answered at the node's addresses about Services with local traffic.
func TestHealthChecksOfLoadBalancers(t *testing.T) {
	w := newWorld(t)
	doors := &fakeDoors{}
	w.doors.answerer = doors
	service := aService("web", "10.96.0.1")
	service.Spec.Type = corev1.ServiceTypeLoadBalancer
	service.Spec.ExternalTrafficPolicy, service.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, 31000
	group := aGroup("web", "web-1", "10.1.0.1", "10.1.1.1")
	group.Spec.Endpoints[0].Node = "node-a"
	w.put(service, group)
	w.run(time.Second)
	name := types.NamespacedName{Namespace: "shop", Name: "web"}
	if got := doors.services[name]; got != (health.Service{Port: 31000, LocalEndpoints: 1}) {
		t.Errorf("%+v", doors.services)
	}
	if len(doors.addresses) != 1 || doors.addresses[0] != netip.MustParseAddr("192.0.2.1") {
		t.Errorf("at %v", doors.addresses)
	}
	calls := doors.calls
	w.put(aService("more", "10.96.0.2"), aGroup("more", "more-1", "10.1.1.2"))
	w.run(time.Minute)
	if doors.calls != calls {
		t.Errorf("%d calls though nothing has changed", doors.calls-calls)
	}
	w.drop(service)
	w.run(time.Second)
	if len(doors.services) != 0 {
		t.Errorf("%+v is left", doors.services)
	}
}

// A port that is taken is tried again, and told of once if it stays taken.
func TestDoorsThatAreTaken(t *testing.T) {
	name := types.NamespacedName{Namespace: "shop", Name: "web"}
	answers := &fakeDoors{fail: map[types.NamespacedName]error{name: errors.New("taken")}}
	clock := clocktesting.NewFakePassiveClock(start)
	told := 0
	d := &doors{
		answerer: answers, clock: clock, metrics: newMetrics(func(string) int { return 0 }), log: logr.Discard(),
		told: func(got types.NamespacedName, port uint16, err error) {
			told++
			if got != name || port != 31000 || err == nil {
				t.Errorf("told of %s, %d, %v", got, port, err)
			}
		},
	}
	d.set(t.Context(), nil, map[types.NamespacedName]health.Service{name: {Port: 31000}})
	for i := range 60 {
		clock.SetTime(start.Add(time.Duration(i) * time.Second))
		if now := told; now != 0 && clock.Now().Sub(start) < doorPatience {
			t.Fatalf("told after %d s", i)
		}
		d.retry(t.Context())
	}
	if told != 1 {
		t.Errorf("told %d times", told)
	}
	answers.fail = nil
	d.retry(t.Context())
	calls := answers.calls
	d.retry(t.Context())
	if answers.calls != calls {
		t.Error("what is open is opened again")
	}
}
