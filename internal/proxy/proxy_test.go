package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
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

// leads reports whether the kernel leads connections to an endpoint.
func (k *fakeKernel) leads(endpoint string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	table := k.tables[ruleset.IPv4]
	if table == nil || table.sets["slots"] == nil {
		return false
	}
	for _, e := range table.sets["slots"].elements {
		if touches(ruleset.Transaction{Changes: []ruleset.Change{{Elements: []ruleset.Element{{Data: e.Data}}}}}, endpoint) {
			return true
		}
	}
	return false
}

// A proxy programs what an API server says, acknowledges it, goes on when the server is
// away, and leaves the rules when it ends.
func TestProxy(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: watches that fail are begun anew after a while")
	}
	server := &fakeServer{t: t, api: clustertest.NewAPI()}
	web := httptest.NewServer(server)
	t.Cleanup(web.Close)
	sources := server.api.Sources
	sources[cluster.ResourceNodes].Put(aNode("a"))
	sources[cluster.ResourceServices].Put(inHandOver("web", "10.96.0.1"))
	sources[cluster.ResourceGroups].Put(handedOver(aGroup("web", "web-1", "10.1.1.1")))

	k := newFakeKernel()
	registry := prometheus.NewPedanticRegistry()
	loaded := make(chan bool, 2)
	p, err := New(Options{
		NodeName: "node-a", API: &rest.Config{Host: web.URL, QPS: 1000, Burst: 1000}, Settings: view.Settings{MasqueradeMark: ruleset.DefaultMasqueradeMark},
		MinSyncPeriod: time.Millisecond, SyncPeriod: time.Hour, LeaseNamespace: "system", Kernel: k,
		Tracker: &fakeTracker{deleted: map[ruleset.Stale]int{}}, Registry: registry, Log: logr.Discard(),
		Programmed: func() { loaded <- k.leads("10.1.1.1") },
	})
	if err != nil {
		t.Fatal(err)
	}
	status := func(path string) int {
		recorder := httptest.NewRecorder()
		p.Health().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
		return recorder.Code
	}
	if got := status("/readyz"); got != http.StatusServiceUnavailable {
		t.Errorf("/readyz is %d before it runs", got)
	}
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()

	eventually(t, "the group is programmed", func() bool { return k.leads("10.1.1.1") })
	eventually(t, "it is acknowledged", func() bool { return versionNumber(server.programmed()) == 1 }) // the first write of a group
	for _, path := range []string{"/readyz", "/healthz", "/livez"} {
		if got := status(path); got != http.StatusOK {
			t.Errorf("%s is %d", path, got)
		}
	}
	sources[cluster.ResourceGroups].Put(handedOver(aGroup("web", "web-1", "10.1.1.2")))
	eventually(t, "a change is programmed", func() bool { return k.leads("10.1.1.2") && !k.leads("10.1.1.1") })
	eventually(t, "it is acknowledged", func() bool { return versionNumber(server.programmed()) == 2 })

	// A hard Service that nobody reaches has an event.
	sources[cluster.ResourceServices].Put(aService("web", "10.96.0.1"))
	hard := aGroup("web", "web-1", "10.1.1.3")
	hard.Spec.Tiers, hard.Spec.Endpoints[0].Zone = []string{topology.Zone}, "b"
	sources[cluster.ResourceGroups].Put(hard)
	eventually(t, "it is told that nobody reaches the Service", func() bool {
		server.mu.Lock()
		defer server.mu.Unlock()
		return len(server.events) == 1 && server.events[0].Reason == "TopologyUnreachable" && server.events[0].Regarding.Name == "web"
	})
	sources[cluster.ResourceGroups].Put(aGroup("web", "web-1", "10.1.1.4"))
	eventually(t, "it is reached again", func() bool { return k.leads("10.1.1.4") })

	// The API server goes away with all its watches.
	server.away.Store(true)
	web.CloseClientConnections()
	sources[cluster.ResourceGroups].Put(aGroup("web", "web-1", "10.1.1.5"))
	k.do(func(table *fakeTable) { clear(table.sets["slots"].elements) })
	eventually(t, "rules are repaired without the API", func() bool { return k.leads("10.1.1.4") })
	server.away.Store(false)
	eventually(t, "what has changed meanwhile is programmed", func() bool { return k.leads("10.1.1.5") })

	text, err := testutil.GatherAndCount(registry, "vicinity_proxy_services", "vicinity_proxy_objects")
	if err != nil || text < 5 {
		t.Errorf("%d metrics: %v", text, err)
	}
	if !<-loaded || len(loaded) != 0 {
		t.Error("that all is programmed was not said, or too early, or twice")
	}
	before := k.transactions()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if !k.leads("10.1.1.5") || k.transactions() != before {
		t.Error("the rules are others when the proxy has ended")
	}
}

