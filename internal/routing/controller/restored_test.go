package controller

import (
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/shell"
)

// etcd is restored from a copy that is older than all writes of Vicinity, so all resource versions are lower than the
// ones it wrote. The controller goes on without a restart, and reports no lost hints.
func TestRestoredEtcd(t *testing.T) {
	for name, before := range map[string]func(*world){
		"to before all writes": func(*world) {},
		"to the label alone": func(w *world) {
			service := w.service("web")
			service.Labels = map[string]string{v1alpha1.LabelRouted: "true"}
			w.update(service)
			w.copyLabel("web")
		},
	} {
		t.Run(name, func(t *testing.T) {
			objects := func() []client.Object {
				return append(threeZones(), preferring("web"), aSlice("web", 0, twelve))
			}
			w := newWorld(t, objects()...)
			w.settle("web")
			for range 5 { // resource versions grow
				slice := w.slices("web")[0]
				metav1.SetMetaDataAnnotation(&slice.ObjectMeta, "note", slice.ResourceVersion)
				w.update(slice)
				service := w.service("web")
				metav1.SetMetaDataAnnotation(&service.ObjectMeta, "note", service.ResourceVersion)
				w.update(service)
			}
			slice := w.slices("web")[0]
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.9.9.9"}, Zone: slice.Endpoints[0].Zone})
			w.update(slice)
			w.sync("web") // which writes now
			w.newEvents()

			restored := newWorld(t, objects()...)
			before(restored)
			w.client = restored.client
			r := w.reconciler
			r.client, r.nodes.client = restored.client, restored.client
			begin := w.clock.Now()
			for w.hints() != twelve {
				if w.clock.Now().Sub(begin) > 2*shell.TrustFor {
					t.Fatalf("%s after etcd was restored the hints are %s", w.clock.Now().Sub(begin), w.hints())
				}
				result := w.sync("web")
				w.copyLabel("web")
				w.clock.SetTime(w.clock.Now().Add(max(result.RequeueAfter, time.Second)))
			}
			if waited := w.clock.Now().Sub(begin); waited < shell.TrustFor {
				t.Errorf("a cache is trusted more than a write %s ago", waited)
			}
			w.settle("web")
			if condition := w.condition(); condition.Status != metav1.ConditionTrue || condition.Reason != "Allocated" {
				t.Errorf("condition %+v", condition)
			}
			if losses := w.recordOfWeb().backoff.Failures; losses > 0 {
				t.Errorf("%d losses are counted", losses)
			}
		})
	}
}
