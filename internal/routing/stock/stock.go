// Package stock predicts what stock proxies do with the hints of EndpointSlices: which endpoints the kube-proxy of a
// node uses, and what follows for the traffic.
package stock

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/endpoint"
	"vicinity.dev/vicinity/internal/routing/intent"
	"vicinity.dev/vicinity/internal/routing/kubeproxy"
)

// Port has the endpoints behind one port of a Service in one address family, as stock proxies see them.
type Port struct {
	Family   corev1.IPFamily
	Name     string
	Protocol corev1.Protocol
	// Endpoints are in the order of addresses and ports.
	Endpoints []Endpoint
}

// Endpoint is an endpoint as kube-proxy reads it.
type Endpoint struct {
	Address string
	Port    int32
	// Zone is the endpoint's own zone, which proxies do not use.
	Zone               string
	State              endpoint.State
	ForZones, ForNodes []string
}

// Ports reads slices as kube-proxy does: by port name, without slices of another proxy or of a headless Service. Ports
// are in the order of families, names and protocols.
func Ports(eps []*discoveryv1.EndpointSlice) []Port {
	var ports []Port
	for _, slice := range slices.Concat(endpoint.Slices(eps, corev1.IPv4Protocol), endpoint.Slices(eps, corev1.IPv6Protocol)) {
		if !seenByStock(slice) {
			continue
		}
		for _, port := range slice.Ports {
			if port.Name == nil || port.Port == nil || *port.Port == 0 {
				continue // kube-proxy does not serve it either
			}
			key := Port{Family: corev1.IPFamily(slice.AddressType), Name: *port.Name, Protocol: corev1.ProtocolTCP}
			if port.Protocol != nil {
				key.Protocol = *port.Protocol
			}
			at := slices.IndexFunc(ports, func(p Port) bool { return p.compare(key) == 0 })
			if at < 0 {
				at = len(ports)
				ports = append(ports, key)
			}
			ports[at].add(slice.Endpoints, *port.Port)
		}
	}
	slices.SortFunc(ports, Port.compare)
	for i := range ports {
		slices.SortFunc(ports[i].Endpoints, func(a, b Endpoint) int {
			return cmp.Or(strings.Compare(a.Address, b.Address), cmp.Compare(a.Port, b.Port))
		})
	}
	return ports
}

func seenByStock(slice *discoveryv1.EndpointSlice) bool {
	if _, other := slice.Labels[v1alpha1.LabelServiceProxyName]; other {
		return false
	}
	_, headless := slice.Labels[corev1.IsHeadlessService]
	return !headless
}

func (p Port) compare(other Port) int {
	return cmp.Or(
		strings.Compare(string(p.Family), string(other.Family)),
		strings.Compare(p.Name, other.Name),
		strings.Compare(string(p.Protocol), string(other.Protocol)),
	)
}

// add adds the endpoints of a slice, one for each address and port: the one that counts. kube-proxy also prefers an
// endpoint that stays, and does not define which of two that stay it takes.
func (p *Port) add(endpoints []discoveryv1.Endpoint, port int32) {
	at := make(map[string]int, len(p.Endpoints))
	for i := range p.Endpoints {
		if p.Endpoints[i].Port == port {
			at[p.Endpoints[i].Address] = i
		}
	}
	for i := range endpoints {
		e := &endpoints[i]
		if len(e.Addresses) == 0 {
			continue
		}
		read := readEndpoint(e, port)
		known, found := at[read.Address]
		switch {
		case !found:
			at[read.Address] = len(p.Endpoints)
			p.Endpoints = append(p.Endpoints, read)
		case read.State.Before(p.Endpoints[known].State):
			p.Endpoints[known] = read
		}
	}
}

func readEndpoint(e *discoveryv1.Endpoint, port int32) Endpoint {
	read := Endpoint{
		Address: e.Addresses[0],
		Port:    port,
		State:   endpoint.StateOf(e),
	}
	if address, err := netip.ParseAddr(read.Address); err == nil {
		read.Address = address.String() // of many ways to write it
	}
	if e.Zone != nil {
		read.Zone = *e.Zone
	}
	if e.Hints != nil {
		for _, zone := range e.Hints.ForZones {
			read.ForZones = append(read.ForZones, zone.Name)
		}
		for _, node := range e.Hints.ForNodes {
			read.ForNodes = append(read.ForNodes, node.Name)
		}
	}
	return read
}

// Choice is the choice of one node's proxy.
type Choice struct {
	Mode kubeproxy.Mode
	// Why says why the mode is All, and is empty otherwise.
	Why string
	// Endpoints get the connections.
	Endpoints []Endpoint
}

// Index finds the choices of many nodes' proxies. Use Port.Index to make one.
type Index struct {
	endpoints          []Endpoint
	ready, terminating []int // indexes of endpoints
	byNode, byZone     map[string][]int
	withNode, withZone int
}

// Index prepares the port for Choose and View.
func (p *Port) Index() *Index {
	x := &Index{endpoints: p.Endpoints, byNode: map[string][]int{}, byZone: map[string][]int{}}
	for i := range p.Endpoints {
		e := &p.Endpoints[i]
		if !e.State.IsReady() {
			if e.State.IsServing() && e.State.IsTerminating() {
				x.terminating = append(x.terminating, i)
			}
			continue
		}
		x.ready = append(x.ready, i)
		if len(e.ForNodes) > 0 {
			x.withNode++
		}
		if len(e.ForZones) > 0 {
			x.withZone++
		}
		for _, node := range unique(e.ForNodes) {
			x.byNode[node] = append(x.byNode[node], i)
		}
		for _, zone := range unique(e.ForZones) {
			x.byZone[zone] = append(x.byZone[zone], i)
		}
	}
	return x
}

