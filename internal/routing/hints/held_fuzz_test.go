package hints

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// Tenants can write the annotation of a slice. It cannot hold a zone that the hints of the endpoint lack. What the
// controller writes is read back unchanged.
func FuzzHeld(f *testing.F) {
	for _, text := range []string{`{"a,b":["10.1.0.1"]}`, `{"a":["10.1.0.1","10.1.0.2"],"b":["10.1.0.1"]}`, `{"":[""]}`, `{"a":null}`, "{", `[]`, `{"a":[1]}`} {
		f.Add(text, "a")
	}
	f.Fuzz(func(t *testing.T, text, zone string) {
		slice := &discoveryv1.EndpointSlice{Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.1.0.1"}, Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}},
			{Addresses: []string{"10.1.0.2"}},
			{},
		}}
		slice.Annotations = map[string]string{v1alpha1.AnnotationHeld: text}
		before := slice.DeepCopy()
		for address, zones := range Held([]*discoveryv1.EndpointSlice{slice}) {
			if address != "10.1.0.1" || !slices.Equal(zones, []string{zone}) {
				t.Fatalf("%s keeps %q", address, zones)
			}
		}
		if !reflect.DeepEqual(slice, before) {
			t.Fatal("the slice is changed")
		}
		held := heldZones(slice)
		for address, zones := range held {
			if strings.ToValidUTF8(address+strings.Join(zones, ""), "") != address+strings.Join(zones, "") {
				return // which no API object has
			}
		}
		slice.Annotations[v1alpha1.AnnotationHeld] = heldText(held)
		if again := heldZones(slice); len(again)+len(held) > 0 && !reflect.DeepEqual(again, held) {
			t.Fatalf("%v, written and read %v", held, again)
		}
	})
}
