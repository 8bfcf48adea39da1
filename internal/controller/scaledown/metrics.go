package scaledown

import (
	"github.com/prometheus/client_golang/prometheus"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/controller/shell"
	"vicinity.dev/vicinity/internal/requester"
)

// metrics are those of the controller.
type metrics struct {
	syncs     *prometheus.CounterVec
	writes    *prometheus.CounterVec
	repairs   *prometheus.CounterVec
	workloads prometheus.GaugeFunc
	misplaced prometheus.GaugeFunc
}

// newMetrics makes the metrics, with the series that are known from the start.
func newMetrics(m *memory) *metrics {
	made := &metrics{
		syncs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vicinity_scaledown_syncs_total",
			Help: "Syncs of the deletion costs of Deployments and ReplicaSets by how they ended.",
		}, []string{"result"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vicinity_scaledown_cost_writes_total",
			Help: "Writes of deletion costs to pods by how they ended.",
		}, []string{"result"}),
		repairs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vicinity_scaledown_repairs_total",
			Help: "Requests to evict a pod so that the one that replaces it makes a spread better, by what became of them.",
		}, []string{"outcome"}),
		workloads: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "vicinity_scaledown_workloads",
			Help: "Deployments and ReplicaSets whose pods are kept spread.",
		}, func() float64 { return float64(len(m.workloads(metav1.NamespaceAll))) }),
		misplaced: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "vicinity_scaledown_misplaced_pods",
			Help: "Pods of Deployments that are kept spread in other domains than they would be with the best spread.",
		}, func() float64 { return float64(m.misplaced()) }),
	}
	for _, outcome := range shell.Outcomes() {
		made.syncs.WithLabelValues(string(outcome))
		made.writes.WithLabelValues(string(outcome))
	}
	for _, state := range []requester.State{requester.Evicted, requester.Waiting, requester.Denied, requester.Gone, requester.Refused} {
		made.repairs.WithLabelValues(string(state))
	}
	return made
}

func (m *metrics) register() error {
	for _, c := range []prometheus.Collector{m.syncs, m.writes, m.repairs, m.workloads, m.misplaced} {
		if err := crmetrics.Registry.Register(c); err != nil {
			return err
		}
	}
	return nil
}

func (m *metrics) synced(outcome shell.Outcome) { m.syncs.WithLabelValues(string(outcome)).Inc() }

func (m *metrics) wrote(err error) {
	m.writes.WithLabelValues(string(shell.OutcomeOf(err))).Inc()
}

func (m *metrics) repaired(state requester.State) { m.repairs.WithLabelValues(string(state)).Inc() }
