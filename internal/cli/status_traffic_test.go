package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	kubetesting "k8s.io/client-go/testing"

	"vicinity.dev/vicinity/internal/command"
	"vicinity.dev/vicinity/internal/inspect"
)

// answer is what a proxy says to those who ask it.
type answer struct {
	text string
	err  error
}

// DoRaw is the answer.
func (a answer) DoRaw(context.Context) ([]byte, error) { return []byte(a.text), a.err }

// Stream is the answer too.
func (a answer) Stream(context.Context) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(a.text)), a.err
}

// sample is what a test has a proxy count.
type sample struct {
	namespace, service, from, to string
	connections, request, reply  int64
}

// metricsText is what vicinity-proxy serves. There are bytes if there are any.
func metricsText(bytesEnabled bool, samples ...sample) string {
	var text strings.Builder
	text.WriteString("# TYPE vicinity_proxy_accounting_enabled gauge\n")
	enabled := 0
	if bytesEnabled {
		enabled = 1
	}
	fmt.Fprintf(&text, "vicinity_proxy_accounting_enabled{what=\"bytes\"} %d\nvicinity_proxy_accounting_enabled{what=\"ends\"} 1\n", enabled)
	text.WriteString("# TYPE vicinity_proxy_connections_total counter\n")
	labels := func(s sample) string {
		return fmt.Sprintf("destination_zone=%q,namespace=%q,service=%q,source_zone=%q", s.to, s.namespace, s.service, s.from)
	}
	for _, s := range samples {
		fmt.Fprintf(&text, "vicinity_proxy_connections_total{%s} %d\n", labels(s), s.connections)
	}
	text.WriteString("# TYPE vicinity_proxy_bytes_total counter\n")
	for _, s := range samples {
		if s.request+s.reply > 0 {
			fmt.Fprintf(&text, "vicinity_proxy_bytes_total{%s,direction=\"request\"} %d\n", labels(s), s.request)
			fmt.Fprintf(&text, "vicinity_proxy_bytes_total{%s,direction=\"reply\"} %d\n", labels(s), s.reply)
		}
	}
	text.WriteString("# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total 1.5\n")
	return text.String()
}

// aProxy is the DaemonSet of vicinity-proxy.
func aProxy() *appsv1.DaemonSet {
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "vicinity-system", Name: "vicinity-proxy",
			Labels: map[string]string{"app.kubernetes.io/part-of": "vicinity", "app.kubernetes.io/component": "proxy"},
		},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "proxy"}}},
	}
}

