package reservation

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption"
)

// Results of decisions and of writes.
const (
	resultAllowed = "allowed"
	resultDenied  = "denied"
	resultFailed  = "failed"

	writeDone     = "done"
	writeConflict = "conflict"
	writeUnknown  = "unknown"
	writeError    = "error"
)

// Metrics are those of a Ledger.
type Metrics struct {
	decisions    *prometheus.CounterVec
	duration     prometheus.Histogram
	writes       *prometheus.CounterVec
	reservations prometheus.GaugeFunc

	held atomic.Pointer[func() int] // reservations
}

// NewMetrics makes the metrics of a Ledger and registers them.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := newMetrics()
	for _, c := range []prometheus.Collector{m.decisions, m.duration, m.writes, m.reservations} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func newMetrics() *Metrics {
	m := &Metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vicinity_eviction_decisions_total",
			Help: "Decisions about evictions in namespaces with a TopologyDisruptionBudget, including dry runs.",
		}, []string{"result", "reason"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "vicinity_eviction_decision_duration_seconds",
			Help:    "How long decisions about evictions take, until reservations are stored.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
		}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vicinity_budget_writes_total",
			Help: "Writes of the status of TopologyDisruptionBudgets, by result.",
		}, []string{"result"}),
	}
	m.reservations = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "vicinity_eviction_reservations",
		Help: "Evictions that were admitted and not observed yet, in all TopologyDisruptionBudgets.",
	}, func() float64 {
		if held := m.held.Load(); held != nil {
			return float64((*held)())
		}
		return 0
	})
	m.decisions.WithLabelValues(resultAllowed, string(disruption.RuleWithin))
	m.decisions.WithLabelValues(resultFailed, reasonUnknown)
	for _, result := range []string{writeDone, writeConflict, writeUnknown, writeError} {
		m.writes.WithLabelValues(result)
	}
	return m
}

func (m *Metrics) decided(allowed bool, err error, reason string, took time.Duration) {
	result := resultDenied
	switch {
	case err != nil:
		result = resultFailed
	case allowed:
		result = resultAllowed
	}
	m.decisions.WithLabelValues(result, reason).Inc()
	m.duration.Observe(took.Seconds())
}

func (m *Metrics) wrote(err error) {
	result := writeUnknown
	switch {
	case err == nil:
		result = writeDone
	case apierrors.IsConflict(err):
		result = writeConflict
	case isRefused(err):
		result = writeError
	}
	m.writes.WithLabelValues(result).Inc()
}

// reserved counts the active reservations.
func (w *world) reserved(now time.Time) (held int) {
	for _, budget := range ofType[*v1alpha1.TopologyDisruptionBudget](w.budgets.List()) {
		for _, r := range budget.Status.Reservations {
			if now.Before(r.Expires.Time) {
				held++
			}
		}
	}
	return held
}
