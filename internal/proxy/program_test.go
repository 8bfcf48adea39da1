package proxy

import (
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/proxy/view"
)

func TestChangesAreProgrammed(t *testing.T) {
	w := newWorld(t)
	w.right("nothing")
	web, more := aService("web", "10.96.0.1"), aService("more", "10.96.0.2")
	w.put(web, more, aGroup("web", "web-1", "10.1.1.1", "10.1.1.2"), aGroup("more", "more-1", "10.1.1.3"))
	w.right("two Services")
	w.put(aGroup("web", "web-2", "10.1.1.4"))
	w.right("another group")
	w.put(aGroup("web", "web-1", "10.1.1.2"))
	w.right("an endpoint less")
	if len(w.stale) == 0 {
		t.Error("connections to the removed endpoint are not searched")
	}
	w.drop(aGroup("web", "web-2"))
	w.right("a group less")
	w.put(aGroup("more", "web-1", "10.1.1.2"))
	w.right("a group of another Service than before")
	w.put(aGroup("web", "web-1", "10.1.1.2"))
	w.right("and back")
	own := aGroup("more", "more-1", "10.1.0.7")
	own.Spec.Endpoints[0].Node = "node-a"
	w.put(own)
	w.right("an endpoint on the node itself")
	w.drop(web)
	w.right("a Service less")
	w.drop(more)
	w.right("no Service")
}

// A restart does not change right rules.
func TestRestartAdopts(t *testing.T) {
	w := newWorld(t)
	objects := func() {
		w.put(aService("web", "10.96.0.1"), aService("more", "10.96.0.2"), aGroup("web", "web-1", "10.1.1.1", "10.1.1.2"), aGroup("more", "more-1", "10.1.1.3"))
		w.put(aNode("a"))
		w.settleIn()
	}
	objects()
	w.right("at first")
	before := w.kernel.transactions()
	w.restart()
	objects()
	w.right("after a restart")
	if got := w.kernel.transactions(); got != before {
		t.Errorf("%d transactions by the restart: %+v", got-before, w.kernel.applied[before:])
	}
	w.restart()
	objects()
	w.put(aGroup("more", "more-1", "10.1.1.4"))
	w.right("after a restart with a change")
	for _, transaction := range w.kernel.applied[before:] {
		if touches(transaction, "10.96.0.1") || touches(transaction, "10.1.1.1") {
			t.Errorf("correct rules are changed: %+v", transaction)
		}
	}
}

// On a node without IPv6, Services have only IPv4.
func TestNodeWithoutIPv6(t *testing.T) {
	w := newWorld(t)
	w.settings.WithoutIPv6 = true
	w.families, w.apiNames = nil, nil
	w.begin()
	dual := aService("web", "10.96.0.1")
	dual.Spec.ClusterIPs = append(dual.Spec.ClusterIPs, "2001:db8::1")
	dual.Spec.IPFamilies = append(dual.Spec.IPFamilies, corev1.IPv6Protocol)
	six := aGroup("web", "web-6", "2001:db8:1::1")
	six.Spec.AddressType = corev1.IPv6Protocol
	w.kernel.refuses = func(t ruleset.Transaction) error {
		if t.Family == ruleset.IPv6 {
			return errRefused
		}
		return nil
	}
	w.put(dual, handedOver(aGroup("web", "web-4", "10.1.1.1")), handedOver(six))
	w.run(time.Hour)
	if !w.kernel.leads("10.1.1.1") || w.counter("transactions", "IPv6", "error") != 0 || !w.health.Healthy() || w.version != 3 {
		t.Errorf("IPv4 is not served: healthy is %t, %d is acknowledged", w.health.Healthy(), w.version)
	}
}

// Metrics show the current Services.
func TestGauges(t *testing.T) {
	w := newWorld(t)
	are := func(when string, services, ports, endpoints, disputed float64) {
		t.Helper()
		w.run(time.Second)
		m := w.metrics
		for what, got := range map[string][2]float64{
			"services":  {testutil.ToFloat64(m.services), services},
			"ports":     {testutil.ToFloat64(m.ports.WithLabelValues("IPv4")), ports},
			"endpoints": {testutil.ToFloat64(m.endpoints.WithLabelValues("IPv4")), endpoints},
			"disputed":  {testutil.ToFloat64(m.disputed.WithLabelValues("IPv4")), disputed},
		} {
			if got[0] != got[1] {
				t.Errorf("%s: %s %g, want %g", when, what, got[0], got[1])
			}
		}
	}
	are("nothing", 0, 0, 0, 0)
	web := aService("web", "10.96.0.1")
	w.put(web, aGroup("web", "web-1", "10.1.1.1", "10.1.1.2"))
	are("a Service", 1, 1, 2, 0)
	w.put(aGroup("web", "web-1", "10.1.1.1"))
	are("an endpoint less", 1, 1, 1, 0)
	w.put(aService("rival", "10.96.0.1"), aGroup("rival", "rival-1", "10.1.1.1"))
	are("a rival", 2, 2, 2, 1)
	w.drop(web)
	are("a Service less", 1, 1, 1, 0)
}

// After a restart, no rules are written before the addresses for NodePorts are known: such rules would remove the
// NodePorts of the earlier process.
func TestNodePortsSurviveARestart(t *testing.T) {
	w := newWorld(t)
	addresses, err := view.ParseNodePorts([]string{"192.0.2.0/24"})
	if err != nil {
		t.Fatal(err)
	}
	fill := func() {
		w.settings.NodePorts = addresses
		service := aService("web", "10.96.0.1")
		service.Spec.Type, service.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30080
		w.put(service, aGroup("web", "web-1", "10.1.1.1"), aNode("a"))
		w.settleIn()
	}
	own := []netip.Addr{netip.MustParseAddr("192.0.2.7")}
	fill()
	w.setLocal(own)
	w.right("before")
	w.restart()
	before := len(w.kernel.applied)
	fill()
	w.run(5 * time.Second)
	if len(w.kernel.applied) > before {
		t.Error("rules are written before the addresses are known")
	}
	w.setLocal(own)
	w.right("after")
	for _, transaction := range w.kernel.applied[before:] {
		if touches(transaction, "192.0.2.7") {
			t.Errorf("the restart touches NodePorts: %+v", transaction.Changes)
		}
	}
	// No address is one answer as well.
	w.restart()
	fill()
	w.setLocal(nil)
	w.right("without any")
}
