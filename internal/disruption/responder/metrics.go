package responder

import (
	"github.com/prometheus/client_golang/prometheus"

	"vicinity.dev/vicinity/internal/kit/shell"
)

type metrics struct {
	syncs   *prometheus.CounterVec
	waiting prometheus.GaugeFunc
}

func newMetrics(waiting func() []target) *metrics {
	return &metrics{
		syncs: shell.NewCounter("vicinity_responder_syncs_total", "Syncs of pods with EvictionRequests, by result.", "result", shell.Outcomes()...),
		waiting: shell.NewGauge("vicinity_responder_waiting_pods", "Pods with EvictionRequests that wait for their TopologyDisruptionBudgets.",
			func() int { return len(waiting()) }),
	}
}

func (m *metrics) register() error { return shell.Register(m.syncs, m.waiting) }

func (m *metrics) synced(outcome shell.Outcome) { m.syncs.WithLabelValues(string(outcome)).Inc() }
