package scaledown

import (
	"github.com/prometheus/client_golang/prometheus"

	"vicinity.dev/vicinity/internal/controller/shell"
	"vicinity.dev/vicinity/internal/requester"
)

// metrics are those of the controller.
type metrics struct {
	syncs, writes, repairs *prometheus.CounterVec
	workloads, misplaced   prometheus.GaugeFunc
}

func newMetrics(r *reconciler) *metrics {
	return &metrics{
		syncs: shell.NewCounter("vicinity_scaledown_syncs_total", "Syncs of the deletion costs of Deployments and ReplicaSets by how they ended.",
			"result", shell.Outcomes()...),
		writes: shell.NewCounter("vicinity_scaledown_cost_writes_total", "Writes of deletion costs to pods by how they ended.", "result", shell.Outcomes()...),
		repairs: shell.NewCounter("vicinity_scaledown_repairs_total",
			"Requests to evict a pod so that the one that replaces it makes a spread better, by what became of them.", "outcome",
			requester.Evicted, requester.Waiting, requester.Denied, requester.Gone, requester.Refused),
		workloads: shell.NewGauge("vicinity_scaledown_workloads", "Deployments and ReplicaSets whose pods are kept spread.",
			func() int { return len(r.notes.Keys()) }),
		misplaced: shell.NewGauge("vicinity_scaledown_misplaced_pods",
			"Pods of Deployments that are kept spread in other domains than they would be with the best spread.", r.misplaced),
	}
}

func (m *metrics) register() error {
	return shell.Register(m.syncs, m.writes, m.repairs, m.workloads, m.misplaced)
}

func (m *metrics) synced(outcome shell.Outcome) { m.syncs.WithLabelValues(string(outcome)).Inc() }

func (m *metrics) wrote(err error) { m.writes.WithLabelValues(string(shell.OutcomeOf(err))).Inc() }

func (m *metrics) repaired(state requester.State) { m.repairs.WithLabelValues(string(state)).Inc() }
