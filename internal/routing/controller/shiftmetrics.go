package controller

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/shift"
)

// shiftCollector reads the status of ZoneShifts on each scrape, so that the series of a deleted one are gone.
type shiftCollector struct {
	client client.Reader
	clock  clock.PassiveClock

	accepted, inForce, services, created, end *prometheus.Desc
}

func newShiftCollector(c client.Reader, now clock.PassiveClock) *shiftCollector {
	one := []string{"shift"}
	return &shiftCollector{
		client: c, clock: now,
		accepted: prometheus.NewDesc("vicinity_zone_shift_accepted", "1 if a ZoneShift is accepted and its time is not over.", one, nil),
		inForce:  prometheus.NewDesc("vicinity_zone_shift_in_force", "1 if all hints, groups and proxies follow an accepted ZoneShift.", []string{"shift", "key", "domain"}, nil),
		services: prometheus.NewDesc("vicinity_zone_shift_services", "Services with endpoints in the domain of an accepted ZoneShift, by its effect.", []string{"shift", "effect"}, nil),
		created:  prometheus.NewDesc("vicinity_zone_shift_created_timestamp_seconds", "Creation of a ZoneShift.", one, nil),
		end:      prometheus.NewDesc("vicinity_zone_shift_end_timestamp_seconds", "End of a ZoneShift.", one, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *shiftCollector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.accepted, c.inForce, c.services, c.created, c.end} {
		descriptions <- d
	}
}

// scrapeWait is how long a scrape waits for the cache.
const scrapeWait = time.Second

// Collect implements prometheus.Collector.
func (c *shiftCollector) Collect(samples chan<- prometheus.Metric) {
	ctx, stop := context.WithTimeout(context.Background(), scrapeWait)
	defer stop()
	var all v1alpha1.ZoneShiftList
	if err := c.client.List(ctx, &all); err != nil {
		return // the cache has not started
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		samples <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for i := range all.Items {
		zs := &all.Items[i]
		status, accepted, inForce := &zs.Status, 0.0, 0.0
		if s, _ := shift.Of(zs, c.clock.Now()); s == nil || s.Returning {
			status = new(v1alpha1.ZoneShiftStatus)
		} else {
			accepted = 1
		}
		if c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionInForce); c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == zs.Generation {
			inForce = 1
		}
		gauge(c.accepted, accepted, zs.Name)
		gauge(c.inForce, inForce, zs.Name, zs.Spec.From.Key, zs.Spec.From.Value)
		gauge(c.services, float64(status.Services), zs.Name, "moving")
		gauge(c.services, float64(status.Yielding), zs.Name, "yielding")
		gauge(c.services, float64(status.Staying), zs.Name, "staying")
		gauge(c.created, float64(zs.CreationTimestamp.Unix()), zs.Name)
		gauge(c.end, float64(shift.Until(zs).Unix()), zs.Name)
	}
}
