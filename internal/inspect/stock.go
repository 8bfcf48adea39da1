package inspect

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/routing/intent"
	"vicinity.dev/vicinity/internal/routing/kubeproxy"
	"vicinity.dev/vicinity/internal/routing/stock"
)

// Stock says what stock proxies do for some ports, the same for each, by the stored hints.
type Stock struct {
	Ports    []StockPort `json:"ports"`
	Expected *Figures    `json:"expected,omitempty"`
	Zones    []StockZone `json:"zones"`

	Ready   int              `json:"-"` // endpoints
	Figures allocate.Figures `json:"-"`
}

// StockPort names a port.
type StockPort struct {
	Name     string `json:"name"`
	Protocol string `json:"protocol"`
}

// StockZone is the common choice of several nodes of a zone.
type StockZone struct {
	Zone  string         `json:"zone"`
	Nodes int            `json:"nodes,omitempty"` // none if that is unknown
	Mode  kubeproxy.Mode `json:"mode"`
	Why   string         `json:"why,omitempty"`
	Uses  map[string]int `json:"uses"` // by the zone of the endpoints
}

// stockLeaves returns why stock proxies do not serve a Service, empty if they do.
func stockLeaves(service *corev1.Service) string {
	if intent.IsHeadless(service) {
		return "the Service is headless: its clients connect to addresses from DNS"
	}
	if name, found := service.Labels[v1alpha1.LabelServiceProxyName]; found {
		return fmt.Sprintf("the label %s leaves the Service to %s", v1alpha1.LabelServiceProxyName, cmp.Or(name, "another proxy"))
	}
	return ""
}

// stockPorts returns the ports of a family as stock proxies see them, with endpoints in the zones of their nodes:
// slices may lack zones or have old ones.
func stockPorts(eps []*discoveryv1.EndpointSlice, family corev1.IPFamily, ready []intent.Endpoint) []stock.Port {
	zones := make(map[string]string, len(ready))
	for i := range ready {
		zones[ready[i].Address] = ready[i].Zone
	}
	ports := slices.DeleteFunc(stock.Ports(eps), func(port stock.Port) bool { return port.Family != family })
	for _, port := range ports {
		for i := range port.Endpoints {
			e := &port.Endpoints[i]
			if zone, found := zones[e.Address]; found {
				e.Zone = zone
			}
		}
	}
	return ports
}

// stock returns the choices of stock proxies by the stored slices of a family. If nodes are unknown, a client stands
// for each zone, and numbers are left out.
func (in *Reading) stock(capacity intent.Capacity, family corev1.IPFamily, ready []intent.Endpoint) []Stock {
	views := []Stock{}
	for _, port := range stockPorts(in.Slices, family, ready) {
		index := port.Index()
		clients := port.ZoneClients()
		if !in.lacksNodes() {
			clients = stock.Clients(in.Cluster, capacity)
		}
		rows, figures := index.View(clients)
		view := Stock{
			Ports: []StockPort{{port.Name, string(port.Protocol)}}, Expected: figuresOf(figures), Zones: []StockZone{},
			Ready: index.Ready(), Figures: figures,
		}
		for _, row := range rows {
			if in.lacksNodes() {
				row.Nodes = 0
			}
			view.Zones = append(view.Zones, StockZone(row))
		}
		if in.lacksNodes() {
			view.Expected = nil
		}
		same := slices.IndexFunc(views, func(other Stock) bool {
			return other.Ready == view.Ready && other.Figures == view.Figures && reflect.DeepEqual(other.Zones, view.Zones)
		})
		if same >= 0 {
			views[same].Ports = append(views[same].Ports, view.Ports...)
			continue
		}
		views = append(views, view)
	}
	return views
}
