package controller

import (
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
)

func TestForecast(t *testing.T) {
	for name, test := range map[string]struct {
		annotations map[string]string
		removed     []string
		off         bool
		least, most float64
	}{
		"another Service": {annotations: preferZone(), removed: []string{"other"}, most: 0},
		// After removal at once, each of the others has an even share. After removal one by one, the plan for five
		// endpoints gives the zone the endpoints of another zone, and keeps them.
		"one zone":       {annotations: preferZone(), removed: []string{"web-0", "web-1"}, least: 0.33, most: 0.34},
		"all":            {annotations: preferZone(), removed: []string{"web-0", "web-1", "web-2", "web-3", "web-4", "web-5"}, least: math.Inf(1), most: math.Inf(1)},
		"routing is off": {annotations: preferZone(), off: true, removed: []string{"web-0", "web-1", "web-2", "web-3", "web-4", "web-5"}, most: 0},
		"no plan":        {removed: []string{"web-0", "web-1", "web-2", "web-3", "web-4", "web-5"}, most: 0},
	} {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			AddressType: discoveryv1.AddressTypeIPv4,
		}
		var objects []client.Object
		for i, zone := range []string{"a", "a", "b", "b", "c", "c"} {
			pod, node := "web-"+string(rune('0'+i)), "n"+string(rune('0'+i))
			objects = append(objects, aNode(node, zone))
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{"10.0.0." + string(rune('1'+i))}, NodeName: &node, Zone: &zone, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: pod},
			})
		}
		objects = append(objects, slice, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: test.annotations},
			Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.1", Type: corev1.ServiceTypeClusterIP, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}},
		})
		w := newWorld(t, objects...)
		options := testOptions()
		options.Settings.WithoutRouting = test.off
		got, err := NewForecast(w.client, options).Overload(t.Context(), "shop", map[string][]string{"a": test.removed})
		load, known := got["a"]
		if err != nil || !known || load < test.least || load > test.most {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if len(w.slices("web")[0].Endpoints) != 6 {
			t.Errorf("%s: the slice was changed", name)
		}
	}
}

func preferZone() map[string]string { return map[string]string{v1alpha1.AnnotationSameZone: "Prefer"} }
