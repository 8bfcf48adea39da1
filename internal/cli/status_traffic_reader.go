package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/kit/command"
)

// portMetrics is the name of the metrics port of a pod.
const portMetrics = "metrics"

// Metrics of vicinity-proxy.
const (
	metricConnections = "vicinity_proxy_connections_total"
	metricBytes       = "vicinity_proxy_bytes_total"
	metricEnabled     = "vicinity_proxy_accounting_enabled"
	metricLowerBound  = "vicinity_proxy_accounting_lower_bound"
)

// proxiesAtOnce limits concurrent requests to proxies.
const proxiesAtOnce = 16

type proxyPod struct {
	namespace, name, node string
	port                  int32
}

func (r *clusterReader) proxies(ctx context.Context) ([]proxyPod, error) {
	sets, err := listAll[appsv1.DaemonSet](ctx, r.typed.AppsV1().DaemonSets(metav1.NamespaceAll), metav1.ListOptions{LabelSelector: inspect.ProxySelector})
	if err != nil {
		return nil, r.explained("looking for vicinity-proxy", err)
	}
	if len(sets) == 0 {
		return nil, fmt.Errorf("vicinity-proxy, which counts traffic, is not installed")
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
		return nil, fmt.Errorf("no running pod of DaemonSet %s/%s has a port %q to read metrics from", sets[0].Namespace, sets[0].Name, portMetrics)
	}
	return pods, nil
}

// podsOf returns the running pods of a DaemonSet that serve metrics.
func (r *clusterReader) podsOf(ctx context.Context, set *appsv1.DaemonSet) ([]proxyPod, error) {
	selector := metav1.FormatLabelSelector(set.Spec.Selector)
	list, err := listAll[corev1.Pod](ctx, r.typed.CoreV1().Pods(set.Namespace), metav1.ListOptions{LabelSelector: selector})
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

// traffic reads the counts of all proxies, and notes the proxies that do not answer.
func (r *clusterReader) traffic(ctx context.Context, pods []proxyPod) ([]inspect.ProxyReading, error) {
	readings, failures := make([]inspect.ProxyReading, len(pods)), make([]error, len(pods))
	var asked sync.WaitGroup
	turns := make(chan struct{}, proxiesAtOnce)
	for i := range pods {
		turns <- struct{}{}
		asked.Go(func() {
			defer func() { <-turns }()
			readings[i], failures[i] = r.ask(ctx, pods[i])
		})
	}
	asked.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var answered []inspect.ProxyReading
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
		r.leaveOut(fmt.Sprintf("vicinity-proxy does not answer on %s (%s), so the traffic from there is missing", inspect.NodeNames(silent), command.OneLine(reason)))
	}
	return answered, nil
}

// ask reads the metrics of one proxy through the API server.
func (r *clusterReader) ask(ctx context.Context, pod proxyPod) (inspect.ProxyReading, error) {
	reading := inspect.ProxyReading{Pod: pod.namespace + "/" + pod.name, Node: pod.node}
	body, err := r.typed.CoreV1().Pods(pod.namespace).ProxyGet("http", pod.name, strconv.Itoa(int(pod.port)), "/metrics", nil).Stream(ctx)
	if err != nil {
		return reading, err
	}
	defer func() { _ = body.Close() }() // all that is needed was read
	text, err := readMetrics(body)
	if err != nil {
		return reading, err
	}
	reading.At = time.Now()
	if err := readCounts(&reading, text); err != nil {
		return reading, fmt.Errorf("its metrics are invalid: %w", err)
	}
	return reading, nil
}

// mostMetrics limits the bytes that are read from a proxy: any pod may have its labels.
const mostMetrics = 64 << 20

func readMetrics(body io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(body, mostMetrics+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading its metrics: %w", err)
	case len(text) > mostMetrics:
		return nil, fmt.Errorf("its metrics have more than %d MiB", mostMetrics>>20)
	}
	return text, nil
}

func readCounts(r *inspect.ProxyReading, text []byte) error {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return err
	}
	if families[metricEnabled] == nil {
		return fmt.Errorf("they lack %s: the proxy does not count", metricEnabled)
	}
	r.Counts = map[inspect.TrafficKey]inspect.TrafficCount{}
	add := func(labels map[string]string, count inspect.TrafficCount) {
		key := inspect.TrafficKey{
			Namespace: labels["namespace"], Service: labels["service"], From: labels["source_zone"], To: labels["destination_zone"],
		}
		r.Counts[key] = r.Counts[key].Plus(count)
	}
	for _, metric := range families[metricConnections].GetMetric() {
		add(labelsOf(metric), inspect.TrafficCount{Connections: metric.GetCounter().GetValue()})
	}
	for _, metric := range families[metricBytes].GetMetric() {
		labels, moved := labelsOf(metric), metric.GetCounter().GetValue()
		if labels["direction"] == "reply" {
			add(labels, inspect.TrafficCount{Reply: moved})
		} else {
			add(labels, inspect.TrafficCount{Request: moved})
		}
	}
	for _, metric := range families[metricEnabled].GetMetric() {
		if labelsOf(metric)["what"] == "bytes" {
			r.WithoutBytes = metric.GetGauge().GetValue() == 0
		}
	}
	for _, metric := range families[metricLowerBound].GetMetric() {
		r.LowerBound = metric.GetGauge().GetValue() != 0
	}
	return nil
}

func labelsOf(metric *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, label := range metric.GetLabel() {
		labels[label.GetName()] = label.GetValue()
	}
	return labels
}
