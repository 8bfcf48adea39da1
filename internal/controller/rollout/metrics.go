package rollout

import (
	"github.com/prometheus/client_golang/prometheus"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/controller/shell"
	"vicinity.dev/vicinity/internal/requester"
	"vicinity.dev/vicinity/internal/rollout"
)

// What may become of a request besides the states of requester.
const (
	requestUnknown requester.State = "Unknown"
	requestDeleted requester.State = "Deleted" // without an eviction
	// requestReleased is of a held pod of a Deployment.
	requestReleased requester.State = "Released"
)

// metrics are those of the controller.
type metrics struct {
	syncs, requests, events *prometheus.CounterVec
	rollouts                *prometheus.GaugeVec
}

func newMetrics() *metrics {
	m := &metrics{
		syncs: shell.NewCounter("vicinity_rollout_syncs_total", "Syncs of DomainRollouts by how they ended.", "result", shell.Outcomes()...),
		requests: shell.NewCounter("vicinity_rollout_evictions_total",
			"Requests to evict a pod so that an updated one comes, by what became of them, pods of abandoned revisions that were deleted, and pods of Deployments that were released.", "outcome",
			requester.Evicted, requester.Waiting, requester.Denied, requester.Gone, requester.Refused, requestUnknown, requestDeleted, requestReleased),
		events: shell.NewCounter("vicinity_rollout_events_total", "What happened to DomainRollouts, by the reason of the event.", "event",
			rollout.RolloutBegan, rollout.RolloutRestarted, rollout.RollbackBegan, rollout.WaveBegan, rollout.WaveDone, rollout.RolloutPaused,
			rollout.RolloutResumed, rollout.RolloutFailed, rollout.RolloutAborted, rollout.RolloutComplete),
		rollouts: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "vicinity_rollouts", Help: "DomainRollouts by phase."}, []string{"phase"}),
	}
	for _, phase := range []v1alpha1.RolloutPhase{
		v1alpha1.PhaseWaiting, v1alpha1.PhaseProgressing, v1alpha1.PhaseBaking, v1alpha1.PhasePaused, v1alpha1.PhaseFailed,
		v1alpha1.PhaseRollingBack, v1alpha1.PhaseAborted, v1alpha1.PhaseComplete, v1alpha1.PhaseInvalid,
	} {
		m.rollouts.WithLabelValues(string(phase))
	}
	return m
}

func (m *metrics) register() error { return shell.Register(m.syncs, m.requests, m.events, m.rollouts) }

func (m *metrics) synced(outcome shell.Outcome) { m.syncs.WithLabelValues(string(outcome)).Inc() }

func (m *metrics) requested(outcome requester.State) {
	m.requests.WithLabelValues(string(outcome)).Inc()
}

func (m *metrics) happened(event rollout.EventType) { m.events.WithLabelValues(string(event)).Inc() }

// report counts a DomainRollout in its phase, and no more in the one before; an empty phase is none.
func (m *metrics) report(n *notes, phase v1alpha1.RolloutPhase) {
	if n.phase == phase {
		return
	}
	if n.phase != "" {
		m.rollouts.WithLabelValues(string(n.phase)).Dec()
	}
	if n.phase = phase; phase != "" {
		m.rollouts.WithLabelValues(string(phase)).Inc()
	}
}
