package hints

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/endpoint"
)

// Assigned reads the plan of a family back from hints, without the zones that endpoints
// only keep for a while. Of an address in several slices the first slice with hints
// counts.
func Assigned(eps []*discoveryv1.EndpointSlice, family corev1.IPFamily) map[string]allocate.ConsumerSet {
	list := endpoint.Slices(eps, family)
	endpoints := 0
	for _, slice := range list {
		endpoints += len(slice.Endpoints)
	}
	assigned := make(map[string]allocate.ConsumerSet, endpoints)
	sets := map[string]allocate.ConsumerSet{} // few, so that endpoints share them
	for _, slice := range list {
		held := heldZones(slice)
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if len(e.Addresses) == 0 || e.Hints == nil || len(e.Hints.ForZones) == 0 {
				continue
			}
			address := e.Addresses[0]
			if _, found := assigned[address]; found {
				continue
			}
			key := e.Hints.ForZones[0].Name
			if len(e.Hints.ForZones) > 1 {
				zones := slices.DeleteFunc(Zones(e), func(zone string) bool { return slices.Contains(held[address], zone) })
				if len(zones) == 0 {
					continue
				}
				key = strings.Join(zones, ",")
			}
			set, found := sets[key]
			if !found {
				set = allocate.NewConsumerSet(strings.Split(key, ",")...)
				sets[key] = set
			}
			assigned[address] = set
		}
	}
	return assigned
}