func unique(names []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// Ready returns the number of ready endpoints.
func (x *Index) Ready() int { return len(x.ready) }

// Choose returns the choice of the proxy of a node, whose zone may be empty. Without ready endpoints the proxy uses
// terminating ones that still serve.
func (x *Index) Choose(node, zone string) Choice {
	choice, chosen := x.choose(node, zone)
	for _, i := range chosen {
		choice.Endpoints = append(choice.Endpoints, x.endpoints[i])
	}
	return choice
}

func (x *Index) choose(node, zone string) (Choice, []int) {
	ready := kubeproxy.Ready{
		Endpoints: len(x.ready), WithNodeHints: x.withNode, WithZoneHints: x.withZone,
		ForNode: len(x.byNode[node]), ForZone: len(x.byZone[zone]),
	}
	switch mode := ready.Mode(); {
	case ready.UsesTerminating() && len(x.terminating) > 0:
		return Choice{Mode: kubeproxy.All, Why: "no endpoint is ready; terminating ones that still serve are used"}, x.terminating
	case ready.UsesTerminating():
		return Choice{Mode: kubeproxy.All, Why: "no endpoint is ready"}, nil
	case mode == kubeproxy.SameNode:
		return Choice{Mode: mode}, x.byNode[node]
	case mode == kubeproxy.SameZone:
		return Choice{Mode: mode}, x.byZone[zone]
	case ready.WithZoneHints == 0:
		return Choice{Mode: mode, Why: "no endpoint has a hint for zones"}, x.ready
	case !ready.AllHaveZoneHints():
		return Choice{Mode: mode, Why: fmt.Sprintf("%d of %d ready endpoints have no hint for zones", len(x.ready)-x.withZone, len(x.ready))}, x.ready
	case zone == "":
		return Choice{Mode: mode, Why: "the node has no zone"}, x.ready
	}
	return Choice{Mode: kubeproxy.All, Why: "no hint names " + zone}, x.ready
}

// Client is a node that connections come from, with its share of the traffic.
type Client struct {
	Node, Zone string
	Share      float64
}

// Row is the common choice of several nodes of a zone.
type Row struct {
	Zone  string
	Nodes int
	Mode  kubeproxy.Mode
	Why   string // as in Choice
	// Uses counts the endpoints that each of the nodes uses, by the zone of the endpoints.
	Uses map[string]int
}

// View returns the choices of all clients' proxies, in the order of zones, and the figures of the traffic. Clients
// without an endpoint count as unreached.
func (x *Index) View(clients []Client) ([]Row, allocate.Figures) {
	var rows []Row
	var figures allocate.Figures
	loads := make([]float64, len(x.endpoints))
	for _, client := range clients {
		choice, chosen := x.choose(client.Node, client.Zone)
		row := Row{Zone: client.Zone, Nodes: 1, Mode: choice.Mode, Why: choice.Why, Uses: map[string]int{}}
		if len(chosen) == 0 && client.Share > 0 {
			figures.Unreached++
		}
		for _, i := range chosen {
			each := client.Share / float64(len(chosen))
			home := x.endpoints[i].Zone
			row.Uses[home]++
			loads[i] += each
			if home == client.Zone && home != "" {
				figures.InZone += each
			}
		}
		rows = addRow(rows, row)
	}
	for _, i := range x.ready {
		load := loads[i] * float64(len(x.ready))
		figures.Overload = max(figures.Overload, load-1)
		figures.Deviation += math.Abs(load-1) / float64(len(x.ready))
	}
	slices.SortStableFunc(rows, func(a, b Row) int { return strings.Compare(a.Zone, b.Zone) })
	return rows, figures
}

func addRow(rows []Row, row Row) []Row {
	for i := range rows {
		r := &rows[i]
		if r.Zone == row.Zone && r.Mode == row.Mode && r.Why == row.Why && maps.Equal(r.Uses, row.Uses) {
			r.Nodes += row.Nodes
			return rows
		}
	}
	return append(rows, row)
}

// Clients returns the nodes of a cluster with their shares of the traffic, in the order of names.
func Clients(cluster *intent.Cluster, capacity intent.Capacity) []Client {
	nodes := cluster.Nodes(capacity, nil)
	clients := make([]Client, len(nodes))
	for i := range nodes {
		clients[i] = Client{Node: nodes[i].Name, Zone: nodes[i].Zone, Share: nodes[i].Share}
	}
	return clients
}

// ZoneClients returns a client for each zone of endpoints and hints, for use when the nodes are unknown. Their shares
// are zero.
func (p *Port) ZoneClients() []Client {
	var zones []string
	for i := range p.Endpoints {
		zones = append(zones, p.Endpoints[i].ForZones...)
		if zone := p.Endpoints[i].Zone; zone != "" {
			zones = append(zones, zone)
		}
	}
	var clients []Client
	for _, zone := range unique(zones) {
		clients = append(clients, Client{Zone: zone})
	}
	return clients
}
