package routing

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

// eachHint has a part of all hints of a slice dropped.
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

// nearNode asks for an endpoint of the own node first.
func nearNode(keys string) *corev1.Service {
	return aService("web", v1alpha1.AnnotationTopologyKeys, keys)
}

// An API server that takes hints and does not store them is found out by its answer:
// the condition is not True, and few patches are sent in vain.
func TestDroppedHintsAreNotInForce(t *testing.T) {
	for name, test := range map[string]struct {
		service *corev1.Service
		drop    func(client.Object)
		says    string
		hints   string
	}{
		"all hints":                         {preferring("web"), dropHints, "hints are not stored as written", "- - - - - - - - - - - -"},
		"hints for nodes":                   {nearNode("kubernetes.io/hostname,topology.kubernetes.io/zone,*"), dropNodes, "hints for nodes are not stored", twelve},
		"hints for nodes, without a zone's": {nearNode("kubernetes.io/hostname,*"), dropNodes, "hints for nodes are not stored", "- - - - - - - - - - - -"},
		"the label":                         {preferring("web"), dropLabel, "the label vicinity.dev/routed is not stored", "- - - - - - - - - - - -"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(threeZones(), test.service, aSlice("web", 0, twelve))...)
			w.drop = test.drop
			patches := func(period time.Duration) int {
				t.Helper()
				w.sent()
				for end := w.clock.Now().Add(period); w.clock.Now().Before(end); {
					result := w.sync("web")
					w.copyLabel("web")
					if result.RequeueAfter == 0 {
						t.Fatal("it is never tried again")
					}
					w.clock.SetTime(w.clock.Now().Add(result.RequeueAfter))
				}
				sent := w.sent()
				return len(of(sent, "*v1.EndpointSlice")) + len(of(sent, "*v1.Service"))
			}
			first := patches(10 * time.Minute)
			condition := w.condition()
			if condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason != "Allocated,HintsDropped" || !strings.HasPrefix(condition.Message, test.says) {
				t.Fatalf("condition %+v", condition)
			}
			if told := w.told(); len(told) != 1 || !strings.HasPrefix(told[0], "Warning TopologyHintsDropped ") {
				t.Errorf("told %q", told)
			}
			day := patches(24 * time.Hour)
			if first > 8 || day > 50 {
				t.Errorf("%d patches in the first ten minutes, %d in a day", first, day)
			}
			if got := w.hints(); got != test.hints {
				t.Errorf("hints %s, want %s", got, test.hints)
			}
			if n := testutil.ToFloat64(w.reconciler.metrics.drops); n < 2 {
				t.Errorf("the metric counts %v", n)
			}

			// A restart does not believe it either, and tells nothing.
			w.start(testOptions())
			w.copyLabel("web")
			for range 3 {
				result := w.sync("web")
				if condition := w.condition(); condition.Status != metav1.ConditionFalse {
					t.Fatalf("condition %+v after a restart", condition)
				}
				w.clock.SetTime(w.clock.Now().Add(min(result.RequeueAfter, 5*time.Second)))
			}
			if told := w.told(); len(told) > 0 {
				t.Errorf("after a restart: told %q", told)
			}

			// It ends by itself.
			w.drop = nil
			w.settle("web")
			if condition := w.condition(); condition.Reason != "Allocated" || condition.Status != metav1.ConditionTrue {
				t.Errorf("condition %+v", condition)
			}
		})
	}
}

// While nothing but hints for nodes is dropped, those for zones follow the pods at once.
func TestZonesFollowWhileNodesAreDropped(t *testing.T) {
	w := newWorld(t, append(threeZones(), nearNode("kubernetes.io/hostname,topology.kubernetes.io/zone,*"), aSlice("web", 0, twelve))...)
	w.drop = dropNodes
	for range 8 {
		w.sync("web")
		w.copyLabel("web")
		w.clock.SetTime(w.clock.Now().Add(time.Second))
	}
	w.create(aSlice("web", 1, "c"))
	w.copyLabel("web")
	w.sync("web")
	if got, want := w.hints(), twelve+" | c"; got != want {
		t.Errorf("hints %s, want %s", got, want)
	}
}
