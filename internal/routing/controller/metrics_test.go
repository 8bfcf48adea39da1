package controller

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// The number of series is limited, for any number of Services.
func TestMetricsOfServices(t *testing.T) {
	// A Service of two families counts once, by its larger family.
	second := aSlice("large", 4, "a b c")
	second.AddressType = discoveryv1.AddressTypeIPv6
	for i := range second.Endpoints {
		second.Endpoints[i].Addresses = []string{fmt.Sprintf("fd00::%d", i+1)}
	}
	objects := append(threeZones(), aSlice("small", 0, "a b"), preferring("small"), aSlice("large", 1, twelve+" a"), second, preferring("large"),
		aSlice("middle", 2, twelve), preferring("middle"), aSlice("hard", 3, "a"), aService("hard", v1alpha1.AnnotationSameZone, "Require"))
	w := newWorld(t, objects...)
	for _, name := range []string{"small", "large", "middle", "hard"} {
		w.settle(name)
	}
	registry := prometheus.NewPedanticRegistry()
	for _, c := range w.reconciler.metrics.all() {
		registry.MustRegister(c)
	}
	want := `
# HELP vicinity_routing_services Services that ask for routing, by approach, delivery and state.
# TYPE vicinity_routing_services gauge
vicinity_routing_services{approach="Prefer",delivery="Hints",state="allocated"} 3
vicinity_routing_services{approach="Require",delivery="Hints",state="undelivered"} 1
# HELP vicinity_routing_service_in_zone_ratio Predicted share of the traffic of a Service that stays in its zone.
# TYPE vicinity_routing_service_in_zone_ratio gauge
vicinity_routing_service_in_zone_ratio{family="IPv4",namespace="shop",service="large"} 1
vicinity_routing_service_in_zone_ratio{family="IPv6",namespace="shop",service="large"} 1
vicinity_routing_service_in_zone_ratio{family="IPv4",namespace="shop",service="middle"} 1
# HELP vicinity_routing_hint_writes_total Writes of hints to EndpointSlices, by result.
# TYPE vicinity_routing_hint_writes_total counter
vicinity_routing_hint_writes_total{result="done"} 4
`
	names := []string{"vicinity_routing_services", "vicinity_routing_service_in_zone_ratio", "vicinity_routing_hint_writes_total"}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	// Writes are reported by approach.
	for approach, n := range map[intent.Approach]uint64{intent.ApproachPrefer: 4, intent.ApproachRequire: 0} {
		gathered, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range gathered {
			if family.GetName() != "endpoint_slice_controller_changes_endpointslices_per_sync" {
				continue
			}
			for _, metric := range family.GetMetric() {
				if metric.GetLabel()[0].GetValue() == string(approach) && uint64(metric.GetHistogram().GetSampleSum()) != n {
					t.Errorf("%s: %g written, want %d", approach, metric.GetHistogram().GetSampleSum(), n)
				}
			}
		}
	}
}

// A zone with few endpoints has a higher load than the others.
func TestMetricsOfZones(t *testing.T) {
	keeping := aService("web", v1alpha1.AnnotationTopologyKeys, "topology.kubernetes.io/zone,*") // however few there are
	w := newWorld(t, append(threeZones(), aSlice("web", 0, "a a a b b b b c c c c c"), keeping, aSlice("plain", 1, twelve), aService("plain"))...)
	w.settle("web")
	w.settle("plain")
	want := `
# HELP vicinity_routing_service_zone_load_ratio Predicted mean load of the endpoints of a Service in a zone, where 1 is the even share.
# TYPE vicinity_routing_service_zone_load_ratio gauge
vicinity_routing_service_zone_load_ratio{family="IPv4",namespace="shop",service="web",zone="a"} 1.3333333333333333
vicinity_routing_service_zone_load_ratio{family="IPv4",namespace="shop",service="web",zone="b"} 1
vicinity_routing_service_zone_load_ratio{family="IPv4",namespace="shop",service="web",zone="c"} 0.8
`
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(w.reconciler.metrics.services)
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "vicinity_routing_service_zone_load_ratio"); err != nil {
		t.Error(err)
	}
}

