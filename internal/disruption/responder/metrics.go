package responder

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vicinity.dev/vicinity/internal/kit/shell"
)

type metrics struct {
	syncs   *prometheus.CounterVec
	waiting prometheus.GaugeFunc
	waited  prometheus.Histogram
}

func newMetrics(m *memory) *metrics {
	return &metrics{
		syncs: shell.NewCounter("vicinity_responder_syncs_total", "Syncs of pods with EvictionRequests, by result.", "result", shell.Outcomes()...),
		waiting: shell.NewGauge("vicinity_responder_waiting_pods", "Pods with EvictionRequests that wait for their TopologyDisruptionBudgets.",
			func() int { return len(m.waiting()) }),
		waited: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "vicinity_responder_wait_seconds",
			Help:    "Time from the turn of vicinity.dev/budget in an EvictionRequest until budgets admitted it.",
			Buckets: prometheus.ExponentialBuckets(1, 3, 10),
		}),
	}
}

func (m *metrics) register() error { return shell.Register(m.syncs, m.waiting, m.waited) }

func (m *metrics) synced(outcome shell.Outcome) { m.syncs.WithLabelValues(string(outcome)).Inc() }

// admitted observes the wait of an eviction. It may be negative, because different clocks write an Eviction.
func (m *metrics) admitted(waited time.Duration) { m.waited.Observe(max(0, waited).Seconds()) }
