package hints

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/endpoint"
)

// heldZones reads the annotation, by address. A broken annotation counts as none: then the plan counts the held zones
// as its own.
func heldZones(slice *discoveryv1.EndpointSlice) map[string][]string {
	text := slice.Annotations[v1alpha1.AnnotationHeld]
	if text == "" {
		return nil
	}
	var addresses map[string][]string
	if json.Unmarshal([]byte(text), &addresses) != nil {
		return nil
	}
	held := map[string][]string{}
	for zones, list := range addresses {
		for _, address := range list {
			held[address] = strings.Split(zones, ",")
		}
	}
	return held
}

// Held returns the zones that endpoints keep for a moment although the plan takes them away, by address. It trusts the
// annotations only as far as the hints agree.
func Held(eps []*discoveryv1.EndpointSlice) map[string][]string {
	all := map[string][]string{}
	for _, slice := range eps {
		held := heldZones(slice)
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if len(e.Addresses) == 0 {
				continue
			}
			for _, zone := range held[e.Addresses[0]] {
				if kept := all[e.Addresses[0]]; slices.Contains(Zones(e), zone) && !slices.Contains(kept, zone) {
					all[e.Addresses[0]] = append(kept, zone)
				}
			}
		}
	}
	return all
}

// Unwritten counts the endpoints of a slice whose hints differ from the plan, apart from zones that are held.
func (p Plans) Unwritten(slice *discoveryv1.EndpointSlice) int {
	endpoints, unwritten := p.Apply(slice)
	if unwritten == 0 || slice.Annotations[v1alpha1.AnnotationHeld] == "" {
		return unwritten
	}
	held := heldZones(slice)
	for i := range endpoints {
		current, planned := &slice.Endpoints[i], &endpoints[i]
		if len(current.Addresses) == 0 || Same(current.Hints, planned.Hints) {
			continue
		}
		both := slices.Concat(Zones(planned), held[current.Addresses[0]])
		slices.Sort(both)
		if slices.Equal(slices.Compact(both), Zones(current)) {
			unwritten--
		}
	}
	return unwritten
}

func heldText(held map[string][]string) string {
	if len(held) == 0 {
		return ""
	}
	addresses := map[string][]string{}
	for _, address := range slices.Sorted(maps.Keys(held)) {
		zones := strings.Join(held[address], ",")
		addresses[zones] = append(addresses[zones], address)
	}
	text, err := json.Marshal(addresses)
	if err != nil {
		return "" // which texts in a map cannot cause
	}
	return string(text)
}

// Holds reports whether endpoints of any slice keep zones that the plan takes from them.
func Holds(eps []*discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(eps, func(slice *discoveryv1.EndpointSlice) bool {
		return slice.Annotations[v1alpha1.AnnotationHeld] != ""
	})
}

// Assigned reads the plan of a family back from hints, without held zones. Of an address in several slices, the first
// slice with hints counts.
func Assigned(eps []*discoveryv1.EndpointSlice, family corev1.IPFamily) map[string]allocate.ConsumerSet {
	assigned := map[string]allocate.ConsumerSet{}
	for _, slice := range endpoint.Slices(eps, family) {
		held := heldZones(slice)
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			zones := Zones(e)
			if len(e.Addresses) == 0 {
				continue
			}
			address := e.Addresses[0]
			if _, found := assigned[address]; found {
				continue
			}
			if len(zones) > 1 {
				zones = slices.DeleteFunc(zones, func(zone string) bool { return slices.Contains(held[address], zone) })
			}
			if len(zones) > 0 && zones[0] != NoZone {
				assigned[address] = allocate.NewConsumerSet(zones...)
			}
		}
	}
	return assigned
}
