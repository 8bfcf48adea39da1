package admission

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Result is what became of a request, in one word. A webhook has few of them.
type Result string

// The results of webhooks that say yes or no.
const (
	Allowed Result = "allowed"
	Warned  Result = "warned"
	Refused Result = "refused"
)

// The results of webhooks that change what is written.
const (
	// Skipped requests are not the webhook's to look at.
	Skipped Result = "skipped"
	// Unchanged requests are as they should be.
	Unchanged Result = "unchanged"
	// Changed requests were changed.
	Changed Result = "changed"
	// Restored requests were changed to what is stored, so that nothing is written.
	Restored Result = "restored"
)

// The results of requests with which something went wrong.
const (
	// Degraded requests were answered without all that there was to know.
	Degraded Result = "degraded"
	// Failed requests got the answer of the failure policy alone.
	Failed Result = "failed"
)

// Metrics are those of all webhooks of a process, told apart by the label webhook.
type Metrics struct {
	duration *prometheus.HistogramVec
	requests *prometheus.CounterVec
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "vicinity_webhook_duration_seconds",
			Help:    "How long the admission webhooks of Vicinity take for a request, from its first byte read to the answer written.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
		}, []string{"webhook"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vicinity_webhook_requests_total",
			Help: "Requests that the admission webhooks of Vicinity answered, by result.",
		}, []string{"webhook", "result"}),
	}
	for _, c := range []prometheus.Collector{m.duration, m.requests} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Observe takes in a request that a webhook answered.
func (m *Metrics) Observe(webhook string, result Result, took time.Duration) {
	m.duration.WithLabelValues(webhook).Observe(took.Seconds())
	m.requests.WithLabelValues(webhook, string(result)).Inc()
}