// Figures describe the plan in force, not the decision.
func TestMetricsOfPlanInForce(t *testing.T) {
	hard := aService("web", v1alpha1.AnnotationSameZone, v1alpha1.Require)
	groups := preferring("web")
	groups.UID = "web-uid"
	groups.Annotations[v1alpha1.AnnotationProxy] = "true"
	needing := aService("web", v1alpha1.AnnotationSameZone, v1alpha1.Require, v1alpha1.AnnotationProxy, "true")
	needing.UID = "web-uid"
	for name, test := range map[string]struct {
		service *corev1.Service
		drop    func(client.Object)
		change  func(*world)
		inZone  float64
	}{
		"hints":                                  {service: preferring("web"), inZone: 1},
		"hints for nodes":                        {service: withTopologyKeys("kubernetes.io/hostname,*"), inZone: 1},
		"hints for nodes that are not stored":    {service: withTopologyKeys("kubernetes.io/hostname,*"), drop: dropNodes, inZone: 1. / 3},
		"what hints cannot express":              {service: hard, inZone: 1. / 3},
		"groups without a proxy yet":             {service: needing, inZone: 1. / 3},
		"groups without a proxy yet, with hints": {service: groups, inZone: 1},
		"groups": {service: needing, inZone: 1, change: func(w *world) {
			service := w.service("web")
			service.Labels = map[string]string{v1alpha1.LabelServiceProxyName: v1alpha1.ServiceProxyName}
			w.update(service)
		}},
		"hints that do not stay": {service: preferring("web"), inZone: 1. / 3, change: func(w *world) {
			w.recordOfWeb().backoff.Failures = reportedLosses
			w.removeHints()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(threeZones(), test.service, aSlice("web", 0, twelve))...)
			w.drop = test.drop
			for range 5 {
				w.sync("web")
				w.copyLabel("web")
				w.clock.SetTime(w.clock.Now().Add(settle))
			}
			if test.change != nil {
				test.change(w)
				w.sync("web")
			}
			families := w.metricsOf("web").families
			if len(families) != 1 || math.Abs(families[0].figures.InZone-test.inZone) > 1e-9 {
				t.Errorf("%+v, want %g in the zone", families, test.inZone)
			}
		})
	}
}

func (w *world) metricsOf(name string) report {
	return w.reconciler.memory.reports[types.NamespacedName{Namespace: "shop", Name: name}]
}

// Endpoints that change their zones count with either delivery.
func TestMovedEndpointsAreCounted(t *testing.T) {
	for name, service := range map[string]*corev1.Service{
		"hints": preferring("web"), "groups": proxied(v1alpha1.AnnotationTopologyMode, v1alpha1.PolicyPrefix+"optimal"),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(threeZones(), service, aSlice("web", 0, twelve), aPolicy("optimal", v1alpha1.RoutingPolicySpec{Algorithm: "optimal"}))...)
			registry := prometheus.NewPedanticRegistry()
			registry.MustRegister(w.reconciler.metrics.reallocated)
			moved := func() float64 { return histogram(t, registry).GetSampleSum() }
			w.syncAfter(0)
			w.copyLabel("web")
			w.acknowledge(w.newestVersion())
			w.settle("web")
			if got := moved(); got != 0 {
				t.Errorf("%g endpoints are counted before any has moved", got)
			}
			if none := histogram(t, registry).GetBucket()[0]; none.GetUpperBound() != 0 || none.GetCumulativeCount() == 0 {
				t.Errorf("the first bucket has %d syncs and ends at %g, want the syncs that moved none", none.GetCumulativeCount(), none.GetUpperBound())
			}
			slice := w.slices("web")[0]
			slice.Endpoints = slices.Delete(slice.Endpoints, 4, 7) // one is left in zone b
			w.update(slice)
			w.acknowledge("")
			w.settle("web")
			before := moved()
			if before < 1 || before > 9 {
				t.Errorf("%g endpoints are counted, want some of the nine", before)
			}
			w.settle("web")
			if got := moved(); got != before {
				t.Errorf("%g endpoints are counted again", got-before)
			}
		})
	}
}

// histogram gathers the only series of a registry.
func histogram(t *testing.T, registry *prometheus.Registry) *dto.Histogram {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families[0].GetMetric()[0].GetHistogram()
}

// A slice that Kubernetes writes with the hints of the webhook counts once, although the controller writes nothing.
func TestSlicesOfTheWebhookAreCounted(t *testing.T) {
	w := newWorld(t, append(threeZones(), preferring("web"), aSlice("web", 0, twelve))...)
	registry := prometheus.NewRegistry()
	registry.MustRegister(w.reconciler.metrics.changes)
	w.settle("web")
	before := histogram(t, registry).GetSampleSum()
	for _, added := range []string{twelve + " a=a", twelve + " a=a b=b"} {
		w.takePatches()
		slice := w.slices("web")[0]
		slice.Endpoints = append(slice.Endpoints, aSlice("web", 0, added).Endpoints[len(slice.Endpoints)])
		w.update(slice)
		w.settle("web")
		w.settle("web")
		before++
		if got, sent := histogram(t, registry).GetSampleSum(), w.takePatches(); got != before || len(sent) > 0 {
			t.Errorf("%g slices are counted, want %g; the controller writes %q", got, before, sent)
		}
	}
}
