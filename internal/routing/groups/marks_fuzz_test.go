package groups

import (
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// Any annotation of a group gives a plan with consumers and endpoints of the group only. Written marks read back
// unchanged.
func FuzzMarks(f *testing.F) {
	for _, text := range []string{
		"", "{", "[]", `{"leaving":{"a":"2026-01-02T15:04:05Z"},"extra":["b"]}`, `{"arrived":{"2026-01-02T15:04:05.5Z":["10.1.0.1"],"x":["10.1.0.2"]}}`,
		`{"waiting":["10.1.0.1"],"narrowing":"2026-01-02T15:04:05+01:00","home":"c","nowhere":true}`, `{"leaving":{"a":"0001-01-01T00:00:00Z"}}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		group := &v1alpha1.EndpointGroup{Spec: v1alpha1.EndpointGroupSpec{
			AddressType: corev1.IPv4Protocol, Consumers: []v1alpha1.GroupConsumer{{Zone: "a", Weight: 1000}, {Zone: "b", Weight: 1}},
			Endpoints: []v1alpha1.GroupEndpoint{{Address: "10.1.0.1"}, {Address: "10.1.0.2"}},
		}}
		group.Annotations = map[string]string{v1alpha1.AnnotationGroupMarks: text}
		before := group.DeepCopy()
		m := readMarks(group)
		for _, c := range m.plannedConsumers(group) {
			if !slices.Contains(group.Spec.Consumers, c) {
				t.Fatalf("planned is %v", c)
			}
		}
		for address := range Assigned([]*v1alpha1.EndpointGroup{group}, corev1.IPv4Protocol) {
			if address != "10.1.0.1" && address != "10.1.0.2" {
				t.Fatalf("the endpoint %s is assigned", address)
			}
		}
		if !reflect.DeepEqual(group, before) {
			t.Fatal("the group is changed")
		}
		written := m.text()
		group.Annotations[v1alpha1.AnnotationGroupMarks] = written
		if again := readMarks(group); !again.equalWithoutEndpoints(m) || again.text() != written {
			t.Fatalf("%+v, written and read %+v", m, again)
		}
		times := m.arrivals()
		if again := (marks{Arrived: byArrival(times)}).arrivals(); len(again) != len(times) {
			t.Fatalf("%v, written and read %v", times, again)
		}
	})
}
