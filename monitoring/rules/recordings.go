package rules

import (
	"fmt"
	"slices"
)

// Names of what is recorded. The part before the first colon says what its labels are: of
// two zones, of a Service and two zones, of a Service, or none.
const (
	ZonesConnections        = "zones:vicinity_proxy_connections:rate5m"
	ZonesBytes              = "zones:vicinity_proxy_bytes:rate5m"
	ServiceZonesConnections = "service_zones:vicinity_proxy_connections:rate5m"
	ServiceZonesBytes       = "service_zones:vicinity_proxy_bytes:rate5m"
	ServiceCrossing         = "service:vicinity_proxy_crossing_connections:rate5m"
	ServiceCrossingBytes    = "service:vicinity_proxy_crossing_bytes:rate5m"
	ServiceInZone           = "service:vicinity_proxy_in_zone_connections:ratio_rate5m"
	ServiceInZoneBytes      = "service:vicinity_proxy_in_zone_bytes:ratio_rate5m"
	ClusterCrossingBytes    = "cluster:vicinity_proxy_crossing_bytes:rate5m"
	ClusterInZone           = "cluster:vicinity_proxy_in_zone_connections:ratio_rate5m"
	ClusterInZoneBytes      = "cluster:vicinity_proxy_in_zone_bytes:ratio_rate5m"
)

// knownZones chooses what has two zones. A zone that is not known is empty.
const knownZones = `{source_zone!="",destination_zone!=""}`

// Recordings are what dashboards and alerts read in place of the counters of all nodes:
// these are as many as nodes times Services times pairs of zones.
func Recordings() []Recording {
	zones := []string{"source_zone", "destination_zone"}
	service := []string{"namespace", "service"}
	serviceZones := slices.Concat(service, zones)
	return []Recording{
		{
			Name: ServiceZonesConnections, Labels: serviceZones, Says: "Connections a second, by Service and zones.",
			Expr: `sum by (namespace, service, source_zone, destination_zone) (rate(vicinity_proxy_connections_total[5m]))`,
		},
		{
			Name: ServiceZonesBytes, Labels: serviceZones, Says: "Bytes a second, by Service and zones.",
			Expr: `sum by (namespace, service, source_zone, destination_zone) (rate(vicinity_proxy_bytes_total[5m]))`,
		},
		{
			Name: ZonesConnections, Labels: zones, Says: "Connections a second, by zones.",
			Expr: `sum by (source_zone, destination_zone) (` + ServiceZonesConnections + `)`,
		},
		{
			Name: ZonesBytes, Labels: zones, Says: "Bytes a second, by zones.",
			Expr: `sum by (source_zone, destination_zone) (` + ServiceZonesBytes + `)`,
		},
		{
			Name: ServiceCrossing, Labels: service, Says: "Connections a second that leave their zone, by Service; 0 if none do.",
			Expr: crossing(ServiceZonesConnections),
		},
		{
			Name: ServiceCrossingBytes, Labels: service, Says: "Bytes a second that leave their zone, by Service; 0 if none do.",
			Expr: crossing(ServiceZonesBytes),
		},
		{
			Name: ServiceInZone, Labels: service, Says: "Share of connections that stay in their zone, by Service, where there are any.",
			Expr: fmt.Sprintf(`1 - %s / (sum by (namespace, service) (%s%s) > 0)`, ServiceCrossing, ServiceZonesConnections, knownZones),
		},
		{
			Name: ServiceInZoneBytes, Labels: service, Says: "Share of bytes that stay in their zone, by Service, where there are any.",
			Expr: fmt.Sprintf(`1 - %s / (sum by (namespace, service) (%s%s) > 0)`, ServiceCrossingBytes, ServiceZonesBytes, knownZones),
		},
		{
			Name: ClusterCrossingBytes, Says: "Bytes a second that leave their zone.",
			Expr: `sum(` + ServiceCrossingBytes + `)`,
		},
		{
			Name: ClusterInZone, Says: "Share of connections that stay in their zone, where there are any.",
			Expr: fmt.Sprintf(`1 - sum(%s) / (sum(%s%s) > 0)`, ServiceCrossing, ZonesConnections, knownZones),
		},
		{
			Name: ClusterInZoneBytes, Says: "Share of bytes that stay in their zone, where there are any.",
			Expr: fmt.Sprintf(`1 - %s / (sum(%s%s) > 0)`, ClusterCrossingBytes, ZonesBytes, knownZones),
		},
	}
}

// crossing is what of a rate goes to another zone. PromQL does not compare two labels of a
// series. So the second operand has all series by the name of their destination, and the
// first by that of their source: what is in both stays in its zone.
func crossing(rate string) string {
	by := func(label string) string {
		return fmt.Sprintf(`label_replace(%s%s, "zone", "$1", %q, "(.+)")`, rate, knownZones, label)
	}
	return fmt.Sprintf(`sum by (namespace, service) (%s unless on (namespace, service, zone, destination_zone) %s) or 0 * sum by (namespace, service) (%s%s)`,
		by("source_zone"), by("destination_zone"), rate, knownZones)
}