// Somebody else's failure is a sentence.
func TestProxyThatCannotBeMade(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	options := Options{NodeName: "node-a", API: &rest.Config{Host: "https://127.0.0.1:1"}, Kernel: newFakeKernel(), Registry: registry, Log: logr.Discard()}
	if _, err := New(options); err != nil {
		t.Fatal(err)
	}
	if _, err := New(options); err == nil || !strings.Contains(err.Error(), "registering metrics") {
		t.Errorf("twice: %v", err)
	}
	options.Registry = prometheus.NewPedanticRegistry()
	options.API = &rest.Config{Host: "https://127.0.0.1:1", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("nonsense")}}
	if _, err := New(options); err == nil || !strings.Contains(err.Error(), "making a client") {
		t.Errorf("with a wrong authority: %v", err)
	}
}

func TestServe(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "here") })
	failed := make(chan error, 10)
	free := httptest.NewServer(handler)
	address := strings.TrimPrefix(free.URL, "http://")
	free.Close()
	if err := Serve(ctx, address, handler, func(err error) { failed <- err }); err != nil {
		t.Fatal(err)
	}
	response, err := http.Get("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := Serve(ctx, address, handler, func(err error) { failed <- err }); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("at an address that is taken: %v", err)
	}
	// Connections that are only held make room for others.
	const many = 50
	closed := make(chan error, mostConnections+many)
	for range mostConnections + many {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil { // less than one may be idle
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: node\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := io.Copy(io.Discard, conn)
			closed <- err
		}()
	}
	for range many {
		if err := <-closed; errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("fewer than %d connections made room", many)
		}
	}
	stop()
	eventually(t, "nobody answers", func() bool {
		response, err := http.Get("http://" + address)
		if err == nil {
			_ = response.Body.Close()
		}
		return err != nil
	})
	if len(failed) > 0 {
		t.Error(<-failed)
	}
}

