package proxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/internal/proxy/cluster"
	"vicinity.dev/vicinity/internal/proxy/lease"
	"vicinity.dev/vicinity/internal/proxy/probe"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/proxy/view"
)

// provenWorld is a world whose node is probed. The prober runs in parallel, in real time.
type provenWorld struct {
	*world
	// open means that connections go where the rules of the kernel lead them; else they are
	// refused.
	open atomic.Bool
	// own is the node's listener.
	own atomic.Pointer[net.Listener]
}

var probeFront = netip.MustParseAddrPort("10.96.9.9:80")

// probeService returns the Service of the chart.
func probeService() *corev1.Service {
	service := aService("probe", probeFront.Addr().String())
	service.Labels = nil
	return service
}

func newProvenWorld(t *testing.T) *provenWorld {
	return newProvenWorldAt(t, probe.Pace{Every: time.Millisecond, Again: time.Millisecond, Retry: time.Millisecond, Fresh: 1000 * time.Hour, Tries: 3, Timeout: 2 * time.Second})
}

func newProvenWorldAt(t *testing.T, pace probe.Pace) *provenWorld {
	w := &provenWorld{world: newWorld(t)}
	w.open.Store(true)
	v := &proving{
		service: types.NamespacedName{Namespace: "shop", Name: "probe"}, results: make(chan struct{}, 1), reported: map[ruleset.Family]probe.State{},
	}
	v.prober = probe.New(probe.Options{
		Node: "node-a", Port: 10268, Pace: pace,
		Changed: func() {}, Unserved: func() {}, Tried: w.metrics.probed,
		Listen: func(at netip.AddrPort) (net.Listener, error) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil || at.Addr() != netip.MustParseAddr("192.0.2.1") {
				return nil, errors.Join(err, syscall.EADDRNOTAVAIL)
			}
			w.own.Store(&l)
			return listenerOf{l, at}, nil
		},
		Dial: func(ctx context.Context, _ netip.Addr, to netip.AddrPort) (net.Conn, error) {
			if to == probeFront && (!w.open.Load() || !w.kernel.leads("192.0.2.1")) {
				return nil, syscall.ECONNREFUSED
			}
			var d net.Dialer
			return d.DialContext(ctx, "tcp", (*w.own.Load()).Addr().String())
		},
	})
	w.proving = v
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		v.prober.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return w
}

// listenerOf is a listener that returns another address.
type listenerOf struct {
	net.Listener
	at netip.AddrPort
}

func (l listenerOf) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.at) }

// until lets time pass until something is so.
func (w *provenWorld) until(what string, is func() bool) {
	w.t.Helper()
	eventually(w.t, what, func() bool {
		w.run(checkPeriod)
		return is()
	})
}

// tries returns the number of probes.
func (w *provenWorld) tries() float64 {
	return testutil.ToFloat64(w.metrics.probes.WithLabelValues("IPv4", resultDone)) + testutil.ToFloat64(w.metrics.probes.WithLabelValues("IPv4", resultError))
}

// failing is the gauge of IPv4.
func (w *provenWorld) failing() float64 {
	return testutil.ToFloat64(w.metrics.probeFailing.WithLabelValues("IPv4"))
}

// probes waits for some more probes.
func (w *provenWorld) probes(n float64) {
	w.t.Helper()
	before := w.tries()
	w.until("the node is probed", func() bool { return w.tries() >= before+n })
}

// A node acknowledges programmed versions while its probes pass, and nothing otherwise.
func TestNothingIsAcknowledgedWithoutProof(t *testing.T) {
	w := newProvenWorld(t)
	var failure string
	var ready bool
	onProgrammed := w.onProgrammed
	w.onProgrammed = func(a lease.Acknowledgement) {
		failure, ready = a.Failure, a.Ready
		onProgrammed(a)
	}
	w.open.Store(false)
	w.put(probeService(), inHandOver("web", "10.96.0.1"), handedOver(aGroup("web", "web-1", "10.1.1.1")))
	w.run(time.Minute)
	group := uint64(w.next)
	if w.version != 0 {
		t.Fatalf("version %d is acknowledged though no probe passed", w.version)
	}
	w.until("the probes fail", func() bool { return failure != "" })
	w.probes(5)
	if w.version != 0 || ready || !strings.Contains(failure, "10.96.9.9:80 does not end at vicinity-proxy") || w.failing() != 1 {
		t.Errorf("version %d is acknowledged, ready: %t, failure %q, gauge %g", w.version, ready, failure, w.failing())
	}
	if !w.kernel.leads("10.1.1.1") {
		t.Error("nothing is programmed because a probe fails")
	}
	if got := w.events.events; len(got) != 1 || !strings.HasPrefix(got[0], "shop/probe Warning RulesBypassed: no Service is handed over to node node-a: its IPv4 packets bypass ") {
		t.Errorf("events %q", got)
	}
	w.open.Store(true)
	w.until("it is acknowledged", func() bool { return w.version == group })
	if failure != "" || !ready || w.failing() != 0 || len(w.events.events) != 2 || !strings.Contains(w.events.events[1], "Normal RulesTraversed") {
		t.Errorf("failure %q, ready: %t, gauge %g, events %q", failure, ready, w.failing(), w.events.events)
	}
	w.open.Store(false)
	w.until("the acknowledgement is withdrawn", func() bool { return w.version == 0 && !ready && failure != "" })
	if !w.kernel.leads("10.1.1.1") {
		t.Error("earlier rules are gone")
	}
}

