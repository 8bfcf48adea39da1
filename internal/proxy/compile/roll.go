package compile

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"vicinity.dev/vicinity/internal/endpoint"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// roll has all endpoints of a Service in one family, from all objects, in the order of
// addresses. It has no pointers, so that a hundred thousand rows sort fast and cost the
// garbage collector nothing.
type roll struct {
	family ruleset.Family
	rows   []row
	// ports are the numbers of the present port by object, zero where it has none.
	ports []uint16
	// run is scratch of visit.
	run []row
}

// row is one endpoint of one object.
type row struct {
	high, low uint64 // its address
	// order has the state of the endpoint, its place and its properties, so that rows sort by the
	// rule of package endpoint: the first row of an address counts.
	order uint64
}

// stateShift is where an endpoint.State begins.
const stateShift = 61

// The place of an endpoint: the object, and the index in it.
const (
	objectShift, objectMask = 34, 1<<27 - 1
	indexShift, indexMask   = 7, 1<<27 - 1
)

// The properties of an endpoint: whether it is on the node; from a slice, its hints; from a
// group, the rank of the node's tier and whether its home is another zone than the node's.
// They are kept in the row because to look at the objects again, in the order of addresses,
// takes longer than all the rest.
const (
	onNode uint64 = 1 << iota
	nodeHints
	zoneHints
	forNode
	forZone

	rankShift, rankMask = 1, uint64(endpoint.None)

	away uint64 = 1 << 6
)

func (r row) state() endpoint.State { return endpoint.State(r.order >> stateShift) }
func (r row) ready() bool           { return r.state().IsReady() }
func (r row) onNode() bool          { return r.order&onNode != 0 }
func (r row) object() int           { return int(r.order >> objectShift & objectMask) }
func (r row) index() int            { return int(r.order >> indexShift & indexMask) }
func (r row) rank() endpoint.Rank   { return endpoint.Rank(r.order >> rankShift & rankMask) }
func (r row) atHome() bool          { return r.order&away == 0 }
func (r row) serves() bool          { return r.state().IsServing() }
func (r row) leaving() bool         { return r.state().IsTerminating() && r.serves() }

// taking reports whether the endpoint takes traffic because it is ready or, as a last
// resort, although it is terminating.
func (r row) taking(lastResort bool) bool {
	if lastResort {
		return r.leaving()
	}
	return r.ready()
}

func (r row) sameAddress(other row) bool {
	return r.high == other.high && r.low == other.low
}

func compareRows(a, b row) int {
	switch {
	case a.high != b.high:
		return less(a.high < b.high)
	case a.low != b.low:
		return less(a.low < b.low)
	}
	return less(a.order < b.order)
}

func less(is bool) int {
	if is {
		return -1
	}
	return 1
}

func (l *roll) address(r row) netip.Addr {
	if l.family == ruleset.IPv4 {
		var bytes [4]byte
		binary.BigEndian.PutUint32(bytes[:], uint32(r.low))
		return netip.AddrFrom4(bytes)
	}
	var bytes [16]byte
	binary.BigEndian.PutUint64(bytes[:8], r.high)
	binary.BigEndian.PutUint64(bytes[8:], r.low)
	return netip.AddrFrom16(bytes)
}

// add adds an endpoint of an object, unless its address is not one that endpoints have.
func (l *roll) add(text string, state uint64, object, index int, strange *strangeEndpoints) {
	address, ok := parseAddress(text)
	switch {
	case !ok || familyOf(address) != l.family:
		strange.foreign.add(text)
		return
	case special(address) != "":
		strange.special.add(text)
		return
	}
	r := row{order: state | uint64(object)<<objectShift | uint64(index)<<indexShift}
	if l.family == ruleset.IPv4 {
		bytes := address.As4()
		r.low = uint64(binary.BigEndian.Uint32(bytes[:]))
	} else {
		bytes := address.As16()
		r.high, r.low = binary.BigEndian.Uint64(bytes[:8]), binary.BigEndian.Uint64(bytes[8:])
	}
	l.rows = append(l.rows, r)
}

// close sorts the rows when all are added.
func (l *roll) close() {
	slices.SortFunc(l.rows, compareRows)
}

