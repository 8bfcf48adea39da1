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

	"vicinity.dev/vicinity/internal/proxy/netlink"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

const (
	trackFilterOriginal = 1 // CTA_FILTER_ORIG_FLAGS
	trackFilterReply    = 2 // CTA_FILTER_REPLY_FLAGS

	// What a filter compares.
	filterAddress  = 1 << 1 // CTA_FILTER_F_CTA_IP_DST
	filterProtocol = 1 << 3 // CTA_FILTER_F_CTA_PROTO_NUM
	filterPort     = 1 << 5 // CTA_FILTER_F_CTA_PROTO_DST_PORT
)

// fewFronts is for how many fronts the kernel is asked one by one. It looks at all connections each time, so for
// more fronts it is asked once for all.
const fewFronts = 4

// Tracker has the kernel forget connections. Several goroutines may use it.
type Tracker struct {
	options TrackerOptions
	mutex   sync.Mutex
	asker   netlink.Asker
}

// TrackerOptions are the options of a Tracker.
type TrackerOptions struct {
	// TCP has it forget all connections of TCP and SCTP too, whose ends would notice some time by themselves.
	// Without it only unanswered connections are forgotten: nothing is lost with them, and for two minutes a new
	// connection from the same port would be taken for one of them.
	TCP bool
}

// OpenTracker connects to connection tracking. It needs the capability NET_ADMIN.
func OpenTracker(o TrackerOptions) (*Tracker, error) {
	s, err := netlink.Dial()
	if err != nil {
		return nil, err
	}
	return &Tracker{options: o, asker: netlink.Asker{Socket: s}}, nil
}

// Close ends the connection.
func (t *Tracker) Close() error {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.asker.Socket.Close()
}

// Delete has the kernel forget connections that go where they no longer may. The next packet of each begins a
// new one. It returns how many.
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

// Reconcile has the kernel forget all UDP connections to fronts that go to none of the front's targets, which
// are sorted. It returns how many.
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

func familyOf(address netip.Addr) ruleset.Family {
	if address.Is6() {
		return ruleset.IPv6
	}
	return ruleset.IPv4
}

// network selects connections.
type network struct {
	family   ruleset.Family
	protocol ruleset.Protocol
}

type targets map[netip.AddrPort]bool

// byNetwork sorts what is stale by network, front and target.
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

// delete deletes stale connections of some fronts, or of all if one is invalid.
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

// find lists the stale connections of a front, or of all if it is invalid, as a message that deletes them has
// them.
func (t *Tracker) find(n network, front netip.AddrPort, stale func(to, from netip.AddrPort) bool) ([]string, error) {
	m := &t.asker.Messages
	m.Reset()
	m.Begin(netlink.TrackGet, unix.NLM_F_DUMP, familyNumber(n.family), 0)
	filter(m, n, front)
	unanswered := n.protocol != ruleset.UDP && !t.options.TCP
	if unanswered {
		// A kernel without the mask lists answered ones too.
		m.Number32(netlink.TrackStatus, 0)
		m.Number32(netlink.TrackStatusMask, netlink.StatusAnswered)
	}
	m.End()
	var found []string
	err := t.asker.Socket.Ask(m, func(content []byte) {
		if unanswered && answered(content) {
			return
		}
		original := netlink.ReadTuple(netlink.Attribute(content, netlink.TrackOriginal))
		reply := netlink.ReadTuple(netlink.Attribute(content, netlink.TrackReply))
		to := netip.AddrPortFrom(original.Destination, original.DestinationPort)
		from := netip.AddrPortFrom(reply.Source, reply.SourcePort)
		if ruleset.Protocol(original.Protocol) == n.protocol && stale(to, from) {
			found = append(found, deletion(content))
		}
	})
	return found, err
}

// answered reports whether a connection has had a packet back.
func answered(content []byte) bool {
	return netlink.Count(netlink.Attribute(content, netlink.TrackStatus))&netlink.StatusAnswered != 0
}

// filter has the kernel list connections of a protocol, and of a front as far as it can. Asked for an IPv6
// address, Linux 6.18 lists all but that address, so IPv6 is filtered by port alone.
func filter(m *netlink.Messages, n network, front netip.AddrPort) {
	flags := uint32(filterProtocol)
	tuple := m.Nest(netlink.TrackOriginal)
	if front.IsValid() {
		flags |= filterPort
	}
	if front.Addr().Is4() {
		flags |= filterAddress
		address := m.Nest(netlink.TupleAddress)
		m.Raw(netlink.AddressIPv4Destination, string(front.Addr().AsSlice()))
		m.EndNest(address)
	}
	protocol := m.Nest(netlink.TupleProtocol)
	m.Raw(netlink.ProtocolNumber, string([]byte{byte(n.protocol)}))
	if front.IsValid() {
		m.Raw(netlink.ProtocolDestinationPort, string(binary.BigEndian.AppendUint16(nil, front.Port())))
	}
	m.EndNest(protocol)
	m.EndNest(tuple)
	filter := m.Nest(netlink.TrackFilter)
	m.Raw(trackFilterOriginal, native(flags))
	m.Raw(trackFilterReply, native(0))
	m.EndNest(filter)
}

// deletion names one connection exactly, and no later one with the same addresses.
func deletion(content []byte) string {
	var m netlink.Messages
	for kind, part := range netlink.Attributes(content) {
		switch kind {
		case netlink.TrackOriginal:
			m.Raw(kind|unix.NLA_F_NESTED, string(part))
		case netlink.TrackID, netlink.TrackZone:
			m.Raw(kind, string(part))
		}
	}
	return string(m.Bytes)
}

// deleteThese does not count connections that are gone already.
func (t *Tracker) deleteThese(n network, deletions []string) (int, error) {
	m := &t.asker.Messages
	m.Reset()
	for _, d := range deletions {
		m.Begin(netlink.TrackDelete, unix.NLM_F_ACK, familyNumber(n.family), 0)
		m.Bytes = append(m.Bytes, d...)
		m.End()
	}
	deleted := 0
	var failed error
	err := t.asker.Socket.Exchange(m, func(r netlink.Reply) {
		switch f := r.Failure(); {
		case f == nil:
			deleted++
		case f.Errno != unix.ENOENT:
			failed = f
		}
	})
	return deleted, errors.Join(failed, err)
}