// aProxyPod is the pod of vicinity-proxy on a node.
func aProxyPod(node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "vicinity-system", Name: "proxy-" + node, Labels: map[string]string{"app": "proxy"}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "proxy", Ports: []corev1.ContainerPort{
			{Name: "health", ContainerPort: 10266}, {Name: "metrics", ContainerPort: 10269},
		}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// countingCluster is a cluster whose proxies say what the test has them say, one after
// the other. One that has said all says the last again.
func countingCluster(t *testing.T, answers map[string][]answer) *fakeCluster {
	t.Helper()
	c := newFakeCluster(t)
	if err := c.typed.Tracker().Add(aProxy()); err != nil {
		t.Fatal(err)
	}
	for node := range answers {
		if err := c.typed.Tracker().Add(aProxyPod(node)); err != nil {
			t.Fatal(err)
		}
	}
	// What is not a proxy, and one that does not run, is not asked.
	other, starting := aProxyPod("other"), aProxyPod("starting")
	other.Labels["app"], starting.Status.Phase = "other", corev1.PodPending
	for _, pod := range []*corev1.Pod{other, starting} {
		if err := c.typed.Tracker().Add(pod); err != nil {
			t.Fatal(err)
		}
	}
	c.typed.AddProxyReactor("pods", func(action kubetesting.Action) (bool, rest.ResponseWrapper, error) {
		get := action.(kubetesting.ProxyGetAction)
		node := strings.TrimPrefix(get.GetName(), "proxy-")
		next, asked := answers[node]
		if !asked || get.GetNamespace() != "vicinity-system" || get.GetScheme() != "http" || get.GetPort() != "10269" || get.GetPath() != "/metrics" {
			t.Errorf("asked for %s://%s:%s%s in %s", get.GetScheme(), get.GetName(), get.GetPort(), get.GetPath(), get.GetNamespace())
			return true, answer{err: errors.New("unexpected")}, nil
		}
		if len(next) > 1 {
			answers[node] = next[1:]
		}
		return true, next[0], nil
	})
	return c
}

// counting are answers of three proxies.
func counting() map[string][]answer {
	return map[string][]answer{
		"node-a1": {{text: metricsText(true,
			sample{"shop", "web", "zone-a", "zone-a", 900, 9_000_000, 90_000_000},
			sample{"shop", "web", "zone-a", "zone-b", 100, 1_000_000, 10_000_000},
			sample{"ops", "both", "zone-a", "zone-a", 5, 500, 600},
			sample{"", "other", "zone-a", "zone-c", 7, 70, 80},
		)}},
		"node-a2": {{text: metricsText(true,
			sample{"shop", "web", "zone-a", "zone-a", 100, 1_000_000, 10_000_000},
			sample{"shop", "near", "zone-a", "", 3, 30, 40},
		)}},
		"node-b1": {{text: metricsText(true,
			sample{"shop", "web", "zone-b", "zone-a", 50, 5_000_000, 50_000_000},
			sample{"ops", "both", "zone-b", "zone-a", 5, 50_000_000, 600},
			sample{"ops", "idle", "zone-b", "zone-a", 0, 0, 0},
		)}},
	}
}

func TestTrafficGolden(t *testing.T) {
	const together = "not known: proxies count Services beyond a limit together, so some of namespace %q may be missing\n"
	for _, test := range []struct {
		name   string
		args   []string
		stderr string
	}{
		{"traffic.txt", nil, ""},
		{"traffic-wide.txt", []string{"-o", "wide"}, ""},
		{"traffic-shop.txt", []string{"-n", "shop"}, fmt.Sprintf(together, "shop")},
		{"traffic.json", []string{"-o", "json"}, ""},
		{"traffic.yaml", []string{"-n", "ops", "-o", "yaml"}, fmt.Sprintf(together, "ops")},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, stdout, stderr := countingCluster(t, counting()).run(t.Context(), append([]string{"status", "--traffic"}, test.args...)...)
			if code != 0 || stderr != test.stderr {
				t.Fatalf("exit code %d: %s", code, stderr)
			}
			compareGolden(t, "status", test.name, stdout)
		})
	}
}

// Between two readings a minute passes, of which one proxy uses some to start again,
// and counts from zero.
func TestTrafficIsMeasured(t *testing.T) {
	answers := func() map[string][]answer {
		answers := counting()
		answers["node-a1"] = append(answers["node-a1"], answer{text: metricsText(true,
			sample{"shop", "web", "zone-a", "zone-a", 900 + 540, 9_000_000 + 60*1_000_000, 90_000_000},
			sample{"shop", "web", "zone-a", "zone-b", 100 + 60, 1_000_000, 10_000_000 + 60*2_000_000},
			sample{"ops", "both", "zone-a", "zone-a", 5, 500, 600},
		)})
		answers["node-a2"] = append(answers["node-a2"], answer{text: metricsText(true,
			sample{"shop", "web", "zone-a", "zone-a", 60, 600, 0},
			sample{"shop", "new", "zone-a", "zone-b", 6, 600, 600},
		)})
		return answers
	}
	for _, test := range []struct {
		name string
		args []string
	}{
		{"measured.txt", []string{"--for", "1m", "--cost-per-gib", "0.02"}},
		{"measured-wide.txt", []string{"--cost-per-gib", "0.02", "-o", "wide"}},
		{"measured.json", []string{"--for", "1m", "--cost-per-gib", "0.02", "-o", "json"}},
		{"measured-for-nothing.txt", []string{"--for", "1m"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				code, stdout, stderr := countingCluster(t, answers()).run(t.Context(), append([]string{"status", "--traffic"}, test.args...)...)
				if code != 0 || stderr != "measuring for 1m0s\n" {
					t.Fatalf("exit code %d: %s", code, stderr)
				}
				compareGolden(t, "status", test.name, stdout)
			})
		})
	}
}

