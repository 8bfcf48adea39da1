package rollout

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/controller/shell"
	"vicinity.dev/vicinity/internal/requester"
	"vicinity.dev/vicinity/internal/rollout"
)

// What may become of a request besides the states of requester.
const (
	requestUnknown = "Unknown"
	requestDeleted = "Deleted" // without an eviction
	// requestReleased is of a held pod of a Deployment.
	requestReleased = "Released"
)

// metrics are those of the controller.
type metrics struct {
	syncs    *prometheus.CounterVec
	requests *prometheus.CounterVec
	events   *prometheus.CounterVec
	rollouts *prometheus.GaugeVec

	mu     sync.Mutex
	phases map[types.NamespacedName]v1alpha1.RolloutPhase
}

func newMetrics() *metrics {
	m := &metrics{
		syncs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vicinity_rollout_syncs_total",
			Help: "Syncs of DomainRollouts by how they ended.",
		}, []string{"result"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vicinity_rollout_evictions_total",
			Help: "Requests to evict a pod so that an updated one comes, by what became of them, pods of abandoned revisions that were deleted, and pods of Deployments that were released.",
		}, []string{"outcome"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vicinity_rollout_events_total",
			Help: "What happened to DomainRollouts, by the reason of the event.",
		}, []string{"event"}),
		rollouts: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "vicinity_rollouts",
			Help: "DomainRollouts by phase.",
		}, []string{"phase"}),
		phases: map[types.NamespacedName]v1alpha1.RolloutPhase{},
	}
	for _, outcome := range shell.Outcomes() {
		m.syncs.WithLabelValues(string(outcome))
	}
	for _, state := range []requester.State{requester.Evicted, requester.Waiting, requester.Denied, requester.Gone, requester.Refused, requestUnknown, requestDeleted, requestReleased} {
		m.requests.WithLabelValues(string(state))
	}
	for _, event := range []rollout.EventType{
		rollout.RolloutBegan, rollout.RolloutRestarted, rollout.RollbackBegan, rollout.WaveBegan, rollout.WaveDone, rollout.RolloutPaused,
		rollout.RolloutResumed, rollout.RolloutFailed, rollout.RolloutAborted, rollout.RolloutComplete,
	} {
		m.events.WithLabelValues(string(event))
	}
	for _, phase := range []v1alpha1.RolloutPhase{
		v1alpha1.PhaseWaiting, v1alpha1.PhaseProgressing, v1alpha1.PhaseBaking, v1alpha1.PhasePaused, v1alpha1.PhaseFailed,
		v1alpha1.PhaseRollingBack, v1alpha1.PhaseAborted, v1alpha1.PhaseComplete, v1alpha1.PhaseInvalid,
	} {
		m.rollouts.WithLabelValues(string(phase))
	}
	return m
}

func (m *metrics) register() error {
	for _, c := range []prometheus.Collector{m.syncs, m.requests, m.events, m.rollouts} {
		if err := crmetrics.Registry.Register(c); err != nil {
			return err
		}
	}
	return nil
}

func (m *metrics) synced(outcome shell.Outcome) { m.syncs.WithLabelValues(string(outcome)).Inc() }

func (m *metrics) requested(outcome string) { m.requests.WithLabelValues(outcome).Inc() }

func (m *metrics) happened(event rollout.EventType) { m.events.WithLabelValues(string(event)).Inc() }

// report counts a DomainRollout in its phase, and no more in the one before; an empty phase is none.
func (m *metrics) report(key types.NamespacedName, phase v1alpha1.RolloutPhase) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.phases[key]
	if before == phase {
		return
	}
	if before != "" {
		m.rollouts.WithLabelValues(string(before)).Dec()
	}
	delete(m.phases, key)
	if phase != "" {
		m.rollouts.WithLabelValues(string(phase)).Inc()
		m.phases[key] = phase
	}
}
