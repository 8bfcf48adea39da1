package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// eachHint applies drop to all endpoints of a slice that have hints.
func eachHint(drop func(*discoveryv1.Endpoint)) func(client.Object) {
	return func(object client.Object) {
		if slice, ok := object.(*discoveryv1.EndpointSlice); ok {
			for i := range slice.Endpoints {
				if slice.Endpoints[i].Hints != nil {
					drop(&slice.Endpoints[i])
				}
			}
		}
	}
}

var (
	dropHints = eachHint(func(e *discoveryv1.Endpoint) { e.Hints = nil })
	dropNodes = eachHint(func(e *discoveryv1.Endpoint) {
		if e.Hints.ForNodes = nil; len(e.Hints.ForZones) == 0 {
			e.Hints = nil
		}
	})
)

func dropLabel(object client.Object) {
	if service, ok := object.(*corev1.Service); ok {
		delete(service.Labels, v1alpha1.LabelRouted)
	}
}

func withTopologyKeys(keys string) *corev1.Service {
	return aService("web", v1alpha1.AnnotationTopologyKeys, keys)
}

// An API server may accept hints without storing them. The controller sees that in the response: it sends few patches,
// and the condition is not True.
func TestDroppedHintsAreNotInForce(t *testing.T) {
	for name, test := range map[string]struct {
		service *corev1.Service
		drop    func(client.Object)
		hints   string
	}{
		"all hints":       {preferring("web"), dropHints, "- - - - - - - - - - - - | - - -"},
		"hints for nodes": {withTopologyKeys("kubernetes.io/hostname,topology.kubernetes.io/zone,*"), dropNodes, twelve + " | a b c"},
		"the label":       {preferring("web"), dropLabel, "- - - - - - - - - - - - | - - -"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(threeZones(), test.service, aSlice("web", 0, twelve), aSlice("web", 1, "a b c"))...)
			w.drop = test.drop
			for end := w.clock.Now().Add(time.Hour); w.clock.Now().Before(end); {
				result := w.sync("web")
				w.copyLabel("web")
				if result.RequeueAfter == 0 {
					t.Fatal("it is never tried again")
				}
				w.clock.SetTime(w.clock.Now().Add(result.RequeueAfter))
			}
			sent := w.takePatches()
			if n := len(patchesOf(sent, "*v1.EndpointSlice")) + len(patchesOf(sent, "*v1.Service")); n > 25 {
				t.Errorf("%d patches in an hour", n)
			}
			condition := w.condition()
			if condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason != "Allocated,HintsLost" {
				t.Fatalf("condition %+v", condition)
			}
			if reported := w.newEvents(); len(reported) != 1 || !strings.HasPrefix(reported[0], "Warning TopologyHintsLost ") {
				t.Errorf("reported %q", reported)
			}
			if got := w.hints(); got != test.hints {
				t.Errorf("hints %s, want %s", got, test.hints)
			}
			if n := testutil.ToFloat64(w.reconciler.metrics.losses); n < 3 {
				t.Errorf("the metric counts %v", n)
			}

			w.drop = nil
			w.settle("web")
			if condition := w.condition(); condition.Reason != "Allocated" || condition.Status != metav1.ConditionTrue {
				t.Errorf("condition %+v", condition)
			}
		})
	}
}