func TestTrafficDoesWithout(t *testing.T) {
	for _, test := range []struct {
		name       string
		answers    func(map[string][]answer)
		args       []string
		want       string // of standard error
		dropped    []string
		contained  []string
		noServices bool
	}{
		{
			name: "a proxy that does not answer",
			answers: func(a map[string][]answer) {
				a["node-b1"] = []answer{{err: errors.New("dial tcp: connection refused")}}
			},
			want:    "not known: vicinity-proxy does not answer on node node-b1 (dial tcp: connection refused), so the traffic from there is missing\n",
			dropped: []string{"zone-b  zone-a"},
		},
		{
			name: "many that do not",
			answers: func(a map[string][]answer) {
				for _, node := range []string{"node-5", "node-4", "node-3", "node-2"} {
					a[node] = []answer{{err: errors.New("timeout")}}
				}
			},
			want: "not known: vicinity-proxy does not answer on nodes node-2, node-3, node-4 and 1 more (timeout), so the traffic from there is missing\n",
		},
		{
			name:    "one that does not count",
			answers: func(a map[string][]answer) { a["node-b1"] = []answer{{text: "process_cpu_seconds_total 1.5\n"}} },
			want:    "not known: vicinity-proxy does not answer on node node-b1 (its metrics make no sense: they lack vicinity_proxy_accounting_enabled: the proxy does not count), so the traffic from there is missing\n",
		},
		{
			name:    "one that says something else",
			answers: func(a map[string][]answer) { a["node-b1"] = []answer{{text: "<html>\n"}} },
			want:    "not known: vicinity-proxy does not answer on node node-b1 (its metrics make no sense: ",
		},
		{
			name: "bytes",
			answers: func(a map[string][]answer) {
				clear(a)
				a["node-a1"] = []answer{{text: metricsText(false, sample{"shop", "web", "zone-a", "zone-b", 4, 0, 0})}}
			},
			want:      "not known: bytes are not counted on node node-a1 (sysctl net.netfilter.nf_conntrack_acct is 0, see docs/reference/traffic.md)\n",
			contained: []string{"shop       web      zone-a  zone-b            4         -        -"},
		},
		{
			name:       "traffic",
			answers:    func(a map[string][]answer) { delete(a, "node-a1") },
			args:       []string{"-n", "attic"},
			want:       "no traffic of Services in namespace \"attic\" was counted\n",
			noServices: true,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			answers := counting()
			test.answers(answers)
			code, stdout, stderr := countingCluster(t, answers).run(t.Context(), append([]string{"status", "--traffic", "-o", "wide"}, test.args...)...)
			if code != 0 || !strings.HasPrefix(stderr, test.want) {
				t.Errorf("exit code %d, standard error\n%swant\n%s", code, stderr, test.want)
			}
			for _, text := range test.dropped {
				if strings.Contains(stdout, text) {
					t.Errorf("%q is in\n%s", text, stdout)
				}
			}
			for _, text := range test.contained {
				if !strings.Contains(stdout, text) {
					t.Errorf("%q is not in\n%s", text, stdout)
				}
			}
			if (stdout == "") != test.noServices {
				t.Errorf("standard output is\n%s", stdout)
			}
		})
	}
}

