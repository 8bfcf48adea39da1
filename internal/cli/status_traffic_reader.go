package cli

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// proxySelector finds the DaemonSet of vicinity-proxy, wherever it was installed and
// whatever it is called: no value of the chart changes these labels.
const proxySelector = "app.kubernetes.io/part-of=vicinity,app.kubernetes.io/component=proxy"

// portMetrics is the name of the port on which a pod serves its metrics.
const portMetrics = "metrics"

// The metrics of vicinity-proxy that traffic is read from.
const (
	metricConnections = "vicinity_proxy_connections_total"
	metricBytes       = "vicinity_proxy_bytes_total"
	metricEnabled     = "vicinity_proxy_accounting_enabled"
)

// proxiesAtOnce is how many proxies are asked at a time.
const proxiesAtOnce = 16

// proxyPod is a vicinity-proxy that may be asked.
type proxyPod struct {
	namespace, name, node string
	port                  int32
}

// proxies are the running pods of vicinity-proxy.
func (r *clusterReader) proxies(ctx context.Context) ([]proxyPod, error) {
	sets, err := listAll[appsv1.DaemonSet](ctx, metav1.ListOptions{LabelSelector: proxySelector}, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return r.typed.AppsV1().DaemonSets(metav1.NamespaceAll).List(ctx, o)
	})
	if err != nil {
		return nil, r.explained("looking for vicinity-proxy", err)
	}
	if len(sets) == 0 {
		return nil, fmt.Errorf("vicinity-proxy is not installed, and it is what counts traffic")
	}
	var pods []proxyPod
	for _, set := range sets {
		found, err := r.podsOf(ctx, set)
		if err != nil {
			return nil, err
		}
		pods = append(pods, found...)
	}
	if len(pods) == 0 {
		return nil, fmt.Errorf("no pod of DaemonSet %s/%s runs and has a port %q, so nobody can be asked", sets[0].Namespace, sets[0].Name, portMetrics)
	}
	return pods, nil
}

// podsOf are the running pods of a DaemonSet that serve metrics.
func (r *clusterReader) podsOf(ctx context.Context, set *appsv1.DaemonSet) ([]proxyPod, error) {
	selector := metav1.FormatLabelSelector(set.Spec.Selector)
	list, err := listAll[corev1.Pod](ctx, metav1.ListOptions{LabelSelector: selector}, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return r.typed.CoreV1().Pods(set.Namespace).List(ctx, o)
	})
	if err != nil {
		return nil, r.explained("reading the pods of vicinity-proxy", err)
	}
	var pods []proxyPod
	for _, pod := range list {
		if pod.Status.Phase != corev1.PodRunning {
			continue
		}
		for _, container := range pod.Spec.Containers {
			for _, port := range container.Ports {
				if port.Name == portMetrics {
					pods = append(pods, proxyPod{pod.Namespace, pod.Name, pod.Spec.NodeName, port.ContainerPort})
				}
			}
		}
	}
	return pods, nil
}

// traffic asks all proxies what they have counted. Those that do not say are named.
func (r *clusterReader) traffic(ctx context.Context, pods []proxyPod) ([]proxyReading, error) {
	readings, failures := make([]proxyReading, len(pods)), make([]error, len(pods))
	var asked sync.WaitGroup
	turns := make(chan struct{}, proxiesAtOnce)
	for i := range pods {
		turns <- struct{}{}
		asked.Go(func() {
			defer func() { <-turns }()
			readings[i], failures[i] = r.reading(ctx, pods[i])
		})
	}
	asked.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var answered []proxyReading
	var silent []string
	var reason error
	for i, err := range failures {
		switch {
		case err == nil:
			answered = append(answered, readings[i])
			continue
		case apierrors.IsForbidden(err):
			return nil, r.explained("asking vicinity-proxy for its metrics", err)
		case reason == nil:
			reason = err
		}
		silent = append(silent, pods[i].node)
	}
	if len(answered) == 0 {
		return nil, fmt.Errorf("no vicinity-proxy answers; the one on node %s: %w", silent[0], reason)
	}
	if len(silent) > 0 {
		r.leaveOut(fmt.Sprintf("vicinity-proxy does not answer on %s (%s), so the traffic from there is missing", some(silent), oneLine(reason)))
	}
	return answered, nil
}

// some names a few of many nodes.
func some(nodes []string) string {
	const most = 3
	slices.Sort(nodes)
	text := "node "
	if len(nodes) > 1 {
		text = "nodes "
	}
	text += strings.Join(nodes[:min(most, len(nodes))], ", ")
	if more := len(nodes) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// reading asks one proxy, by way of the API server.
func (r *clusterReader) reading(ctx context.Context, pod proxyPod) (proxyReading, error) {
	text, err := r.typed.CoreV1().Pods(pod.namespace).ProxyGet("http", pod.name, strconv.Itoa(int(pod.port)), "/metrics", nil).DoRaw(ctx)
	if err != nil {
		return proxyReading{}, err
	}
	reading := proxyReading{pod: pod.namespace + "/" + pod.name, node: pod.node, at: time.Now()}
	if err := reading.parse(text); err != nil {
		return proxyReading{}, fmt.Errorf("its metrics make no sense: %w", err)
	}
	return reading, nil
}

// parse takes over what metrics say.
func (r *proxyReading) parse(text []byte) error {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return err
	}
	if families[metricEnabled] == nil {
		return fmt.Errorf("they lack %s: the proxy does not count", metricEnabled)
	}
	r.counts = map[trafficKey]trafficCount{}
	for _, metric := range families[metricConnections].GetMetric() {
		key, _ := trafficLabels(metric)
		r.counts[key] = r.counts[key].plus(trafficCount{connections: metric.GetCounter().GetValue()})
	}
	for _, metric := range families[metricBytes].GetMetric() {
		key, direction := trafficLabels(metric)
		moved := trafficCount{request: metric.GetCounter().GetValue()}
		if direction == "reply" {
			moved.request, moved.reply = 0, moved.request
		}
		r.counts[key] = r.counts[key].plus(moved)
	}
	for _, metric := range families[metricEnabled].GetMetric() {
		for _, label := range metric.GetLabel() {
			if label.GetName() == "what" && label.GetValue() == "bytes" {
				r.withoutBytes = metric.GetGauge().GetValue() == 0
			}
		}
	}
	return nil
}

// trafficLabels are what a series is about.
func trafficLabels(metric *dto.Metric) (key trafficKey, direction string) {
	for _, label := range metric.GetLabel() {
		switch value := label.GetValue(); label.GetName() {
		case "namespace":
			key.namespace = value
		case "service":
			key.service = value
		case "source_zone":
			key.from = value
		case "destination_zone":
			key.to = value
		case "direction":
			direction = value
		}
	}
	return key, direction
}
