package vicinity

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	_ "github.com/coredns/coredns/plugin/ready"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// stumble is a plugin whose server does not start.
const stumble = "stumble"

func init() {
	plugin.Register(stumble, func(c *caddy.Controller) error {
		c.OnStartup(func() error { return errors.New("stumbled") })
		return nil
	})
}

// lister is an API server with nodes and an empty list of EndpointSlices, and without Vicinity's resources.
type lister struct {
	kubeconfig string // its file
	forbids    atomic.Bool
	watches    atomic.Int32 // under way
}

// newLister has this number of nodes.
func newLister(t *testing.T, nodes int) *lister {
	l := &lister{}
	items := map[string]string{}
	for i := range nodes {
		items["/api/v1/nodes"] += fmt.Sprintf(`,{"metadata":{"name":"node-%d"}}`, i)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind, found := map[string]string{
			"/api/v1/nodes": `"v1","kind":"NodeList"`, "/apis/discovery.k8s.io/v1/endpointslices": `"discovery.k8s.io/v1","kind":"EndpointSliceList"`,
		}[r.URL.Path]
		w.Header().Set("Content-Type", "application/json")
		switch {
		case l.forbids.Load():
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"Forbidden","code":403}`)
		case !found:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"NotFound","code":404}`)
		case r.URL.Query().Get("watch") != "":
			l.watches.Add(1)
			defer l.watches.Add(-1)
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		default:
			fmt.Fprintf(w, `{"apiVersion":%s,"metadata":{"resourceVersion":"1"},"items":[%s]}`, kind, strings.TrimPrefix(items[r.URL.Path], ","))
		}
	}))
	t.Cleanup(server.Close)
	l.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("{clusters: [{name: a, cluster: {server: %q}}], contexts: [{name: a, context: {cluster: a}}], current-context: a}", server.URL)
	if err := os.WriteFile(l.kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *lister) awaitWatches(t *testing.T, want int32) {
	t.Helper()
	for end := time.Now().Add(time.Minute); l.watches.Load() != want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d watches are under way, want %d", l.watches.Load(), want)
		}
	}
}

// A failed reload leaves the server ready, and with only its own watches.
func TestReload(t *testing.T) {
	before := dnsserver.Directives
	t.Cleanup(func() { dnsserver.Directives = before })
	dnsserver.Directives = []string{"ready", pluginName, stumble}
	caddy.Quiet, dnsserver.Quiet = true, true
	api := newLister(t, 0)
	ready := freeAddress(t)
	_, port, _ := net.SplitHostPort(freeAddress(t))
	corefile := func(lines ...string) caddy.Input {
		contents := ".:" + port + " {\n" + strings.Join(append(lines, "ready "+ready), "\n") + "\n}\n"
		return caddy.CaddyfileInput{Filepath: "Corefile", Contents: []byte(contents), ServerTypeName: "dns"}
	}
	line := "vicinity cluster.local {\nkubeconfig " + api.kubeconfig + "\nstartup_timeout 10ms\n}"
	awaitReady := func() {
		t.Helper()
		var got string
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			response, err := http.Get("http://" + ready + "/ready")
			if err != nil {
				got = err.Error()
				continue
			}
			_ = response.Body.Close()
			if got = response.Status; response.StatusCode == http.StatusOK {
				return
			}
		}
		t.Fatalf("it is not ready: %s", got)
	}
	instance, err := caddy.Start(corefile())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		instance.ShutdownCallbacks()
		if err := instance.Stop(); err != nil {
			t.Error(err)
		}
	})
	restart := func(problem string, lines ...string) {
		t.Helper()
		after, err := instance.Restart(corefile(lines...))
		if problem == "" && err != nil || problem != "" && (err == nil || !strings.Contains(err.Error(), problem)) {
			t.Fatalf("got %v, want %q", err, problem)
		}
		if (after == instance) != (problem != "") || !slices.Contains(caddy.Instances(), after) {
			t.Fatal("another server runs")
		}
		instance = after
		awaitReady()
	}
	api.forbids.Store(true)
	restart("the API server did not list all resources within 5s", line)
	api.forbids.Store(false)
	api.awaitWatches(t, 0)
	restart("stumbled", line, stumble) // without the plugin before, which the next start tidies up
	restart("", line)
	api.awaitWatches(t, 2)
	restart("stumbled", line, stumble)
	api.awaitWatches(t, 2)
	restart("", line)
	api.awaitWatches(t, 2)
	api.forbids.Store(true)
	restart("the API server did not list all resources within 5s", line)
	api.awaitWatches(t, 2)
	api.forbids.Store(false)
	restart("")
	api.awaitWatches(t, 0)
}

// The first start does not need the API server.
func TestFirstStart(t *testing.T) {
	before := dnsserver.Directives
	t.Cleanup(func() { dnsserver.Directives = before })
	dnsserver.Directives = []string{pluginName}
	caddy.Quiet, dnsserver.Quiet = true, true
	api := newLister(t, 0)
	api.forbids.Store(true)
	contents := "cluster.local:0 {\nvicinity {\nkubeconfig " + api.kubeconfig + "\nstartup_timeout 10ms\n}\n}\n"
	instance, err := caddy.Start(caddy.CaddyfileInput{Filepath: "Corefile", Contents: []byte(contents), ServerTypeName: "dns"})
	if err != nil {
		t.Fatal(err)
	}
	instance.ShutdownCallbacks()
	if err := instance.Stop(); err != nil {
		t.Error(err)
	}
}

// Blocks with one API server watch and hold its objects once. The metric counts all objects that the program holds.
func TestBlocksShareObjects(t *testing.T) {
	before := dnsserver.Directives
	t.Cleanup(func() { dnsserver.Directives = before })
	dnsserver.Directives = []string{pluginName}
	caddy.Quiet, dnsserver.Quiet = true, true
	one, other := newLister(t, 1), newLister(t, 2)
	var corefile strings.Builder
	for i, api := range []*lister{one, other, one} {
		fmt.Fprintf(&corefile, "cluster-%d.local:0 {\nvicinity {\nkubeconfig %s\nstartup_timeout 1m\n}\n}\n", i, api.kubeconfig)
	}
	instance, err := caddy.Start(caddy.CaddyfileInput{Filepath: "Corefile", Contents: []byte(corefile.String()), ServerTypeName: "dns"})
	if err != nil {
		t.Fatal(err)
	}
	one.awaitWatches(t, 2)
	other.awaitWatches(t, 2)
	nodes := objectCount.WithLabelValues(resourceNodes)
	if got := testutil.ToFloat64(nodes); got != 3 {
		t.Errorf("the metric counts %v nodes, want 3", got)
	}
	instance.ShutdownCallbacks()
	if err := instance.Stop(); err != nil {
		t.Error(err)
	}
	one.awaitWatches(t, 0)
	if got := testutil.ToFloat64(nodes); got != 0 {
		t.Errorf("the metric counts %v nodes after the end, want 0", got)
	}
}

// freeAddress is one of this machine that nothing listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
