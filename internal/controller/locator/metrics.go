package locator

import (
	"github.com/prometheus/client_golang/prometheus"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"vicinity.dev/vicinity/internal/controller/shell"
)

// What is written.
const (
	operationCreate = "create"
	operationUpdate = "update"
	operationDelete = "delete"
)

// metrics are those of the controller.
type metrics struct {
	syncs  *prometheus.CounterVec
	writes *prometheus.CounterVec
	delay  prometheus.Histogram
}

// newMetrics makes the metrics, with the series that are known from the start.
func newMetrics() *metrics {
	m := &metrics{
		syncs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vicinity_locator_syncs_total",
			Help: "Syncs of PodLocators by how they ended.",
		}, []string{"result"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vicinity_locator_writes_total",
			Help: "Writes of PodLocators by what was done and how it ended.",
		}, []string{"operation", "result"}),
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "vicinity_locator_delay_seconds",
			Help:    "Time from a pod's first addresses, as the controller saw them, to its PodLocator.",
			Buckets: prometheus.ExponentialBucketsRange(0.001, 100, 16),
		}),
	}
	for _, outcome := range shell.Outcomes() {
		m.syncs.WithLabelValues(string(outcome))
		for _, operation := range []string{operationCreate, operationUpdate, operationDelete} {
			m.writes.WithLabelValues(operation, string(outcome))
		}
	}
	return m
}

func (m *metrics) register() error {
	for _, c := range []prometheus.Collector{m.syncs, m.writes, m.delay} {
		if err := crmetrics.Registry.Register(c); err != nil {
			return err
		}
	}
	return nil
}

func (m *metrics) synced(outcome shell.Outcome) { m.syncs.WithLabelValues(string(outcome)).Inc() }

func (m *metrics) wrote(operation string, err error) {
	m.writes.WithLabelValues(operation, string(shell.OutcomeOf(err))).Inc()
}