// aProxy runs a proxy of an API server in front of a kernel, with its health in a time of its
// own, and returns what its paths answer.
func aProxy(t *testing.T, url string, k *fakeKernel, allServices bool, healthClock clock.PassiveClock) (p *Proxy, status func(path string) int, stop func()) {
	t.Helper()
	p, err := newProxy(Options{
		NodeName: "node-a", API: &rest.Config{Host: url, QPS: 1000, Burst: 1000}, Settings: view.Settings{MasqueradeMark: ruleset.DefaultMasqueradeMark, AllServices: allServices},
		MinSyncPeriod: time.Millisecond, SyncPeriod: time.Hour, LeaseNamespace: "system", Kernel: k,
		Tracker: &fakeTracker{deleted: map[ruleset.Stale]int{}}, Registry: prometheus.NewPedanticRegistry(), Log: logr.Discard(),
	}, healthClock)
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

// A proxy that starts while the API server is away, or before it has all lists of it, is
// alive however long that takes, is not ready, and leaves the rules of the proxy before it.
func TestProxyThatWaitsForTheAPI(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: watches that fail are begun anew after a while")
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
			server := &fakeServer{t: t, api: clustertest.NewAPI()}
			web := httptest.NewServer(server)
			t.Cleanup(web.Close)
			sources := server.api.Sources
			sources[cluster.ResourceNodes].Put(aNode("a"))
			sources[cluster.ResourceServices].Put(inHandOver("web", "10.96.0.1"))
			sources[cluster.ResourceGroups].Put(aGroup("web", "web-1", "10.1.1.1"))
			k := newFakeKernel()
			_, _, stop := aProxy(t, web.URL, k, true, clock.RealClock{})
			eventually(t, "the group is programmed", func() bool { return k.leads("10.1.1.1") })
			stop()
			before := k.transactions()

			sources[cluster.ResourceGroups].Put(aGroup("web", "web-1", "10.1.1.2"))
			resource, all := strings.CutSuffix(away, ",")
			if away == "" {
				server.away.Store(true)
			} else {
				server.awayFor.Store(&resource)
			}
			healthClock := clocktesting.NewFakePassiveClock(start)
			p, status, stop := aProxy(t, web.URL, k, true, healthClock)
			for _, other := range []string{cluster.ResourceServices, cluster.ResourceSlices, cluster.ResourceNodes} {
				if away != "" && resource != other && other != cluster.ResourceSlices {
					eventually(t, other+" are known", func() bool { return p.catalogue.Count(other) == 1 })
				}
			}
			if all {
				server.away.Store(true)
				web.CloseClientConnections()
			}
			for range 3 {
				healthClock.SetTime(healthClock.Now().Add(health.Timeout))
				if got := status("/livez"); got != http.StatusOK {
					t.Errorf("/livez is %d at %s", got, healthClock.Now().Sub(start))
				}
				if got := status("/readyz"); got != http.StatusServiceUnavailable {
					t.Errorf("/readyz is %d", got)
				}
				// What comes meanwhile is no work that waits.
				sources[cluster.ResourceServices].Put(inHandOver("web", "10.96.0.1"))
			}
			if !k.leads("10.1.1.1") || k.transactions() != before {
				t.Error("the rules are others before all is known")
			}

			server.awayFor.Store(nil)
			server.away.Store(false)
			eventually(t, "the group is programmed as it is now", func() bool { return k.leads("10.1.1.2") && !k.leads("10.1.1.1") })
			for _, path := range []string{"/readyz", "/healthz", "/livez"} {
				eventually(t, path+" is 200", func() bool { return status(path) == http.StatusOK })
			}

			// From then on it is alive as long as it programs, and ready, without the API.
			server.away.Store(true)
			web.CloseClientConnections()
			healthClock.SetTime(healthClock.Now().Add(10 * health.Timeout))
			for _, path := range []string{"/readyz", "/healthz", "/livez"} {
				if got := status(path); got != http.StatusOK {
					t.Errorf("%s is %d while the API is away", path, got)
				}
			}
			stop()
		})
	}
}

// What the last sync asks for is cleaned up too, and what no longer holds is not.
func TestProxyCleansUpAfterItsLastSync(t *testing.T) {
	server := &fakeServer{t: t, api: clustertest.NewAPI()}
	web := httptest.NewServer(server)
	t.Cleanup(web.Close)
	sources := server.api.Sources
	sources[cluster.ResourceNodes].Put(aNode("a"))
	sources[cluster.ResourceServices].Put(aService("web", "10.96.0.1"))
	sources[cluster.ResourceGroups].Put(aGroup("web", "web-1", "10.1.1.1", "10.1.1.2"))
	k := newFakeKernel()
	p, _, stop := aProxy(t, web.URL, k, false, clock.RealClock{})
	tracker := p.options.Tracker.(*fakeTracker)
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
	eventually(t, "an endpoint is gone", func() bool { return !k.leads("10.1.1.1") })
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
		t.Error("connections to an endpoint that went in the last sync are left")
	}
	if deleted("10.1.1.1") > before {
		t.Error("connections to an endpoint that is back are deleted")
	}
}
