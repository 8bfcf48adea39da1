package proxy

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"vicinity.dev/vicinity/internal/proxy/cluster"
	"vicinity.dev/vicinity/internal/proxy/cluster/clustertest"
	"vicinity.dev/vicinity/internal/proxy/health"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/proxy/view"
	"vicinity.dev/vicinity/internal/topology"
)

// proxyOptions returns the options of a proxy between an API server and a kernel.
func proxyOptions(server *fakeServer, k *fakeKernel) Options {
	return Options{
		NodeName: "node-a", API: &rest.Config{Host: server.URL, QPS: 1000, Burst: 1000}, Settings: view.Settings{MasqueradeMark: ruleset.DefaultMasqueradeMark},
		MinSyncPeriod: time.Millisecond, SyncPeriod: time.Hour, LeaseNamespace: "system", Kernel: k,
		Tracker: &fakeTracker{deleted: map[ruleset.Stale]int{}}, Registry: prometheus.NewPedanticRegistry(), Log: logr.Discard(),
	}
}

// runProxy runs a proxy whose health is in a time of its own, and returns what its paths answer.
func runProxy(t *testing.T, o Options, healthClock clock.PassiveClock) (p *Proxy, status func(path string) int, stop func()) {
	t.Helper()
	p, err := newProxy(o, healthClock)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return p, func(path string) int {
		recorder := httptest.NewRecorder()
		p.Health().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
		return recorder.Code
	}, stop
}

// A proxy programs the objects of an API server, acknowledges them, continues while the server is away, and leaves its
// rules at the end.
func TestProxy(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: watches that fail are restarted after a while")
	}
	server, k := newServer(t), newFakeKernel()
	sources := server.api.Sources
	sources[cluster.ResourceNodes].Put(aNode("a"))
	sources[cluster.ResourceServices].Put(inHandOver("web", "10.96.0.1"))
	sources[cluster.ResourceGroups].Put(handedOver(aGroup("web", "web-1", "10.1.1.1")))
	o := proxyOptions(server, k)
	loaded := make(chan bool, 2)
	o.Programmed = func() { loaded <- k.leads("10.1.1.1") }
	_, status, stop := runProxy(t, o, clock.RealClock{})

	eventually(t, "the group is programmed", func() bool { return k.leads("10.1.1.1") })
	eventually(t, "it is acknowledged", func() bool { return server.programmed() == "1" }) // the first write of a group
	for _, path := range []string{"/readyz", "/healthz", "/livez"} {
		if got := status(path); got != http.StatusOK {
			t.Errorf("%s is %d", path, got)
		}
	}
	sources[cluster.ResourceGroups].Put(handedOver(aGroup("web", "web-1", "10.1.1.2")))
	eventually(t, "a change is programmed", func() bool { return k.leads("10.1.1.2") && !k.leads("10.1.1.1") })
	eventually(t, "it is acknowledged", func() bool { return server.programmed() == "2" })

	// A Service with hard tiers that the node cannot reach has an event.
	sources[cluster.ResourceServices].Put(aService("web", "10.96.0.1"))
	hard := aGroup("web", "web-1", "10.1.1.3")
	hard.Spec.Tiers, hard.Spec.Endpoints[0].Zone = []string{topology.Zone}, "b"
	sources[cluster.ResourceGroups].Put(hard)
	eventually(t, "the event is written", func() bool {
		server.mu.Lock()
		defer server.mu.Unlock()
		return len(server.events) == 1 && server.events[0].Reason == "TopologyUnreachable" && server.events[0].Regarding.Name == "web"
	})
	sources[cluster.ResourceGroups].Put(aGroup("web", "web-1", "10.1.1.4"))
	eventually(t, "the API is reached again", func() bool { return k.leads("10.1.1.4") })

	server.goAway()
	sources[cluster.ResourceGroups].Put(aGroup("web", "web-1", "10.1.1.5"))
	k.do(func(table *fakeTable) { clear(table.sets["slots"].elements) })
	eventually(t, "rules are repaired without the API", func() bool { return k.leads("10.1.1.4") })
	server.away.Store(nil)
	eventually(t, "the latest change is programmed", func() bool { return k.leads("10.1.1.5") })

	if !<-loaded || len(loaded) != 0 {
		t.Error("the message that all is programmed is missing, early or repeated")
	}
	before := k.transactions()
	stop()
	if !k.leads("10.1.1.5") || k.transactions() != before {
		t.Error("the rules change when the proxy ends")
	}
}

