package locator

import (
	"github.com/prometheus/client_golang/prometheus"

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
	syncs, writes *prometheus.CounterVec
	delay         prometheus.Histogram
}

// newMetrics makes the metrics, with the series that are known from the start.
func newMetrics() *metrics {
	m := &metrics{
		syncs: shell.NewCounter("vicinity_locator_syncs_total", "Syncs of PodLocators by how they ended.", "result", shell.Outcomes()...),
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
		for _, operation := range []string{operationCreate, operationUpdate, operationDelete} {
			m.writes.WithLabelValues(operation, string(outcome))
		}
	}
	return m
}

func (m *metrics) synced(outcome shell.Outcome) { m.syncs.WithLabelValues(string(outcome)).Inc() }

func (m *metrics) wrote(operation string, err error) {
	m.writes.WithLabelValues(operation, string(shell.OutcomeOf(err))).Inc()
}
