package compile

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/internal/endpoint"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// endpointIndex has the endpoints of a Service in one family, from all slices or all groups, sorted by address.
type endpointIndex struct {
	family  ruleset.Family
	node    *Node
	entries []endpointEntry
	// objectPorts has the ports of each object, and ports the number of the chosen port by object, zero if the object lacks
	// it.
	objectPorts [][]namedPort
	ports       []uint16
	// same is a buffer of visit.
	same []endpointEntry
}

type namedPort struct {
	portKey
	number uint16
}

func newEndpointIndex(family ruleset.Family, node *Node, objects, endpoints int) endpointIndex {
	return endpointIndex{
		family: family, node: node, entries: make([]endpointEntry, 0, endpoints),
		objectPorts: make([][]namedPort, objects), ports: make([]uint16, objects),
	}
}

// endpointEntry is one endpoint of one object. It has no pointers, so that a hundred thousand entries sort fast and
// cost the garbage collector nothing.
type endpointEntry struct {
	high, low uint64 // its address
	// order has the state of the endpoint, its place and its properties, so that entries sort by the rule of package
	// endpoint: the first entry of an address counts.
	order uint64
}

// stateShift is the first bit of the endpoint.State.
const stateShift = 61

// The place of an endpoint: the object, and the index in it.
const (
	objectShift, objectMask = 34, 1<<27 - 1
	indexShift, indexMask   = 7, 1<<27 - 1
)

// The properties of an endpoint: whether it is on the node; from a slice, its hints; from a group, the rank of the
// node's tier and whether it is in another zone than the node. Reading the objects again in the order of addresses
// would take longer than all other work.
const (
	onNode uint64 = 1 << iota
	nodeHints
	zoneHints
	forNode
	forZone

	rankShift, rankMask = 1, uint64(endpoint.None)

	otherZone uint64 = 1 << 6
)

func (e endpointEntry) state() endpoint.State { return endpoint.State(e.order >> stateShift) }
func (e endpointEntry) ready() bool           { return e.state().IsReady() }
func (e endpointEntry) onNode() bool          { return e.order&onNode != 0 }
func (e endpointEntry) object() int           { return int(e.order >> objectShift & objectMask) }
func (e endpointEntry) index() int            { return int(e.order >> indexShift & indexMask) }
func (e endpointEntry) rank() endpoint.Rank   { return endpoint.Rank(e.order >> rankShift & rankMask) }
func (e endpointEntry) isInNodeZone() bool    { return e.order&otherZone == 0 }
func (e endpointEntry) serves() bool          { return e.state().IsServing() }
func (e endpointEntry) leaving() bool         { return e.state().IsTerminating() && e.serves() }

// taking reports whether the endpoint takes traffic: ready ones do or, as a last resort, terminating ones.
func (e endpointEntry) taking(lastResort bool) bool {
	if lastResort {
		return e.leaving()
	}
	return e.ready()
}

func (e endpointEntry) sameAddress(other endpointEntry) bool {
	return e.high == other.high && e.low == other.low
}

func (e endpointEntry) address() netip.Addr {
	var bytes [16]byte
	binary.BigEndian.PutUint64(bytes[:8], e.high)
	binary.BigEndian.PutUint64(bytes[8:], e.low)
	return netip.AddrFrom16(bytes).Unmap()
}

func (e endpointEntry) target(port uint16) netip.AddrPort {
	return netip.AddrPortFrom(e.address(), port)
}

func compareEntries(a, b endpointEntry) int {
	switch {
	case a.high != b.high:
		return cmp.Compare(a.high, b.high)
	case a.low != b.low:
		return cmp.Compare(a.low, b.low)
	}
	return cmp.Compare(a.order, b.order)
}

// addPort adds a port of an object. It ignores ports that no Service can have.
func (x *endpointIndex) addPort(object int, name string, protocol corev1.Protocol, number int32) {
	known, ok := protocolOf(protocol)
	if port, valid := portOf(number); ok && valid {
		x.objectPorts[object] = append(x.objectPorts[object], namedPort{portKey{name, known}, port})
	}
}

// choosePort selects the port for visit.
func (x *endpointIndex) choosePort(port portKey) {
	for i, ports := range x.objectPorts {
		x.ports[i] = 0
		if j := slices.IndexFunc(ports, func(p namedPort) bool { return p.portKey == port }); j >= 0 {
			x.ports[i] = ports[j].number
		}
	}
}

// add adds an endpoint of an object, unless endpoints cannot have its address.
func (x *endpointIndex) add(text string, state uint64, object, index int, ignored *ignoredEndpoints) {
	address, ok := parseAddress(text)
	if !ok || ruleset.FamilyOf(address) != x.family || specialKind(address) != "" {
		ignored.add(text)
		return
	}
	bytes := address.As16()
	x.entries = append(x.entries, endpointEntry{
		high: binary.BigEndian.Uint64(bytes[:8]), low: binary.BigEndian.Uint64(bytes[8:]),
		order: state | uint64(object)<<objectShift | uint64(index)<<indexShift,
	})
}