// A proxy that starts without an API server, or before all lists, is alive for any time, is not ready, and keeps the
// rules of the earlier process.
func TestProxyWaitsForTheAPI(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: watches that fail are restarted after a while")
	}
	for name, away := range map[string]string{
		"away at the start":          "",
		"away for Services":          cluster.ResourceServices,
		"away for groups":            cluster.ResourceGroups,
		"away for the node":          cluster.ResourceNodes,
		"away for slices":            cluster.ResourceSlices,
		"gone between lists and now": cluster.ResourceGroups + ",",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, k := newServer(t), newFakeKernel()
			sources := server.api.Sources
			sources[cluster.ResourceNodes].Put(aNode("a"))
			sources[cluster.ResourceServices].Put(inHandOver("web", "10.96.0.1"))
			sources[cluster.ResourceGroups].Put(aGroup("web", "web-1", "10.1.1.1"))
			o := proxyOptions(server, k)
			o.AllServices = true
			_, _, stop := runProxy(t, o, clock.RealClock{})
			eventually(t, "the group is programmed", func() bool { return k.leads("10.1.1.1") })
			stop()
			before := k.transactions()

			sources[cluster.ResourceGroups].Put(aGroup("web", "web-1", "10.1.1.2"))
			resource, all := strings.CutSuffix(away, ",")
			server.away.Store(&resource)
			healthClock := clocktesting.NewFakePassiveClock(start)
			o.Registry = prometheus.NewPedanticRegistry()
			p, status, stop := runProxy(t, o, healthClock)
			for _, other := range []string{cluster.ResourceServices, cluster.ResourceNodes} {
				if away != "" && resource != other {
					eventually(t, other+" are known", func() bool { return p.catalogue.Count(other) == 1 })
				}
			}
			if all {
				server.goAway()
			}
			for range 3 {
				healthClock.SetTime(healthClock.Now().Add(health.Timeout))
				if got := status("/livez"); got != http.StatusOK {
					t.Errorf("/livez is %d at %s", got, healthClock.Now().Sub(start))
				}
				if got := status("/readyz"); got != http.StatusServiceUnavailable {
					t.Errorf("/readyz is %d", got)
				}
				// A change that comes meanwhile does not make the proxy unhealthy.
				sources[cluster.ResourceServices].Put(inHandOver("web", "10.96.0.1"))
			}
			if !k.leads("10.1.1.1") || k.transactions() != before {
				t.Error("the rules change before all is known")
			}

			server.away.Store(nil)
			eventually(t, "the group is programmed as it is now", func() bool { return k.leads("10.1.1.2") && !k.leads("10.1.1.1") })
			for _, path := range []string{"/readyz", "/healthz", "/livez"} {
				eventually(t, path+" is 200", func() bool { return status(path) == http.StatusOK })
			}

			// From then on it is alive as long as it programs, and ready, without the API.
			server.goAway()
			healthClock.SetTime(healthClock.Now().Add(10 * health.Timeout))
			for _, path := range []string{"/readyz", "/healthz", "/livez"} { // a change may have come just before the clock moved
				eventually(t, path+" is 200 while the API is away", func() bool { return status(path) == http.StatusOK })
			}
			stop()
		})
	}
}

