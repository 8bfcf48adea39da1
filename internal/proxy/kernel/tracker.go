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

	// The parts of a connection that a filter compares.
	filterAddress  = 1 << 1 // CTA_FILTER_F_CTA_IP_DST
	filterProtocol = 1 << 3 // CTA_FILTER_F_CTA_PROTO_NUM
	filterPort     = 1 << 5 // CTA_FILTER_F_CTA_PROTO_DST_PORT
)

// fewFronts bounds the fronts that are requested one by one. Each request makes the kernel walk all connections, so with
// more fronts one request gets all.
const fewFronts = 4

// Tracker deletes tracked connections. Several goroutines may use it.
type Tracker struct {
	options TrackerOptions
	mutex   sync.Mutex
	asker   netlink.Asker
}

// TrackerOptions are the options of a Tracker.
type TrackerOptions struct {
	// TCP also deletes answered connections of TCP and SCTP to removed endpoints, whose ends would notice that themselves.
	// Without it only unanswered ones are deleted: nothing is lost with them, and for two minutes a new connection from the
	// same port would be taken for one of them.
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

// Delete deletes stale connections, so that their next packets open new ones. It returns the number.
func (t *Tracker) Delete(ctx context.Context, stale []ruleset.Stale) (int, error) {
	all := make(map[ruleset.Stale]bool, len(stale))
	fronts := make(map[network]map[netip.AddrPort]bool)
	for _, one := range stale {
		all[one] = true
		n := networkOf(one.Front)
		n.drained = one.Drained
		if fronts[n] == nil {
			fronts[n] = make(map[netip.AddrPort]bool)
		}
		fronts[n][netip.AddrPortFrom(one.Front.Address, one.Front.Port)] = true
	}
	return t.deleteAll(ctx, fronts, func(one ruleset.Stale) bool { return all[one] })
}

// Reconcile deletes all UDP connections whose target is not among the sorted targets of their front. It returns the number.
func (t *Tracker) Reconcile(ctx context.Context, live map[ruleset.Front][]netip.AddrPort) (int, error) {
	networks := make(map[network]map[netip.AddrPort]bool)
	for front := range live {
		networks[networkOf(front)] = nil
	}
	return t.deleteAll(ctx, networks, func(one ruleset.Stale) bool {
		targets, ours := live[one.Front]
		_, lives := slices.BinarySearchFunc(targets, one.Target, netip.AddrPort.Compare)
		return ours && !lives
	})
}

// deleteAll deletes the stale connections of networks: of a few fronts, or of all if there are none or many.
func (t *Tracker) deleteAll(ctx context.Context, networks map[network]map[netip.AddrPort]bool, isStale staleFunc) (int, error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	deleted := 0
	var errs []error
	for n, fronts := range networks {
		questions := []netip.AddrPort{{}}
		if len(fronts) > 0 && len(fronts) <= fewFronts {
			questions = slices.Collect(maps.Keys(fronts))
		}
		for _, front := range questions {
			some, err := t.delete(ctx, n, front, isStale)
			deleted += some
			if err != nil {
				errs = append(errs, fmt.Errorf("forgetting connections of %s by %s: %w", n.protocol, n.family, err))
				break
			}
		}
	}
	return deleted, errors.Join(errs...)
}

// staleFunc reports whether connections are stale.
type staleFunc func(ruleset.Stale) bool

// network selects connections: with drained, those to drained endpoints.
type network struct {
	family   ruleset.Family
	protocol ruleset.Protocol
	drained  bool
}

func networkOf(front ruleset.Front) network {
	return network{family: ruleset.FamilyOf(front.Address), protocol: front.Protocol}
}

// delete deletes the stale connections of a front, or of all fronts if it is invalid.
func (t *Tracker) delete(ctx context.Context, n network, front netip.AddrPort, isStale staleFunc) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	found, err := t.find(n, front, isStale)
	if err != nil {
		return 0, err
	}
	deleted := 0
	for part := range slices.Chunk(found, 100) {
		some, err := t.deleteThese(n, part)
		deleted += some
		if err != nil {
			return deleted, err
		}
	}
	return deleted, nil
}

// find returns deletions of the stale connections of a front, or of all fronts if it is invalid.
func (t *Tracker) find(n network, front netip.AddrPort, isStale staleFunc) ([]string, error) {
	m := &t.asker.Messages
	m.Reset()
	m.Begin(netlink.TrackGet, unix.NLM_F_DUMP, familyNumber(n.family), 0)
	filter(m, n, front)
	unanswered := n.protocol != ruleset.UDP && !t.options.TCP && !n.drained
	if unanswered {
		// A kernel without the mask also lists answered connections.
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
		front := ruleset.Front{Address: original.Destination, Protocol: ruleset.Protocol(original.Protocol), Port: original.DestinationPort}
		one := ruleset.Stale{Front: front, Target: netip.AddrPortFrom(reply.Source, reply.SourcePort), Drained: n.drained}
		if front.Protocol == n.protocol && isStale(one) {
			found = append(found, deletion(content))
		}
	})
	return found, err
}

// answered reports whether a connection has had an answer.
func answered(content []byte) bool {
	return netlink.Count(netlink.Attribute(content, netlink.TrackStatus))&netlink.StatusAnswered != 0
}

// filter makes the kernel list connections of a protocol and, if possible, of a front. For an IPv6 address, Linux 6.18 lists
// all other addresses, so IPv6 is filtered by port only.
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

// deletion identifies exactly one connection, not a later one with the same addresses.
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

// deleteThese deletes connections. It does not count missing ones.
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