func (x *endpointIndex) sort() {
	slices.SortFunc(x.entries, compareEntries)
}

// visit calls a function for each address and port number of the chosen port, with all its entries. The first entry counts.
// The entries are valid until the function returns.
func (x *endpointIndex) visit(each func(same []endpointEntry, port uint16)) {
	for begin, end := 0, 0; begin < len(x.entries); begin = end {
		for end = begin + 1; end < len(x.entries) && x.entries[end].sameAddress(x.entries[begin]); end++ {
		}
		entries := x.entries[begin:end]
		if len(entries) == 1 {
			if port := x.ports[entries[0].object()]; port != 0 {
				each(entries, port)
			}
			continue
		}
		for i, e := range entries {
			port := x.ports[e.object()]
			if port == 0 || slices.ContainsFunc(entries[:i], func(seen endpointEntry) bool { return x.ports[seen.object()] == port }) {
				continue
			}
			x.same = x.same[:0]
			for _, other := range entries[i:] {
				if x.ports[other.object()] == port {
					x.same = append(x.same, other)
				}
			}
			each(x.same, port)
		}
	}
}

// known sets the endpoints that only existing connections use. The view names the part of all endpoints that the node sees,
// empty for all.
func (x *endpointIndex) known(got *supply, view string) {
	got.known.View = view
	chosen := slices.Concat(got.cluster, got.local)
	slices.SortFunc(chosen, netip.AddrPort.Compare)
	x.visit(func(same []endpointEntry, number uint16) {
		target := same[0].target(number)
		_, used := slices.BinarySearchFunc(chosen, target, netip.AddrPort.Compare)
		switch {
		case used:
		case slices.ContainsFunc(same, endpointEntry.serves):
			got.known.Serving = append(got.known.Serving, target)
		default:
			got.known.Silent = append(got.known.Silent, target)
			return
		}
		if view != "" && same[0].ready() && !slices.ContainsFunc(same, endpointEntry.isInNodeZone) {
			got.known.Fleeting = append(got.known.Fleeting, target)
		}
	})
}

// places returns the endpoints with their zones.
func (x *endpointIndex) places(zoneOf func(endpointEntry) string) Endpoints {
	list := make(Endpoints, 0, len(x.entries))
	for i, e := range x.entries {
		if i > 0 && e.sameAddress(x.entries[i-1]) {
			continue
		}
		list = append(list, Endpoint{Address: e.address(), Zone: zoneOf(e), OnNode: e.onNode()})
	}
	return list
}

// localReady counts the ready addresses on the node, of objects with ports.
func (x *endpointIndex) localReady() int {
	n, looked := 0, false
	for i, e := range x.entries {
		if i == 0 || !e.sameAddress(x.entries[i-1]) {
			looked = false
		}
		if looked || len(x.objectPorts[e.object()]) == 0 {
			continue
		}
		looked = true
		if e.onNode() && e.ready() {
			n++
		}
	}
	return n
}

func (x *endpointIndex) onNode() int {
	n := 0
	for i, e := range x.entries {
		if e.onNode() && (i == 0 || !e.sameAddress(x.entries[i-1])) {
			n++
		}
	}
	return n
}

type census struct {
	ready, leaving           int
	localReady, localLeaving int
}

func (c *census) count(e endpointEntry) {
	switch {
	case e.ready():
		c.ready++
		if e.onNode() {
			c.localReady++
		}
	case e.leaving():
		c.leaving++
		if e.onNode() {
			c.localLeaving++
		}
	}
}

// local reports whether an endpoint takes traffic that stays on the node: ready endpoints there do or, without any,
// terminating ones that still serve.
func (c *census) local(e endpointEntry) bool {
	return e.onNode() && e.taking(c.localReady == 0)
}

// supply makes a supply with room for the needed endpoints.
func (c *census) supply(n need, cluster int) supply {
	s := supply{exists: c.ready > 0 || c.leaving > 0}
	if n.cluster && cluster > 0 {
		s.cluster = make([]netip.AddrPort, 0, cluster)
	}
	local := c.localReady
	if local == 0 {
		local = c.localLeaving
	}
	if n.local && local > 0 {
		s.local = make([]netip.AddrPort, 0, local)
	}
	return s
}

// ignoredEndpoints counts the endpoints of an object whose addresses are of another family, or special.
type ignoredEndpoints struct {
	count int
	first string
}

func (i *ignoredEndpoints) add(address string) {
	if i.count == 0 {
		i.first = address
	}
	i.count++
}

// note adds a sentence about the ignored endpoints.
func (i *ignoredEndpoints) note(notes *[]string, object, name string, family ruleset.Family) {
	if i.count > 0 {
		*notes = append(*notes, fmt.Sprintf(
			"%s %s: endpoints ignored: %d, the first %q; each needs an address of family %s that is not unspecified, loopback, link-local, multicast or broadcast",
			object, name, i.count, i.first, family.Name()))
	}
}
