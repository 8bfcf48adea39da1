package inspect

import (
	"fmt"
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// drawReading is a Service that prefers its zone, in a cluster of some zones.
func drawReading(t *rapid.T) (Reading, []*corev1.Node) {
	zones := rapid.IntRange(1, 4).Draw(t, "zones")
	var nodes []*corev1.Node
	name, protocol, port := "http", corev1.ProtocolTCP, int32(80)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Protocol: &protocol, Port: &port}},
	}
	for z := range zones {
		zone := string(rune('a' + z))
		for n := range rapid.IntRange(1, 3).Draw(t, "nodes") {
			nodes = append(nodes, &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", zone, n), Labels: map[string]string{corev1.LabelTopologyZone: zone}},
				Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
			})
		}
		for range rapid.IntRange(0, 5).Draw(t, "endpoints") {
			node := zone + "-0"
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{fmt.Sprintf("10.0.0.%d", len(slice.Endpoints)+1)}, NodeName: &node, Zone: &zone,
			})
		}
	}
	annotations := map[string]string{v1alpha1.AnnotationSameZone: v1alpha1.Prefer}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: annotations},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.1", Selector: map[string]string{"app": "web"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}},
	}
	if rapid.Bool().Draw(t, "groups") {
		annotations[v1alpha1.AnnotationProxy] = "true"
		service.Labels = map[string]string{v1alpha1.LabelServiceProxyName: v1alpha1.ServiceProxyName}
	}
	return Reading{Input: routing.Input{
		Service: service, Slices: []*discoveryv1.EndpointSlice{slice}, Cluster: intent.NewCluster(nodes), Settings: routing.DefaultSettings(),
	}}, nodes
}

// The flows between zones add up to all of the traffic, and those within zones to the figure.
func TestFlowsAreThoseOfTheFigures(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in, _ := drawReading(t)
		e, err := Explain(in)
		if err != nil {
			t.Fatal(err)
		}
		for i := range e.Families {
			f := &e.Families[i]
			if f.Question.Region.Endpoints() == 0 {
				continue
			}
			want := f.Expected.InZone
			if len(f.Stock) > 0 {
				want = f.Stock[0].Expected.InZone
			}
			all, stays := 0.0, 0.0
			for _, flow := range e.Flows(f) {
				all += flow.Percent
				if flow.From == flow.To {
					stays += flow.Percent
				}
			}
			// Percentages are rounded.
			if math.Abs(all-100) > 0.5 || math.Abs(stays-want) > 0.5 {
				t.Fatalf("%+v are %.2f %%, with %.2f %% in their zone; want 100 and %.2f", e.Flows(f), all, stays, want)
			}
		}
	})
}

// No change changes nothing, and a zone that is lost is gone with its endpoints.
func TestForeseeChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in, nodes := drawReading(t)
		families, err := ForeseeChange(in, Change{}, in.Cluster)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.Now != nil && (f.Then == nil || *f.Now.Expected != *f.Then.Expected || f.Now.Why != f.Then.Why) {
				t.Fatalf("without a change %+v becomes %+v", f.Now, f.Then)
			}
		}
		var left []*corev1.Node
		for _, node := range nodes {
			if node.Labels[corev1.LabelTopologyZone] != "a" {
				left = append(left, node)
			}
		}
		number := rapid.IntRange(0, 20).Draw(t, "number")
		after := intent.NewCluster(left)
		if families, err = ForeseeChange(in, Change{Zone: "a", Endpoints: &number}, after); err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			switch {
			case f.NoPlan != "":
			case f.Then == nil:
				if number > 0 && len(left) > 0 {
					t.Fatalf("%d endpoints are asked for, and none is left", number)
				}
			case f.Then.Endpoints != number:
				t.Fatalf("there are %d endpoints; want %d", f.Then.Endpoints, number)
			default:
				for _, zone := range f.Then.Zones {
					if zone.Zone == "a" {
						t.Fatalf("the zone that is lost is among %+v", f.Then.Zones)
					}
				}
			}
		}
	})
}
