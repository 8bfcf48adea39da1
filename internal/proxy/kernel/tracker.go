package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// Messages of connection tracking and their attributes, which the package unix has no
// names for.
const (
	trackGet    = 1 // IPCTNL_MSG_CT_GET
	trackDelete = 2 // IPCTNL_MSG_CT_DELETE

	trackOriginal   = 1  // CTA_TUPLE_ORIG
	trackReply      = 2  // CTA_TUPLE_REPLY
	trackStatus     = 3  // CTA_STATUS
	trackID         = 12 // CTA_ID
	trackZone       = 18 // CTA_ZONE
	trackFilter     = 25 // CTA_FILTER
	trackStatusMask = 26 // CTA_STATUS_MASK

	statusAnswered = 1 << 1 // IPS_SEEN_REPLY

	trackFilterOriginal = 1 // CTA_FILTER_ORIG_FLAGS
	trackFilterReply    = 2 // CTA_FILTER_REPLY_FLAGS

	// What connections are to have as a filter has it.
	filterAddress  = 1 << 1 // CTA_FILTER_F_CTA_IP_DST
	filterProtocol = 1 << 3 // CTA_FILTER_F_CTA_PROTO_NUM
	filterPort     = 1 << 5 // CTA_FILTER_F_CTA_PROTO_DST_PORT

	tupleAddress  = 1 // CTA_TUPLE_IP
	tupleProtocol = 2 // CTA_TUPLE_PROTO

	addressIPv4Source      = 1 // CTA_IP_V4_SRC
	addressIPv4Destination = 2 // CTA_IP_V4_DST
	addressIPv6Source      = 3 // CTA_IP_V6_SRC
	addressIPv6Destination = 4 // CTA_IP_V6_DST

	protocolNumber          = 1 // CTA_PROTO_NUM
	protocolSourcePort      = 2 // CTA_PROTO_SRC_PORT
	protocolDestinationPort = 3 // CTA_PROTO_DST_PORT
)

// fewFronts is for how many fronts the kernel is asked for the connections of each, and
// for more of them for those of all fronts: it looks at all connections each time.
const fewFronts = 4

// Tracker has the kernel forget connections. It can be used by several goroutines at once.
type Tracker struct {
	options  TrackerOptions
	mutex    sync.Mutex
	socket   *socket
	messages messages
}

// TrackerOptions are the choices of a Tracker.
type TrackerOptions struct {
	// TCP has it forget all connections of TCP and SCTP too, whose ends would notice by
	// themselves, some time, that the other is gone. Without it those are forgotten that
	// nobody ever answered: nothing is lost with them, and for two minutes a new connection
	// from the same port would be taken for one of them, and go where it cannot be answered.
	TCP bool
}

// OpenTracker connects to connection tracking, which takes the capability NET_ADMIN.
func OpenTracker(o TrackerOptions) (*Tracker, error) {
	s, err := dial()
	if err != nil {
		return nil, err
	}
	return &Tracker{options: o, socket: s}, nil
}

// Close ends the connection.
func (t *Tracker) Close() error {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.socket.close()
}

// Delete has the kernel forget all connections that go where they no longer may, so that
// the next packet of each is taken for the first of a new one. It returns how many.
func (t *Tracker) Delete(ctx context.Context, stale []ruleset.Stale) (int, error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	deleted := 0
	var errs []error
	for network, fronts := range byNetwork(stale) {
		questions := []netip.AddrPort{{}}
		if len(fronts) <= fewFronts {
			questions = slices.Collect(maps.Keys(fronts))
		}
		n, err := t.delete(ctx, network, questions, func(to, from netip.AddrPort) bool { return fronts[to][from] })
		deleted += n
		if err != nil {
			errs = append(errs, fmt.Errorf("forgetting connections of %s by %s: %w", network.protocol, network.family, err))
		}
	}
	return deleted, errors.Join(errs...)
}

// Reconcile has the kernel forget all connections of UDP to fronts that go to something else
// than what is listed for the front, sorted. It returns how many.
func (t *Tracker) Reconcile(ctx context.Context, live map[ruleset.Front][]netip.AddrPort) (int, error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	fronts := make(map[ruleset.Family]map[netip.AddrPort][]netip.AddrPort)
	for front, targets := range live {
		family := familyOf(front.Address)
		if fronts[family] == nil {
			fronts[family] = make(map[netip.AddrPort][]netip.AddrPort)
		}
		fronts[family][netip.AddrPortFrom(front.Address, front.Port)] = targets
	}
	deleted := 0
	var errs []error
	for family, known := range fronts {
		n, err := t.delete(ctx, network{family, ruleset.UDP}, []netip.AddrPort{{}}, func(to, from netip.AddrPort) bool {
			targets, ours := known[to]
			_, lives := slices.BinarySearchFunc(targets, from, netip.AddrPort.Compare)
			return ours && !lives
		})
		deleted += n
		if err != nil {
			errs = append(errs, fmt.Errorf("forgetting connections of UDP by %s: %w", family, err))
		}
	}
	return deleted, errors.Join(errs...)
}

// familyOf is the family of an address.
func familyOf(address netip.Addr) ruleset.Family {
	if address.Is6() {
		return ruleset.IPv6
	}
	return ruleset.IPv4
}

// network is what connections are asked for by.
type network struct {
	family   ruleset.Family
	protocol ruleset.Protocol
}

// targets are where connections of a front may not go.
type targets map[netip.AddrPort]bool

// byNetwork sorts what is stale.
func byNetwork(stale []ruleset.Stale) map[network]map[netip.AddrPort]targets {
	sorted := make(map[network]map[netip.AddrPort]targets)
	for _, s := range stale {
		n := network{familyOf(s.Front.Address), s.Front.Protocol}
		if sorted[n] == nil {
			sorted[n] = make(map[netip.AddrPort]targets)
		}
		front := netip.AddrPortFrom(s.Front.Address, s.Front.Port)
		if sorted[n][front] == nil {
			sorted[n][front] = make(targets)
		}
		sorted[n][front][s.Target] = true
	}
	return sorted
}