// visit calls a function for each address and port number, with all their rows, the one
// that counts first. The rows are valid until it returns.
func (l *roll) visit(see func(run []row, port uint16)) {
	for begin, end := 0, 0; begin < len(l.rows); begin = end {
		for end = begin + 1; end < len(l.rows) && l.rows[end].sameAddress(l.rows[begin]); end++ {
		}
		same := l.rows[begin:end]
		if len(same) == 1 {
			if port := l.ports[same[0].object()]; port != 0 {
				see(same, port)
			}
			continue
		}
		for i, r := range same {
			port := l.ports[r.object()]
			if port == 0 || slices.ContainsFunc(same[:i], func(seen row) bool { return l.ports[seen.object()] == port }) {
				continue
			}
			l.run = l.run[:0]
			for _, other := range same[i:] {
				if l.ports[other.object()] == port {
					l.run = append(l.run, other)
				}
			}
			see(l.run, port)
		}
	}
}

// known lists the endpoints that new connections do not use, for the connections that they
// have. The view names the part of all endpoints that the node receives, empty if it is all.
// Endpoints that are not ready stay in it until they are ready again or gone.
func (l *roll) known(got *supply, view string) {
	got.known.View = view
	chosen := slices.Concat(got.cluster, got.local)
	slices.SortFunc(chosen, netip.AddrPort.Compare)
	l.visit(func(run []row, number uint16) {
		target := l.target(run[0], number)
		_, used := slices.BinarySearchFunc(chosen, target, netip.AddrPort.Compare)
		switch {
		case used:
		case slices.ContainsFunc(run, row.serves):
			got.known.Serving = append(got.known.Serving, target)
		default:
			got.known.Silent = append(got.known.Silent, target)
			return
		}
		if view != "" && run[0].ready() && !slices.ContainsFunc(run, row.atHome) {
			got.known.Fleeting = append(got.known.Fleeting, target)
		}
	})
}

func (l *roll) target(r row, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(l.address(r), port)
}

// places are the endpoints with their zones.
func (l *roll) places(zoneOf func(row) string) Endpoints {
	list := make(Endpoints, 0, len(l.rows))
	for i, r := range l.rows {
		if i > 0 && r.sameAddress(l.rows[i-1]) {
			continue
		}
		list = append(list, Endpoint{Address: l.address(r), Zone: zoneOf(r), OnNode: r.onNode()})
	}
	return list
}

// localReady counts the ready addresses on the node, of objects with ports.
func (l *roll) localReady(hasPorts []bool) int {
	n, looked := 0, false
	for i, r := range l.rows {
		if i == 0 || !r.sameAddress(l.rows[i-1]) {
			looked = false
		}
		if looked || !hasPorts[r.object()] {
			continue
		}
		looked = true
		if r.onNode() && r.ready() {
			n++
		}
	}
	return n
}

// onNode counts the addresses on the node.
func (l *roll) onNode() int {
	n := 0
	for i, r := range l.rows {
		if r.onNode() && (i == 0 || !r.sameAddress(l.rows[i-1])) {
			n++
		}
	}
	return n
}

// census counts the endpoints of a port.
type census struct {
	ready, leaving           int
	localReady, localLeaving int
}

func (c *census) see(r row) {
	switch {
	case r.ready():
		c.ready++
		if r.onNode() {
			c.localReady++
		}
	case r.leaving():
		c.leaving++
		if r.onNode() {
			c.localLeaving++
		}
	}
}

// local reports whether an endpoint takes traffic that stays on the node: the ready ones
// there do, or else those that are terminating but serve.
func (c *census) local(r row) bool {
	return r.onNode() && r.taking(c.localReady == 0)
}

// supply makes a supply with room for what is needed.
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

// ignored counts the parts of an object that are ignored for one reason.
type ignored struct {
	count int
	first string
}

func (i *ignored) add(what string) {
	if i.count == 0 {
		i.first = what
	}
	i.count++
}

// note adds a sentence about them.
func (i *ignored) note(notes *[]string, object, name, what, needed string) {
	if i.count > 0 {
		*notes = append(*notes, fmt.Sprintf("%s %s: %s ignored: %d, the first %q; each needs %s", object, name, what, i.count, i.first, needed))
	}
}

// strangeEndpoints are the ignored endpoints of an object: of another family, or with an
// address that is special.
type strangeEndpoints struct{ foreign, special ignored }

func (e *strangeEndpoints) note(notes *[]string, object, name string, family ruleset.Family) {
	const what = "endpoints"
	e.foreign.note(notes, object, name, what, "an address of family "+familyName(family))
	e.special.note(notes, object, name, what, "an address that is not unspecified, loopback, link-local, multicast or broadcast")
}
