package proxy

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// observed returns the number of values in a histogram, and their sum.
func observed(t *testing.T, h prometheus.Histogram) (count uint64, sum float64) {
	t.Helper()
	var written dto.Metric
	if err := h.Write(&written); err != nil {
		t.Fatal(err)
	}
	return written.GetHistogram().GetSampleCount(), written.GetHistogram().GetSampleSum()
}

// aSlice returns a slice of the Service web with an endpoint and the time of the change that triggered it.
func aSlice(triggered time.Time) *discoveryv1.EndpointSlice {
	number, protocol, ready, name := int32(8080), corev1.ProtocolTCP, true, ""
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-x", Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
			Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: triggered.Format(time.RFC3339Nano)},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.1.1.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &number, Protocol: &protocol}},
	}
}

// Latency counts once for each effective change.
func TestLatencies(t *testing.T) {
	w := newWorld(t)
	w.settings.AllServices = true
	web := inHandOver("web", "10.96.0.1")
	headless := inHandOver("headless", corev1.ClusterIPNone)
	w.put(web, headless, aSlice(start.Add(-time.Hour)))
	w.clock.Step(time.Second)
	w.right("at first")
	count, sum := observed(t, w.metrics.latency)
	if count != 1 || sum < 0.9 || sum > 1.1 {
		t.Errorf("%d changes, %g s", count, sum)
	}
	if count, _ := observed(t, w.metrics.programming); count != 0 {
		t.Errorf("%d changes from before the start are counted", count)
	}
	w.put(aSlice(w.clock.Now().Add(-500 * time.Millisecond)))
	w.run(time.Minute)
	if count, sum := observed(t, w.metrics.programming); count != 1 || sum < 0.5 || sum > 0.6 {
		t.Errorf("%d changes of pods, %g s", count, sum)
	}
	w.put(aSlice(w.clock.Now()))
	w.run(time.Minute)
	if count, _ := observed(t, w.metrics.latency); count != 3 {
		t.Errorf("%d changes, want 3", count)
	}
	w.drop(aSlice(start))
	w.right("without endpoints")
}