// At the end, the clean-up includes the requests of the last sync, and skips obsolete ones.
func TestProxyCleansUpAfterItsLastSync(t *testing.T) {
	server, k := newServer(t), newFakeKernel()
	sources := server.api.Sources
	sources[cluster.ResourceNodes].Put(aNode("a"))
	sources[cluster.ResourceServices].Put(aService("web", "10.96.0.1"))
	sources[cluster.ResourceGroups].Put(aGroup("web", "web-1", "10.1.1.1", "10.1.1.2"))
	o := proxyOptions(server, k)
	tracker := o.Tracker.(*fakeTracker)
	_, _, stop := runProxy(t, o, clock.RealClock{})
	deleted := func(address string) int {
		tracker.mu.Lock()
		defer tracker.mu.Unlock()
		for one, n := range tracker.deleted {
			if one.Target.Addr() == netip.MustParseAddr(address) {
				return n
			}
		}
		return 0
	}
	eventually(t, "the group is programmed", func() bool { return k.leads("10.1.1.1") && k.leads("10.1.1.2") })
	sources[cluster.ResourceGroups].Put(aGroup("web", "web-1", "10.1.1.2"))
	eventually(t, "an endpoint is removed", func() bool { return !k.leads("10.1.1.1") })
	sources[cluster.ResourceGroups].Put(aGroup("web", "web-1", "10.1.1.1", "10.1.1.2"))
	eventually(t, "it is back", func() bool { return k.leads("10.1.1.1") })
	before := deleted("10.1.1.1") // if that took long

	k.mu.Lock()
	k.refuses = func(tr ruleset.Transaction) error {
		if touches(tr, "10.1.1.3") {
			go stop()
			// The connections from before there were endpoints wait, and would be deleted now.
			limit, looks := time.After(100*time.Millisecond), time.NewTicker(time.Millisecond)
			defer looks.Stop()
			for deleted("10.96.0.1") == 0 {
				select {
				case <-looks.C:
				case <-limit:
					return nil
				}
			}
		}
		return nil
	}
	k.mu.Unlock()
	sources[cluster.ResourceGroups].Put(aGroup("web", "web-1", "10.1.1.1", "10.1.1.3"))
	eventually(t, "the last change is programmed", func() bool { return k.leads("10.1.1.3") })
	stop()
	if deleted("10.1.1.2") == 0 {
		t.Error("connections to an endpoint removed in the last sync remain")
	}
	if deleted("10.1.1.1") > before {
		t.Error("connections to an endpoint that is back are deleted")
	}
}

// The address of the API server is known if it is configured by an address, not by a name.
func TestAddressOfTheAPIServer(t *testing.T) {
	for host, want := range map[string]string{
		"https://198.51.100.6:6443": "198.51.100.6\n", "198.51.100.6": "198.51.100.6\n", "https://[2001:db8::6]:443/path": "2001:db8::6\n",
		"https://api.example.com": "", "://": "",
	} {
		o := Options{API: &rest.Config{Host: host}, Log: logr.Discard()}
		if got := o.settings().APIServer.String(); got != want {
			t.Errorf("%s: %q, want %q", host, got, want)
		}
	}
}

// Every machine has the loopback address.
func TestInterfacesAreFollowed(t *testing.T) {
	reports := make(chan []netip.Addr, 100)
	background(t, func(ctx context.Context) {
		followInterfaces(ctx, logr.Discard(), func(all []netip.Addr) { reports <- all })
	})
	all := <-reports
	found := false
	for _, address := range all {
		found = found || address.IsLoopback()
	}
	if !found {
		t.Errorf("addresses %v", all)
	}
}

// The tests of package cluster use these too.
var (
	start                           = clustertest.Start
	aNode, aService, aGroup, notFor = clustertest.Node, clustertest.Service, clustertest.Group, clustertest.NotFor
	aRange, publishedNodes          = clustertest.Range, clustertest.PublishedNodes
	eventually, background          = clustertest.Eventually, clustertest.Background
)
