package admission

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMetrics(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	metrics, err := NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	metrics.Observe("endpointslice", Restored, 700*time.Microsecond)
	metrics.Observe("endpointslice", Restored, 3*time.Second)
	metrics.Observe("service", Failed, time.Millisecond)
	want := `# HELP vicinity_webhook_requests_total Requests that the admission webhooks of Vicinity answered, by what became of them.
# TYPE vicinity_webhook_requests_total counter
vicinity_webhook_requests_total{result="failed",webhook="service"} 1
vicinity_webhook_requests_total{result="restored",webhook="endpointslice"} 2
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "vicinity_webhook_requests_total"); err != nil {
		t.Error(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "vicinity_webhook_duration_seconds" {
			continue
		}
		for _, metric := range family.GetMetric() {
			h := metric.GetHistogram()
			if metric.GetLabel()[0].GetValue() == "endpointslice" && (h.GetSampleCount() != 2 || h.GetSampleSum() != 3.0007) {
				t.Errorf("the histogram has %d samples that make %v s, want 2 that make 3.0007 s", h.GetSampleCount(), h.GetSampleSum())
			}
		}
	}
	if _, err := NewMetrics(registry); err == nil {
		t.Error("the metrics were registered twice")
	}
}
