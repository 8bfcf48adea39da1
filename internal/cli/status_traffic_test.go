package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
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

	"vicinity.dev/vicinity/test/golden"
)

// answer is a proxy's response.
type answer struct {
	text string
	err  error
}

// DoRaw returns the response.
func (a answer) DoRaw(context.Context) ([]byte, error) { return []byte(a.text), a.err }

// Stream returns the response.
func (a answer) Stream(context.Context) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(a.text)), a.err
}

// sample is a counter of a proxy.
type sample struct {
	namespace, service, from, to string
	connections, request, reply  int64
}

// metricsText returns the metrics of a vicinity-proxy, with bytes if there are any.
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

// countingCluster is a cluster whose proxies answer with the given responses in order. The last one is
// repeated.
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
	// Pods that are no proxies or do not run are not asked.
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

// counting has the responses of three proxies.
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
	} {
		t.Run(test.name, func(t *testing.T) {
			code, stdout, stderr := countingCluster(t, counting()).run(t.Context(), append([]string{"status", "--traffic"}, test.args...)...)
			if code != 0 || stderr != test.stderr {
				t.Fatalf("exit code %d: %s", code, stderr)
			}
			golden.Compare(t, "testdata/status/"+test.name, stdout)
		})
	}
}

// A minute passes between two readings. One proxy restarts in it, and counts from zero.
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
		{"measured.txt", []string{"--interval", "1m", "--cost-per-gib", "0.02"}},
		{"measured-wide.txt", []string{"--cost-per-gib", "0.02", "-o", "wide"}},
		{"measured.json", []string{"--interval", "1m", "--cost-per-gib", "0.02", "-o", "json"}},
		{"measured-for-nothing.txt", []string{"--interval", "1m"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				code, stdout, stderr := countingCluster(t, answers()).run(t.Context(), append([]string{"status", "--traffic"}, test.args...)...)
				if code != 0 || stderr != "Counting traffic for 1m0s; Ctrl-C prints what there is.\n" {
					t.Fatalf("exit code %d: %s", code, stderr)
				}
				golden.Compare(t, "testdata/status/"+test.name, stdout)
			})
		})
	}
}

// An interrupt ends the measurement. The result is of the time until then.
func TestTrafficUntilInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithTimeout(t.Context(), 12*time.Second)
		defer interrupt()
		cluster := countingCluster(t, map[string][]answer{"node-a1": {
			{text: metricsText(true, sample{"shop", "web", "zone-a", "zone-b", 100, 0, 0})},
			{text: metricsText(true, sample{"shop", "web", "zone-a", "zone-b", 100 + 24, 0, 0})},
		}})
		code, stdout, stderr := cluster.run(ctx, "status", "--traffic", "--interval", "1m", "-o", "json")
		if code != 0 || !strings.HasSuffix(stderr, "\nCounted for 12s.\n") {
			t.Errorf("exit code %d: %s", code, stderr)
		}
		for _, want := range []string{`"seconds": 12`, `"connections": 2,`} {
			if !strings.Contains(stdout, want) {
				t.Errorf("%s is not in\n%s", want, stdout)
			}
		}
	})
}

func TestTrafficIsIncomplete(t *testing.T) {
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
			name:    "one that does not count",
			answers: func(a map[string][]answer) { a["node-b1"] = []answer{{text: "process_cpu_seconds_total 1.5\n"}} },
			want:    "not known: vicinity-proxy does not answer on node node-b1 (its metrics are invalid: they lack vicinity_proxy_accounting_enabled: the proxy does not count), so the traffic from there is missing\n",
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
			name: "bytes of flowtables",
			answers: func(a map[string][]answer) {
				for _, node := range []string{"node-b1", "node-a2"} {
					a[node][0].text += "# TYPE vicinity_proxy_accounting_lower_bound gauge\nvicinity_proxy_accounting_lower_bound 1\n"
				}
			},
			args:      []string{"-o", "json"},
			want:      "not known: a flowtable can forward uncounted bytes on nodes node-a2, node-b1, so bytes and costs are at least the given ones (see docs/coexistence.md#flowtables)\n",
			contained: []string{"\"bytesAreLowerBoundOn\": [\n    \"node-a2\",\n    \"node-b1\"\n  ]"},
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

func TestTrafficFails(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*fakeCluster) error
		answer answer
		args   []string
		code   int
		want   string
	}{
		{"a negative time", nil, answer{}, []string{"--interval", "-1s"}, 2, `--interval -1s is not allowed; it must be above 0, such as 1m (see "vicinity status --help")`},
		{"no time", nil, answer{}, []string{"--interval", "0"}, 2, `--interval 0s is not allowed; it must be above 0, such as 1m (see "vicinity status --help")`},
		{
			"no proxy",
			func(c *fakeCluster) error {
				return c.typed.Tracker().Delete(appsv1.SchemeGroupVersion.WithResource("daemonsets"), "vicinity-system", "vicinity-proxy")
			},
			answer{},
			nil, 1, "vicinity-proxy, which counts traffic, is not installed",
		},
		{
			"pods that may not be asked", nil,
			answer{err: apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "http:proxy-node-a1:10269", errors.New(`User "jane" cannot get resource "pods/proxy"`))},
			nil, 1,
			`asking vicinity-proxy for its metrics is not allowed: User "jane" cannot get resource "pods/proxy"; see docs/reference/permissions.md`,
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

// A pod with an endless response cannot fill the memory.
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
