package admission

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Result is the outcome of a request, as a label value of metrics.
type Result string

// Results of validating webhooks.
const (
	Allowed Result = "allowed"
	Warned  Result = "warned"
	Refused Result = "refused"
)

// Results of mutating webhooks.
const (
	// Skipped requests do not concern the webhook.
	Skipped   Result = "skipped"
	Unchanged Result = "unchanged"
	Changed   Result = "changed"
	// Restored requests were changed back to the stored object, so that nothing is written.
	Restored Result = "restored"
)

// Results of requests with a failure.
const (
	// Degraded requests were answered with incomplete knowledge.
	Degraded Result = "degraded"
	// Failed requests were answered by the failure policy alone.
	Failed Result = "failed"
)

// Metrics are shared by all webhooks of a process. The label webhook tells them apart.
type Metrics struct {
	duration *prometheus.HistogramVec
	requests *prometheus.CounterVec
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "vicinity_webhook_duration_seconds",
			Help:    "How long the webhooks take for a request, from its first byte to the answer.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
		}, []string{"webhook"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vicinity_webhook_requests_total",
			Help: "Requests that the webhooks answered, by result.",
		}, []string{"webhook", "result"}),
	}
	for _, c := range []prometheus.Collector{m.duration, m.requests} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Observe counts a request that a webhook answered.
func (m *Metrics) Observe(webhook string, result Result, took time.Duration) {
	m.duration.WithLabelValues(webhook).Observe(took.Seconds())
	m.requests.WithLabelValues(webhook, string(result)).Inc()
}
