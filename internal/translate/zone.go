package translate

import (
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// ZoneOf is the zone of a slice's endpoint, "" if it is unknown. The label of its node wins,
// as in proxies: slices do not follow it. A zone in a slice that no label can have counts as
// unknown.
func (c *Cluster) ZoneOf(e *discoveryv1.Endpoint) string {
	if e.NodeName != nil {
		if zone := c.nodes[*e.NodeName].zone; zone != "" {
			return zone
		}
	}
	if e.Zone == nil || !c.canBeZone(*e.Zone) {
		return ""
	}
	return *e.Zone
}

// canBeZone reports whether a node can be in the zone.
func (c *Cluster) canBeZone(zone string) bool {
	if _, found := c.zone(zone); found {
		return true
	}
	return len(validation.IsValidLabelValue(zone)) == 0
}

// ImpossibleZones are the zones of endpoints that no label can have, in order.
func (c *Cluster) ImpossibleZones(eps []*discoveryv1.EndpointSlice) []string {
	var zones []string
	for _, slice := range eps {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if e.Zone != nil && *e.Zone != "" && c.ZoneOf(e) == "" && !slices.Contains(zones, *e.Zone) {
				zones = append(zones, *e.Zone)
			}
		}
	}
	slices.Sort(zones)
	return zones
}