// A proxy of which there is only one reading cannot be measured.
func TestProxiesThatAnswerOnce(t *testing.T) {
	gone := errors.New("connection refused")
	synctest.Test(t, func(t *testing.T) {
		answers := counting()
		answers["node-a1"] = append(answers["node-a1"], answer{err: gone})
		answers["node-b1"] = append([]answer{{err: gone}}, answers["node-b1"]...)
		code, _, stderr := countingCluster(t, answers).run(t.Context(), "status", "--traffic", "--for", "1m")
		want := "measuring for 1m0s\n" +
			"not known: vicinity-proxy does not answer on node node-b1 (connection refused), so the traffic from there is missing\n" +
			"not known: vicinity-proxy does not answer on node node-a1 (connection refused), so the traffic from there is missing\n" +
			"not known: vicinity-proxy has answered only once on nodes node-a1, node-b1, so the traffic from there is missing\n" +
			"no traffic of Services in the cluster was counted\n"
		if code != 0 || stderr != want {
			t.Errorf("exit code %d, standard error\n%swant\n%s", code, stderr, want)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		answers := map[string][]answer{"node-a1": {{text: metricsText(true)}, {err: gone}}}
		code, _, stderr := countingCluster(t, answers).run(t.Context(), "status", "--traffic", "--for", "1m")
		if code != 1 || !strings.HasSuffix(stderr, "no vicinity-proxy answers; the one on node node-a1: connection refused\n") {
			t.Errorf("exit code %d: %s", code, stderr)
		}
	})
}

func TestTrafficFails(t *testing.T) {
	noProxy := forbidden("apps", "daemonsets")
	for _, test := range []struct {
		name   string
		change func(*fakeCluster) error
		answer answer
		args   []string
		code   int
		want   string
	}{
		{"an unknown format", nil, answer{}, []string{"-o", "xml"}, 2, `--output "xml" is unknown; it must be table, wide, json or yaml (see "vicinity status --help")`},
		{"a negative time", nil, answer{}, []string{"--for", "-1s"}, 2, `--for -1s is not allowed; it must not be negative (see "vicinity status --help")`},
		{"a negative price", nil, answer{}, []string{"--cost-per-gib", "-1"}, 2, `--cost-per-gib -1 is not allowed; it must be a price that is not negative (see "vicinity status --help")`},
		{"no price", nil, answer{}, []string{"--cost-per-gib", "nan"}, 2, `--cost-per-gib NaN is not allowed; it must be a price that is not negative (see "vicinity status --help")`},
		{"without traffic", nil, answer{}, []string{"--traffic=false", "--for", "1s"}, 2, `--for and --cost-per-gib are about traffic; give --traffic too (see "vicinity status --help")`},
		{
			"no proxy",
			func(c *fakeCluster) error {
				return c.typed.Tracker().Delete(appsv1.SchemeGroupVersion.WithResource("daemonsets"), "vicinity-system", "vicinity-proxy")
			},
			answer{},
			nil, 1, "vicinity-proxy is not installed, and it is what counts traffic",
		},
		{
			"no pod",
			func(c *fakeCluster) error {
				return c.typed.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "vicinity-system", "proxy-node-a1")
			},
			answer{},
			nil, 1, `no pod of DaemonSet vicinity-system/vicinity-proxy runs and has a port "metrics", so none can be asked`,
		},
		{
			"DaemonSets that may not be read",
			func(c *fakeCluster) error { c.refuse("daemonsets", noProxy); return nil },
			answer{},
			nil, 1,
			`looking for vicinity-proxy: it is not allowed: User "jane" cannot list resource "daemonsets" in API group "apps" at the cluster scope; see docs/reference/permissions.md`,
		},
		{
			"pods that may not be read",
			func(c *fakeCluster) error { c.refuse("pods", forbidden("", "pods")); return nil },
			answer{},
			nil, 1,
			`reading the pods of vicinity-proxy: it is not allowed: User "jane" cannot list resource "pods" in API group "" at the cluster scope; see docs/reference/permissions.md`,
		},
		{
			"pods that may not be asked", nil,
			answer{err: apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "http:proxy-node-a1:10269", errors.New(`User "jane" cannot get resource "pods/proxy"`))},
			nil, 1,
			`asking vicinity-proxy for its metrics: it is not allowed: User "jane" cannot get resource "pods/proxy"; see docs/reference/permissions.md`,
		},
		{
			"silence", nil,
			answer{err: errors.New("connection refused")},
			nil, 1,
			"no vicinity-proxy answers; the one on node node-a1: connection refused",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := countingCluster(t, map[string][]answer{"node-a1": {test.answer}})
			if test.change != nil {
				if err := test.change(c); err != nil {
					t.Fatal(err)
				}
			}
			code, stdout, stderr := c.run(t.Context(), append([]string{"status", "--traffic"}, test.args...)...)
			if code != test.code || stderr != "vicinity: "+test.want+"\n" || stdout != "" {
				t.Errorf("exit code %d, standard error\n%swant %d\nvicinity: %s", code, stderr, test.code, test.want)
			}
		})
	}
}

// Who measures can be interrupted.
func TestMeasuringIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		code, stdout, stderr := countingCluster(t, counting()).run(ctx, "status", "--traffic", "--for", "1h")
		if code != command.ExitInterrupted || stdout != "" || stderr != "measuring for 1h0m0s\nvicinity: interrupted\n" {
			t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
		}
	})
}

