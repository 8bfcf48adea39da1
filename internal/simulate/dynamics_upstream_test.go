package simulate

import (
	"fmt"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/endpointslice/topologycache"
	"pgregory.net/rapid"
)

// original is the heuristic in Kubernetes' own code, for a Service without previous hints.
type original struct{ cache *topologycache.TopologyCache }

// setNodes creates nodes of one CPU, as many in each zone as the world has.
func (o original) setNodes(w *world) {
	var nodes []*corev1.Node
	for z, n := range w.nodes {
		for i := range n {
			nodes = append(nodes, &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", w.names[z], i), Labels: map[string]string{corev1.LabelTopologyZone: w.names[z]}},
				Status: corev1.NodeStatus{
					Allocatable: corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(1, resource.DecimalSI)},
					Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
				},
			})
		}
	}
	o.cache.SetNodes(logr.Discard(), nodes)
}

// hint gives hints to all endpoints of the world, and counts them by zone; nil means none.
func (o original) hint(w *world) []int {
	slice := &discoveryv1.EndpointSlice{}
	for _, e := range w.endpoints {
		ready, zone := true, e.Zone
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Zone: &zone, Conditions: discoveryv1.EndpointConditions{Ready: &ready}})
	}
	created, _, _ := o.cache.AddHints(logr.Discard(), &topologycache.SliceInfo{
		ServiceKey: "shop/web", AddressType: discoveryv1.AddressTypeIPv4, ToCreate: []*discoveryv1.EndpointSlice{slice},
	})
	var hinted []int
	for _, e := range created[0].Endpoints {
		if e.Hints == nil {
			continue
		}
		if hinted == nil {
			hinted = make([]int, len(w.names))
		}
		hinted[w.zone(e.Hints.ForZones[0].Name)]++
	}
	return hinted
}

// The model agrees with the original. Both give hints to the same Services, and to the same number
// of endpoints in a zone, or one more or less where chance decides. Both find the same zones short
// when nodes change.
func TestUpstreamModelMatchesKubernetes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld([]string{"a", "b", "c", "d"}[:rapid.IntRange(1, 4).Draw(t, "zones")])
		drawNodes := func(label string) {
			for z := range w.nodes {
				w.nodes[z] = rapid.IntRange(0, 6).Draw(t, label+w.names[z])
			}
		}
		drawNodes("nodes ")
		for _, zone := range w.names {
			for range rapid.IntRange(0, 12).Draw(t, "endpoints "+zone) {
				w.add(0, zone)
			}
		}
		theirs := original{topologycache.NewTopologyCache()}
		theirs.setNodes(w)
		want := theirs.hint(w)

		ours := newUpstreamRouter(DynamicsOptions{Seed: 1, SliceSize: rapid.IntRange(1, 20).Draw(t, "slice size")})
		ours.sync(w)
		if (ours.hinted == nil) != (want == nil) {
			t.Fatalf("the model hints %v, the original %v", ours.hinted, want)
		}
		for z, n := range want {
			if d := ours.hinted[z] - n; d < -1 || d > 1 {
				t.Fatalf("the model hints %v, the original %v", ours.hinted, want)
			}
		}
		if want == nil {
			return
		}
		ours.hinted = slices.Clone(want)
		drawNodes("nodes afterwards ")
		theirs.setNodes(w)
		if got, want := ours.short(w), len(theirs.cache.GetOverloadedServices()) > 0; got != want {
			t.Fatalf("with hints %v and nodes %v a zone is short in the model: %v, in the original: %v", ours.hinted, w.nodes, got, want)
		}
	})
}
