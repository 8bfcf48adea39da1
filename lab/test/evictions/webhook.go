package evictions

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"vicinity.dev/vicinity/lab"
)

// WebhookTimes are the API server's waiting times for the eviction webhook: the number of calls up to
// each time in seconds.
type WebhookTimes map[float64]float64

// ReadWebhookTimes reads the times since the API server started.
func ReadWebhookTimes(ctx context.Context, client *lab.Client) (WebhookTimes, error) {
	text, err := client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	return parseWebhookTimes(string(text))
}

func parseWebhookTimes(metrics string) (WebhookTimes, error) {
	times := WebhookTimes{}
	for line := range strings.Lines(metrics) {
		if !strings.HasPrefix(line, "apiserver_admission_webhook_admission_duration_seconds_bucket{") ||
			!strings.Contains(line, `name="eviction.vicinity.dev"`) {
			continue
		}
		_, rest, _ := strings.Cut(line, `le="`)
		bound, _, _ := strings.Cut(rest, `"`)
		_, count, _ := strings.Cut(line, "} ")
		upTo, err := strconv.ParseFloat(bound, 64)
		if err != nil {
			return nil, fmt.Errorf("reading the API server's metrics: %w", err)
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(count), 64)
		if err != nil {
			return nil, fmt.Errorf("reading the API server's metrics: %w", err)
		}
		times[upTo] += n
	}
	return times, nil
}

// Since returns the calls after an earlier reading.
func (w WebhookTimes) Since(before WebhookTimes) WebhookTimes {
	since := WebhookTimes{}
	for bound, n := range w {
		since[bound] = n - before[bound]
	}
	return since
}

// Calls is the number of calls.
func (w WebhookTimes) Calls() float64 { return w[math.Inf(1)] }

// Quantile returns the smallest bound that a share of the calls did not exceed.
func (w WebhookTimes) Quantile(share float64) time.Duration {
	all := w.Calls()
	var bounds []float64
	for bound, n := range w {
		if n >= share*all && all > 0 {
			bounds = append(bounds, bound)
		}
	}
	if len(bounds) == 0 {
		return 0
	}
	return time.Duration(slices.Min(bounds) * float64(time.Second))
}
