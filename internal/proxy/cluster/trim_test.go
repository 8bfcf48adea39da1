package cluster

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/compile"
	"vicinity.dev/vicinity/internal/proxy/view"
)

func managed() []metav1.ManagedFieldsEntry { return []metav1.ManagedFieldsEntry{{Manager: "kubectl"}} }

func TestTrimming(t *testing.T) {
	trim := &Trimmer{}
	service := aService("web", "10.96.0.1")
	service.ManagedFields = managed()
	service.Annotations = map[string]string{"long": "text", corev1.AnnotationLoadBalancerSourceRangesKey: "192.0.2.0/24"}
	service.Labels["app"], service.Labels[corev1.IsHeadlessService] = "web", ""
	service.Spec.Selector = map[string]string{"app": "web"}
	service.CreationTimestamp = metav1.NewTime(start)
	service.Status.Conditions = []metav1.Condition{{Type: "x"}}
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.9"}}

	group := notFor(aGroup("web", "web-1", "10.1.1.1", "10.1.1.2"), "b", "c")
	group.ManagedFields = managed()
	group.Annotations = map[string]string{"vicinity.dev/marks": "{}"}
	group.Labels[v1alpha1.LabelService] = "web"
	group.Spec.Tiers = []string{"example.com/rack", "*"}
	group.Spec.Endpoints[1].Domains = map[string]string{"example.com/rack": "r1"}

	ready, zone, node, hostname := true, "a", "node-a", "web-0"
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-x", ManagedFields: managed(),
			Labels:      map[string]string{discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "controller"},
			Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: "2026-01-01T00:00:00Z"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{"10.1.1.1"}, Zone: &zone, NodeName: &node, Hostname: &hostname, TargetRef: &corev1.ObjectReference{Name: "web-0"},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready}, Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "a"}}},
		}},
	}
	own := aNode("a")
	own.ManagedFields = managed()
	own.Status.Images = []corev1.ContainerImage{{SizeBytes: 1}}

	objects := map[runtime.Object]cache.TransformFunc{service: trim.Service, group: trim.Group, slice: trim.Slice, own: trim.Node}
	for object, with := range objects {
		before := object.DeepCopyObject()
		once, err := with(object)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(object, before) {
			t.Errorf("%T: trimming changed the input", object)
		}
		twice, err := with(once)
		if err != nil || !reflect.DeepEqual(once, twice) {
			t.Errorf("%T: trimming twice changes it: %v", object, err)
		}
		if len(once.(metav1.Object).GetManagedFields()) > 0 {
			t.Errorf("%T: it is not trimmed", object)
		}
		tombstone := cache.DeletedFinalStateUnknown{}
		if same, err := with(tombstone); err != nil || same != any(tombstone) {
			t.Errorf("%T: trimming changed another field", object)
		}
	}
	trimmed := func(object runtime.Object) any {
		made, err := objects[object](object)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	smallService, smallGroup, smallSlice := trimmed(service).(*corev1.Service), trimmed(group).(*v1alpha1.EndpointGroup), trimmed(slice).(*discoveryv1.EndpointSlice)
	if len(smallService.Annotations) != 0 || len(smallService.Labels) != 1 || len(smallService.Spec.Selector) != 1 || smallService.Spec.Selector["app"] != "" || len(smallService.Status.Conditions) != 0 {
		t.Errorf("the Service retains %+v", smallService)
	}
	if len(smallGroup.Annotations) != 0 || len(smallGroup.Labels) != 2 || !reflect.DeepEqual(smallGroup.Spec, group.Spec) {
		t.Errorf("the group keeps %+v", smallGroup)
	}
	if e := smallSlice.Endpoints[0]; e.TargetRef != nil || e.Hostname != nil || *e.Zone != "a" || *e.NodeName != "node-a" || !*e.Conditions.Ready || e.Hints == nil {
		t.Errorf("the slice keeps %+v", e)
	}

	// The compiled rules are the same.
	options := (&view.Settings{AllServices: true}).Options(own, "a", nil)
	for name, groups := range map[string][]*v1alpha1.EndpointGroup{"groups": {group}, "slices": nil} {
		var small []*v1alpha1.EndpointGroup
		if groups != nil {
			small = []*v1alpha1.EndpointGroup{smallGroup}
		}
		whole := compile.Service(compile.Input{Service: service, Groups: groups, Slices: []*discoveryv1.EndpointSlice{slice}}, options)
		less := compile.Service(compile.Input{Service: smallService, Groups: small, Slices: []*discoveryv1.EndpointSlice{smallSlice}}, options)
		if !reflect.DeepEqual(whole, less) || len(whole.Families) == 0 {
			t.Errorf("by %s: the trimmed objects give %+v, the whole ones %+v", name, less, whole)
		}
	}
}
