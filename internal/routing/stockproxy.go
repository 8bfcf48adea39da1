package routing

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
	"vicinity.dev/vicinity/internal/translate"
)

// StockPort is what stock kube-proxies know of the endpoints behind one port of a
// Service in one address family.
type StockPort struct {
	Family   corev1.IPFamily
	Name     string
	Protocol corev1.Protocol
	// Endpoints are in the order of addresses and ports.
	Endpoints []StockEndpoint
}

// StockEndpoint is an endpoint with its conditions as kube-proxy reads them.
type StockEndpoint struct {
	Address string
	Port    int32
	// Zone is where the endpoint says that it is. Proxies do not look at it.
	Zone                        string
	Ready, Serving, Terminating bool
	ForZones, ForNodes          []string
}

// StockPorts reads slices as kube-proxy does: by port name, and not those that are
// meant for another proxy or are of a headless Service. Ports are in the order of
// families, names and protocols.
func StockPorts(eps []*discoveryv1.EndpointSlice) []StockPort {
	ordered := slices.Clone(eps)
	slices.SortFunc(ordered, func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	var ports []StockPort
	for _, slice := range ordered {
		if !seenByStock(slice) {
			continue
		}
		for _, port := range slice.Ports {
			if port.Name == nil || port.Port == nil || *port.Port == 0 {
				continue // kube-proxy does not serve it either
			}
			key := StockPort{Family: corev1.IPFamily(slice.AddressType), Name: *port.Name, Protocol: corev1.ProtocolTCP}
			if port.Protocol != nil {
				key.Protocol = *port.Protocol
			}
			at := slices.IndexFunc(ports, func(p StockPort) bool { return p.compare(key) == 0 })
			if at < 0 {
				at = len(ports)
				ports = append(ports, key)
			}
			ports[at].add(slice.Endpoints, *port.Port)
		}
	}
	slices.SortFunc(ports, StockPort.compare)
	for i := range ports {
		slices.SortFunc(ports[i].Endpoints, func(a, b StockEndpoint) int {
			return cmp.Or(strings.Compare(a.Address, b.Address), cmp.Compare(a.Port, b.Port))
		})
	}
	return ports
}

// seenByStock reports whether kube-proxy watches the slice.
func seenByStock(slice *discoveryv1.EndpointSlice) bool {
	if _, other := slice.Labels[v1alpha1.LabelServiceProxyName]; other {
		return false
	}
	if _, headless := slice.Labels[corev1.IsHeadlessService]; headless {
		return false
	}
	return slice.AddressType == discoveryv1.AddressTypeIPv4 || slice.AddressType == discoveryv1.AddressTypeIPv6
}

// compare orders ports by what tells them apart.
func (p StockPort) compare(other StockPort) int {
	return cmp.Or(
		strings.Compare(string(p.Family), string(other.Family)),
		strings.Compare(p.Name, other.Name),
		strings.Compare(string(p.Protocol), string(other.Protocol)),
	)
}

// add takes the endpoints of a slice. Of two with the same address and port, which
// there are while an address passes from one pod to another, the later one counts
// unless it is about to go.
func (p *StockPort) add(endpoints []discoveryv1.Endpoint, port int32) {
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
		read := stockEndpoint(e, port)
		known, found := at[read.Address]
		switch {
		case !found:
			at[read.Address] = len(p.Endpoints)
			p.Endpoints = append(p.Endpoints, read)
		case !read.Terminating:
			p.Endpoints[known] = read
		}
	}
}