// delete asks for the connections of some fronts, or for all if one is none, and deletes those
// to a front and from a target that a function says are stale.
func (t *Tracker) delete(ctx context.Context, n network, questions []netip.AddrPort, stale func(to, from netip.AddrPort) bool) (int, error) {
	deleted := 0
	for _, front := range questions {
		if err := ctx.Err(); err != nil {
			return deleted, err
		}
		found, err := t.find(n, front, stale)
		if err != nil {
			return deleted, err
		}
		for part := range slices.Chunk(found, 100) {
			n, err := t.deleteThese(n, part)
			deleted += n
			if err != nil {
				return deleted, err
			}
		}
	}
	return deleted, nil
}

// find asks for the connections of a front, or for all if it is none, and picks those that
// are stale. They are as a message that deletes them has them.
func (t *Tracker) find(n network, front netip.AddrPort, stale func(to, from netip.AddrPort) bool) ([]string, error) {
	m := &t.messages
	m.reset()
	m.begin(unix.NFNL_SUBSYS_CTNETLINK<<8|trackGet, unix.NLM_F_DUMP, familyNumber(n.family), 0)
	m.filter(n, front)
	unanswered := n.protocol != ruleset.UDP && !t.options.TCP
	if unanswered {
		// A kernel that does not know the mask lists the others too.
		m.raw(trackStatus, string(binary.BigEndian.AppendUint32(nil, 0)))
		m.raw(trackStatusMask, string(binary.BigEndian.AppendUint32(nil, statusAnswered)))
	}
	m.end()
	var found []string
	err := t.socket.ask(m, func(content []byte) {
		original := attribute(content, trackOriginal)
		protocol, _, to := tuple(original)
		_, from, _ := tuple(attribute(content, trackReply))
		if unanswered && answered(content) {
			return
		}
		if protocol == n.protocol && stale(to, from) {
			found = append(found, deletion(content))
		}
	})
	return found, err
}

// answered reports whether a packet came back on a connection.
func answered(content []byte) bool {
	status := attribute(content, trackStatus)
	return len(status) == 4 && binary.BigEndian.Uint32(status)&statusAnswered != 0
}

// filter has the kernel list connections of a protocol only, and few but those of a front.
// Asked for an address of IPv6 it lists, as of Linux 6.18, all but those that have it; so
// they are asked for by port alone.
func (m *messages) filter(n network, front netip.AddrPort) {
	flags := uint32(filterProtocol)
	tuple := m.nest(trackOriginal)
	if front.IsValid() {
		flags |= filterPort
	}
	if front.Addr().Is4() {
		flags |= filterAddress
		address := m.nest(tupleAddress)
		m.raw(addressIPv4Destination, string(front.Addr().AsSlice()))
		m.nested(address)
	}
	protocol := m.nest(tupleProtocol)
	m.raw(protocolNumber, string([]byte{byte(n.protocol)}))
	if front.IsValid() {
		m.raw(protocolDestinationPort, string(binary.BigEndian.AppendUint16(nil, front.Port())))
	}
	m.nested(protocol)
	m.nested(tuple)
	filter := m.nest(trackFilter)
	m.raw(trackFilterOriginal, native(flags))
	m.raw(trackFilterReply, native(0))
	m.nested(filter)
}

// tuple reads one direction of a connection.
func tuple(content []byte) (protocol ruleset.Protocol, from, to netip.AddrPort) {
	var source, destination netip.Addr
	for kind, address := range attributes(attribute(content, tupleAddress)) {
		switch kind {
		case addressIPv4Source, addressIPv6Source:
			source, _ = netip.AddrFromSlice(address)
		case addressIPv4Destination, addressIPv6Destination:
			destination, _ = netip.AddrFromSlice(address)
		}
	}
	var sourcePort, destinationPort uint16
	for kind, part := range attributes(attribute(content, tupleProtocol)) {
		switch {
		case kind == protocolNumber && len(part) == 1:
			protocol = ruleset.Protocol(part[0])
		case kind == protocolSourcePort && len(part) == 2:
			sourcePort = binary.BigEndian.Uint16(part)
		case kind == protocolDestinationPort && len(part) == 2:
			destinationPort = binary.BigEndian.Uint16(part)
		}
	}
	return protocol, netip.AddrPortFrom(source, sourcePort), netip.AddrPortFrom(destination, destinationPort)
}

// deletion is what is in a message that deletes a connection, and no other that may have
// come after it.
func deletion(content []byte) string {
	var m messages
	for kind, part := range attributes(content) {
		switch kind {
		case trackOriginal:
			m.raw(kind|unix.NLA_F_NESTED, string(part))
		case trackID, trackZone:
			m.raw(kind, string(part))
		}
	}
	return string(m.bytes)
}

// deleteThese deletes connections. Those that are gone already do not count.
func (t *Tracker) deleteThese(n network, deletions []string) (int, error) {
	m := &t.messages
	m.reset()
	for _, d := range deletions {
		m.begin(unix.NFNL_SUBSYS_CTNETLINK<<8|trackDelete, unix.NLM_F_ACK, familyNumber(n.family), 0)
		m.bytes = append(m.bytes, d...)
		m.end()
	}
	deleted := 0
	var failed error
	err := t.socket.exchange(m, func(r reply) {
		switch f := r.failure(); {
		case f == nil:
			deleted++
		case f.errno != unix.ENOENT:
			failed = f
		}
	})
	return deleted, errors.Join(failed, err)
}
