package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/shape"
)

// Where the chart has vicinity-proxy serve metrics: beside kube-proxy, and in its place.
const (
	proxyMetricsPort     = 10267
	kubeProxyMetricsPort = 10249
)

// series are the values of metrics, by name and labels as they are written.
type series map[string]float64

// proxyMetrics are those of the vicinity-proxy of a node.
func (s *scene) proxyMetrics(ctx context.Context, node shape.Node) (series, error) {
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	namespace := shape.NodeNamespace(s.cluster.Shape().Name, node.Index)
	port := proxyMetricsPort
	if !s.cluster.Shape().Proxy.KubeProxy() {
		port = kubeProxyMetricsPort
	}
	conn, err := fabric.Dial(ctx, namespace, "tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return nil, fmt.Errorf("asking the proxy of %s for metrics: %w", node.Name, err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patient)); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(conn, "GET /metrics HTTP/1.0\r\n\r\n"); err != nil {
		return nil, err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("asking the proxy of %s for metrics: it answers %s", node.Name, response.Status)
	}
	all := series{}
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		line := lines.Text()
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("reading the metric %q: %w", line, err)
		}
		all[line[:at]] = value
	}
	return all, lines.Err()
}

// sum adds the values of a metric up that have all of some labels, written name="value".
func (all series) sum(metric string, labels ...string) float64 {
	total := 0.0
	for name, value := range all {
		base, given, _ := strings.Cut(name, "{")
		if base != metric {
			continue
		}
		has := true
		for _, label := range labels {
			has = has && (strings.HasPrefix(given, label) || strings.Contains(given, ","+label))
		}
		if has {
			total += value
		}
	}
	return total
}