func stockEndpoint(e *discoveryv1.Endpoint, port int32) StockEndpoint {
	read := StockEndpoint{
		Address:     e.Addresses[0],
		Port:        port,
		Ready:       e.Conditions.Ready == nil || *e.Conditions.Ready,
		Serving:     e.Conditions.Serving == nil || *e.Conditions.Serving,
		Terminating: e.Conditions.Terminating != nil && *e.Conditions.Terminating,
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

// StockMode is how a stock proxy chooses among endpoints.
type StockMode string

// The modes, the one that kube-proxy tries first before the others.
const (
	StockNode StockMode = "node" // those hinted to its node
	StockZone StockMode = "zone" // those hinted to its zone
	StockAll  StockMode = "all"  // all, wherever they are
)

// StockChoice is what the proxy of one node does.
type StockChoice struct {
	Mode StockMode
	// Why says why the mode is StockAll, and is empty otherwise.
	Why string
	// Endpoints are those that get connections.
	Endpoints []StockEndpoint
}

// StockIndex answers what the proxies of many nodes choose. Only StockPort.Index
// makes one.
type StockIndex struct {
	endpoints          []StockEndpoint
	ready, going       []int // indexes of endpoints
	byNode, byZone     map[string][]int
	withNode, withZone int
}

// Index prepares the port for questions.
func (p *StockPort) Index() *StockIndex {
	x := &StockIndex{endpoints: p.Endpoints, byNode: map[string][]int{}, byZone: map[string][]int{}}
	for i := range p.Endpoints {
		e := &p.Endpoints[i]
		if !e.Ready {
			if e.Serving && e.Terminating {
				x.going = append(x.going, i)
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

// Ready is the number of endpoints that are ready.
func (x *StockIndex) Ready() int { return len(x.ready) }

// Choose applies kube-proxy's rules for the traffic policy Cluster on a node of a
// zone, "" if the node has none: hints for nodes count if every ready endpoint has
// some and one names the node; else hints for zones, if every ready endpoint has some
// and one names the zone; else all ready endpoints are used or, without any, those
// that still serve while they terminate.
func (x *StockIndex) Choose(node, zone string) StockChoice {
	choice, chosen := x.choose(node, zone)
	for _, i := range chosen {
		choice.Endpoints = append(choice.Endpoints, x.endpoints[i])
	}
	return choice
}

// choose is Choose, with the indexes of the endpoints.
func (x *StockIndex) choose(node, zone string) (StockChoice, []int) {
	ready := len(x.ready)
	switch {
	case ready == 0 && len(x.going) > 0:
		return StockChoice{Mode: StockAll, Why: "no endpoint is ready; those that serve while they terminate are used"}, x.going
	case ready == 0:
		return StockChoice{Mode: StockAll, Why: "no endpoint is ready"}, nil
	case x.withNode == ready && len(x.byNode[node]) > 0:
		return StockChoice{Mode: StockNode}, x.byNode[node]
	case x.withZone == ready && len(x.byZone[zone]) > 0:
		return StockChoice{Mode: StockZone}, x.byZone[zone]
	case x.withZone == 0:
		return StockChoice{Mode: StockAll, Why: "no endpoint has a hint for zones"}, x.ready
	case x.withZone < ready:
		return StockChoice{Mode: StockAll, Why: fmt.Sprintf("%d of %d ready endpoints have no hint for zones", ready-x.withZone, ready)}, x.ready
	case zone == "":
		return StockChoice{Mode: StockAll, Why: "the node has no zone"}, x.ready
	}
	return StockChoice{Mode: StockAll, Why: "no hint names " + zone}, x.ready
}

// StockClient is a node that connections come from, with its share of the traffic.
type StockClient struct {
	Node, Zone string
	Share      float64
}

// StockRow is what proxies of a zone that do alike do.
type StockRow struct {
	Zone  string
	Nodes int
	Mode  StockMode
	Why   string // as in StockChoice
	// Uses is the number of endpoints that each of the nodes uses, by the zone that
	// the endpoints are in.
	Uses map[string]int
}

// View is what the proxies of all clients do, in the order of zones, and what that
// makes of the traffic. Clients without an endpoint count as unreached.
func (x *StockIndex) View(clients []StockClient) ([]StockRow, allocate.Figures) {
	var rows []StockRow
	var figures allocate.Figures
	loads := make([]float64, len(x.endpoints))
	for _, client := range clients {
		choice, chosen := x.choose(client.Node, client.Zone)
		row := StockRow{Zone: client.Zone, Nodes: 1, Mode: choice.Mode, Why: choice.Why, Uses: map[string]int{}}
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
	slices.SortStableFunc(rows, func(a, b StockRow) int { return strings.Compare(a.Zone, b.Zone) })
	return rows, figures
}

// addRow counts a node with those that do the same.
func addRow(rows []StockRow, row StockRow) []StockRow {
	for i := range rows {
		r := &rows[i]
		if r.Zone == row.Zone && r.Mode == row.Mode && r.Why == row.Why && maps.Equal(r.Uses, row.Uses) {
			r.Nodes += row.Nodes
			return rows
		}
	}
	return append(rows, row)
}

// StockClients are the nodes of a cluster as clients, each with its share of the
// traffic, in the order of names.
func StockClients(cluster *translate.Cluster, capacity translate.Capacity) []StockClient {
	nodes := cluster.Nodes(capacity, nil)
	clients := make([]StockClient, len(nodes))
	for i := range nodes {
		clients[i] = StockClient{Node: nodes[i].Name, Zone: nodes[i].Zone, Share: nodes[i].Share}
	}
	return clients
}

// ZoneClients stand for the nodes of each zone that endpoints are in or are hinted
// to, where the nodes themselves are not known: neither is their share of the traffic.
func (p *StockPort) ZoneClients() []StockClient {
	var zones []string
	for i := range p.Endpoints {
		zones = append(zones, p.Endpoints[i].ForZones...)
		if zone := p.Endpoints[i].Zone; zone != "" {
			zones = append(zones, zone)
		}
	}
	var clients []StockClient
	for _, zone := range unique(zones) {
		clients = append(clients, StockClient{Zone: zone})
	}
	return clients
}
