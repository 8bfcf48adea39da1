package shell

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// NewCounter makes a counter with one label. The given values have a series from the start.
func NewCounter[T ~string](name, help, label string, values ...T) *prometheus.CounterVec {
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	for _, value := range values {
		counter.WithLabelValues(string(value))
	}
	return counter
}

// NewGauge makes a gauge that calls read at each scrape.
func NewGauge(name, help string, read func() int) prometheus.GaugeFunc {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(read()) })
}

// Register registers the metrics of a controller.
func Register(collectors ...prometheus.Collector) error {
	for _, c := range collectors {
		if err := crmetrics.Registry.Register(c); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	return nil
}