// A new version is acknowledged only after a new probe. Until then the earlier acknowledgement stays.
func TestProofIsFresh(t *testing.T) {
	w := newProvenWorld(t)
	w.put(probeService(), inHandOver("web", "10.96.0.1"), handedOver(aGroup("web", "web-1", "10.1.1.1")))
	w.run(time.Minute)
	first := uint64(w.next)
	w.until("it is acknowledged", func() bool { return w.version == first })

	// The clock of the world is years ahead of the probes from now on.
	w.clock.SetTime(time.Now().Add(100000 * time.Hour))
	w.open.Store(false)
	w.put(handedOver(aGroup("web", "web-1", "10.1.1.2")))
	w.step(t.Context())
	second := uint64(w.next)
	if !w.kernel.leads("10.1.1.2") {
		t.Fatal("the new version is not programmed")
	}
	if w.version == second {
		t.Error("a new version is acknowledged because of an old probe")
	}
	w.until("the probes fail", func() bool { return w.failing() == 1 })
	if w.version != 0 {
		t.Errorf("version %d is acknowledged", w.version)
	}
}

// Older charts lack the Service, and some nodes cannot be probed.
func TestWithoutProbe(t *testing.T) {
	for _, test := range []struct {
		name  string
		setUp func(*provenWorld)
	}{
		{"no Service", func(*provenWorld) {}},
		{"a Service with a selector", func(w *provenWorld) {
			service := probeService()
			service.Spec.Selector = map[string]string{"app": "web"}
			w.put(service)
		}},
		{"a node without an address", func(w *provenWorld) {
			node := aNode("a")
			node.Status.Addresses = nil
			w.put(node, probeService())
		}},
		{"a node that does not have its address", func(w *provenWorld) {
			node := aNode("a")
			node.Status.Addresses[0].Address = "192.0.2.77"
			w.put(node, probeService())
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newProvenWorld(t)
			test.setUp(w)
			w.put(inHandOver("web", "10.96.0.1"), handedOver(aGroup("web", "web-1", "10.1.1.1")))
			group := uint64(w.next)
			w.until("it is acknowledged", func() bool { return w.version == group })
			if w.failing() != 0 || len(w.events.events) != 0 {
				t.Errorf("gauge %g, events %q", w.failing(), w.events.events)
			}
		})
	}
}

// The probed Service is programmed even if other Services use all elements.
func TestProbeOnAFullNode(t *testing.T) {
	w := newProvenWorld(t)
	w.bounds = newBounds(view.Bounds{Service: 600, Total: 600})
	w.put(born(withExternal(inHandOver("greedy", "10.96.0.1"), 500), 0), aGroup("greedy", "greedy-1", "10.1.1.1"))
	w.run(time.Minute)
	if w.bounds.room() > 10 {
		t.Fatalf("%d elements remain: this test shows nothing", w.bounds.room())
	}
	w.put(born(inHandOver("web", "10.96.0.2"), time.Minute))
	w.put(born(probeService(), time.Hour))
	w.until("the node is probed", func() bool { return w.proving.prober.Verdict(w.clock.Now()).Holds })
	if !w.kernel.leads("192.0.2.1") || w.bounds.waits(cluster.KeyOf(probeService())) {
		t.Error("the Service of the probe is not programmed")
	}
}

// If the kernel refuses the probed rules, nothing is acknowledged, and the Lease has the reason.
func TestUnprogrammedProbe(t *testing.T) {
	w := newProvenWorld(t)
	var failure string
	w.onProgrammed = func(a lease.Acknowledgement) { failure, w.version = a.Failure, a.Version }
	w.kernel.refuses = func(transaction ruleset.Transaction) error {
		if touches(transaction, probeFront.Addr().String()) {
			return syscall.EINVAL
		}
		return nil
	}
	w.put(probeService(), inHandOver("web", "10.96.0.1"), handedOver(aGroup("web", "web-1", "10.1.1.1")))
	w.run(missingAfter / 2)
	if failure != "" {
		t.Errorf("failure %q at once", failure)
	}
	w.run(missingAfter)
	if want := "IPv4 is not probed, because the kernel lacks the rules of the Service shop/probe"; failure != want || w.version != 0 {
		t.Errorf("version %d is acknowledged, failure %q, want %q", w.version, failure, want)
	}
	w.kernel.refuses = func(ruleset.Transaction) error { return nil }
	w.until("it is acknowledged", func() bool { return w.version > 0 && failure == "" })
}