// The way is that of the API server's proxy to pods, as a user is allowed to go it.
func TestTrafficOverHTTP(t *testing.T) {
	noCluster(t)
	var asked []string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RequestURI())
		write := func(list any) {
			w.Header().Set("Content-Type", "application/json")
			if err := json.NewEncoder(w).Encode(list); err != nil {
				t.Error(err)
			}
		}
		switch r.URL.Path {
		case "/apis/apps/v1/daemonsets":
			write(appsv1.DaemonSetList{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSetList"}, Items: []appsv1.DaemonSet{*aProxy()}})
		case "/api/v1/namespaces/vicinity-system/pods":
			write(corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{*aProxyPod("node-a1")}})
		case "/api/v1/namespaces/vicinity-system/pods/http:proxy-node-a1:10269/proxy/metrics":
			w.Header().Set("Content-Type", "text/plain; version=0.0.4")
			fmt.Fprint(w, metricsText(true, sample{"shop", "web", "zone-a", "zone-b", 3, 1000, 2000}))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	var stdout, stderr bytes.Buffer
	code := Main(t.Context(), []string{"status", "--traffic", "--kubeconfig", kubeconfigFile(t, server.URL, "here"), "-A"}, strings.NewReader(""), &stdout, &stderr)
	want := "namespace  service  connections  in-zone %   bytes  in-zone %  crossing\n" +
		"shop       web                3        0.0  3.0 kB        0.0    3.0 kB\n" +
		"-          (total)            3        0.0  3.0 kB        0.0    3.0 kB\n"
	if code != 0 || stdout.String() != want {
		t.Errorf("exit code %d\n%s%s\nwant\n%s", code, stderr.String(), stdout.String(), want)
	}
	wanted := []string{
		"/apis/apps/v1/daemonsets?labelSelector=app.kubernetes.io%2Fpart-of%3Dvicinity%2Capp.kubernetes.io%2Fcomponent%3Dproxy&limit=500",
		"/api/v1/namespaces/vicinity-system/pods?labelSelector=app%3Dproxy&limit=500",
		"/api/v1/namespaces/vicinity-system/pods/http:proxy-node-a1:10269/proxy/metrics?timeout=30s",
	}
	if !slices.Equal(asked, wanted) {
		t.Errorf("asked for %q, want %q", asked, wanted)
	}
}

// A pod that answers without an end does not fill the memory.
func TestMetricsAreBounded(t *testing.T) {
	if _, err := readMetrics(strings.NewReader(strings.Repeat("#", 1000))); err != nil {
		t.Error(err)
	}
	if _, err := readMetrics(endless{}); err == nil || !strings.Contains(err.Error(), "more than 64 MiB") {
		t.Errorf("got %v", err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// What proxies say is added up, and nothing is lost between the tables.
func TestTrafficAddsUp(t *testing.T) {
	var readings []inspect.ProxyReading
	var want inspect.TrafficCount
	for node, answers := range counting() {
		r := inspect.ProxyReading{Node: node}
		if err := readCounts(&r, []byte(answers[0].text)); err != nil {
			t.Fatal(err)
		}
		readings = append(readings, r)
		for count := range maps.Values(r.Counts) {
			want = want.Plus(count)
		}
	}
	traffic := inspect.TrafficOf(readings, "", 0, 0)
	var byService, byRoute inspect.TrafficCount
	add := func(sum *inspect.TrafficCount, routes []inspect.Route) {
		for _, r := range routes {
			*sum = sum.Plus(inspect.TrafficCount{Connections: r.Connections, Request: r.RequestBytes, Reply: r.ReplyBytes})
		}
	}
	for _, s := range traffic.Services {
		add(&byService, s.Routes)
	}
	add(&byRoute, traffic.Total.Routes)
	if byService != want || byRoute != want || traffic.Total.Connections != want.Connections || traffic.Total.Bytes != want.Request+want.Reply {
		t.Errorf("by Services %+v, by zones %+v, in all %+v, want %+v", byService, byRoute, traffic.Total, want)
	}
	// 3 connections to near are of unknown zones; the share is of the others.
	const crossing = 100 + 7 + 50 + 5
	if share := 100 * (1 - crossing/(want.Connections-3)); math.Abs(*traffic.Total.InZoneConnections-share) > 1e-9 {
		t.Errorf("%v %% of the connections stay in their zone, want %v %%", *traffic.Total.InZoneConnections, share)
	}
}
