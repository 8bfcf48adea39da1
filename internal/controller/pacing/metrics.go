package pacing

import (
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"vicinity.dev/vicinity/internal/controller/shell"
)

// metrics are those of the controller.
type metrics struct {
	steps    *prometheus.CounterVec
	underway prometheus.GaugeFunc
}

// newMetrics makes the metrics, with the series that are known from the start.
func newMetrics(m *memory) *metrics {
	made := &metrics{
		steps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vicinity_pacing_steps_total",
			Help: "Steps by which scale-downs that budgets did not allow whole go on, by how they ended.",
		}, []string{"result"}),
		underway: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "vicinity_pacing_workloads",
			Help: "Workloads whose scale-down waits for budgets.",
		}, func() float64 { return float64(len(m.workloads(metav1.NamespaceAll))) }),
	}
	for _, outcome := range shell.Outcomes() {
		made.steps.WithLabelValues(string(outcome))
	}
	return made
}

func (m *metrics) register() error {
	for _, c := range []prometheus.Collector{m.steps, m.underway} {
		if err := crmetrics.Registry.Register(c); err != nil {
			return err
		}
	}
	return nil
}

func (m *metrics) stepped(err error) { m.steps.WithLabelValues(string(shell.OutcomeOf(err))).Inc() }
