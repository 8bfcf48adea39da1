package proxy

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"vicinity.dev/vicinity/internal/proxy/cluster"
	"vicinity.dev/vicinity/internal/proxy/compile"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// The results of a transaction, of a sync, of a probe and of a search for connections.
const (
	resultDone  = "done"
	resultError = "error"
)

// The steps whose failures do not delay programming.
const (
	stepForget = "forget"
	stepTrack  = "connections"
	stepCheck  = "check"
	stepHealth = "health-check-port"
	stepLease  = "lease"
	stepEvent  = "event"
	stepTaint  = "taint"
)

var steps = []string{stepForget, stepTrack, stepCheck, stepHealth, stepLease, stepEvent, stepTaint}

type metrics struct {
	syncs       *prometheus.HistogramVec
	latency     prometheus.Histogram
	programming prometheus.Histogram
	sizes       *prometheus.HistogramVec
	results     *prometheus.CounterVec
	failures    *prometheus.CounterVec
	foreign     *prometheus.CounterVec
	rewrites    *prometheus.CounterVec
	deleted     *prometheus.CounterVec
	drained     prometheus.Counter
	received    *prometheus.CounterVec
	probes      *prometheus.CounterVec

	services    prometheus.Gauge
	ports       *prometheus.GaugeVec
	endpoints   *prometheus.GaugeVec
	elements    *prometheus.GaugeVec
	maxElements prometheus.Gauge
	waiting     prometheus.Gauge
	unreachable prometheus.Gauge
	refused     *prometheus.GaugeVec
	disputed    *prometheus.GaugeVec
	// refusedAddresses has a value for each of compile.Reasons.
	refusedAddresses *prometheus.GaugeVec
	probeFailing     *prometheus.GaugeVec
	synced           prometheus.Gauge
}

// newMetrics registers the metrics, unless the registry is nil. count returns the number of known objects of a resource.
func newMetrics(registry prometheus.Registerer, count func(resource string) int) *metrics {
	factory := promauto.With(registry)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return factory.NewCounterVec(prometheus.CounterOpts{Name: "vicinity_proxy_" + name, Help: help}, labels)
	}
	gauges := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return factory.NewGaugeVec(prometheus.GaugeOpts{Name: "vicinity_proxy_" + name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return factory.NewGauge(prometheus.GaugeOpts{Name: "vicinity_proxy_" + name, Help: help})
	}
	milliseconds := prometheus.ExponentialBuckets(0.001, 2, 14)
	m := &metrics{
		syncs: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name: "vicinity_proxy_sync_duration_seconds", Help: "Time that a sync takes to program changes.", Buckets: milliseconds,
		}, []string{"result"}),
		latency: factory.NewHistogram(prometheus.HistogramOpts{
			Name: "vicinity_proxy_change_latency_seconds", Help: "Time from the first notice of a change of a Service until it is programmed.", Buckets: milliseconds,
		}),
		programming: factory.NewHistogram(prometheus.HistogramOpts{
			Name: "vicinity_proxy_programming_latency_seconds", Help: "Time from a change of a pod or Service until it is programmed.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 16),
		}),
		sizes: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name: "vicinity_proxy_transaction_changes", Help: "Changes of rules and elements in one kernel transaction.",
			Buckets: prometheus.ExponentialBuckets(1, 4, 10),
		}, []string{"family"}),
		results:  counter("transactions_total", "Kernel transactions, by result.", "family", "result"),
		failures: counter("failures_total", "Failures that did not hold up programming, by step.", "step"),
		foreign:  counter("foreign_changes_total", "Times that the proxy repaired rules that another program had changed.", "family"),
		rewrites: counter("rewrites_total", "Times that all rules were replaced because they could not be read or repaired.", "family"),
		deleted:  counter("connection_cleanups_total", "Cleanups of tracked connections to removed or drained endpoints, by result.", "result"),
		drained: factory.NewCounter(prometheus.CounterOpts{
			Name: "vicinity_proxy_drained_connections_total", Help: "Connections that ended because their endpoints are in the domain of a ZoneShift.",
		}),
		received:    counter("received_bytes_total", "Bytes that lists and watches received, by resource.", "resource"),
		probes:      counter("probes_total", "Probes of whether packets of the node pass the rules, by result.", "family", "result"),
		services:    gauge("services", "Services that the rules serve."),
		ports:       gauges("service_ports", "Ports of Services that the rules serve.", "family"),
		endpoints:   gauges("endpoints", "Endpoints of the served Services that this node knows.", "family"),
		elements:    gauges("elements", "Most elements that the rules of Services take in kernel sets.", "family"),
		maxElements: gauge("max_elements", "Elements that the rules of all Services may take."),
		waiting:     gauge("waiting_services", "Services that take too many elements and are not programmed whole."),
		unreachable: gauge("unreachable_service_ports",
			"Ports of Services without an endpoint that clients of this node may use."),
		refused:      gauges("refused_service_ports", "Ports of Services that the kernel refuses.", "family"),
		disputed:     gauges("disputed_fronts", "Addresses and ports that several Services claim; one Service gets each.", "family"),
		probeFailing: gauges("probe_failing", "Whether packets of the node bypass the rules, so the node acknowledges nothing.", "family"),
		refusedAddresses: gauges("refused_addresses",
			"Addresses that Services claim and this node refuses, by reason.", "reason"),
		synced: gauge("last_sync_timestamp_seconds", "Time when all known changes were last programmed."),
	}
	for _, number := range ruleset.Families {
		for _, result := range []string{resultDone, resultError} {
			m.results.WithLabelValues(number.Name(), result)
			m.probes.WithLabelValues(number.Name(), result)
		}
		m.sizes.WithLabelValues(number.Name())
		m.foreign.WithLabelValues(number.Name())
		m.rewrites.WithLabelValues(number.Name())
		for _, one := range []*prometheus.GaugeVec{m.ports, m.endpoints, m.elements, m.refused, m.disputed, m.probeFailing} {
			one.WithLabelValues(number.Name())
		}
	}
	for _, result := range []string{resultDone, resultError} {
		m.syncs.WithLabelValues(result)
		m.deleted.WithLabelValues(result)
	}
	for _, reason := range compile.Reasons() {
		m.refusedAddresses.WithLabelValues(string(reason))
	}
	for _, step := range steps {
		m.failures.WithLabelValues(step)
	}
	for _, resource := range cluster.Resources {
		m.received.WithLabelValues(resource)
		factory.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "vicinity_proxy_objects", Help: "Objects that the proxy knows, by resource.", ConstLabels: prometheus.Labels{"resource": resource},
		}, func() float64 { return float64(count(resource)) })
	}
	return m
}

func resultOf(err error) string {
	if err != nil {
		return resultError
	}
	return resultDone
}

func (m *metrics) transaction(number ruleset.Family, size int, err error) {
	m.results.WithLabelValues(number.Name(), resultOf(err)).Inc()
	if err == nil {
		m.sizes.WithLabelValues(number.Name()).Observe(float64(size))
	}
}

func (m *metrics) probed(number ruleset.Family, failure error) {
	m.probes.WithLabelValues(number.Name(), resultOf(failure)).Inc()
}

func (m *metrics) failed(step string) { m.failures.WithLabelValues(step).Inc() }

func (m *metrics) synchronised(took time.Duration, err error) {
	m.syncs.WithLabelValues(resultOf(err)).Observe(took.Seconds())
}
