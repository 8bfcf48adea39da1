package accounting

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"

	"vicinity.dev/vicinity/internal/proxy/netlink"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// countersBytes is the kind of the attribute that has the bytes of one direction
// (CTA_COUNTERS_BYTES).
const countersBytes = 2

// traffic has the bytes of each direction, with IP headers.
type traffic struct {
	request, reply uint64
}

// since returns the difference to an earlier reading, and false if the counters are lower now.
func (t traffic) since(earlier traffic) (traffic, bool) {
	if t.request < earlier.request || t.reply < earlier.reply {
		return traffic{}, false
	}
	return traffic{t.request - earlier.request, t.reply - earlier.reply}, true
}

type connection struct {
	// key identifies the connection by its addresses and the kernel's id, which is too short alone.
	key    uint64
	front  ruleset.Front
	target netip.Addr
	// moved is zero if the kernel does not count bytes.
	moved traffic
	dying bool
}

// reader reads messages of connection tracking.
type reader struct {
	seed maphash.Seed
}

func newReader() reader { return reader{maphash.MakeSeed()} }

func (r reader) connection(attributes []byte) (c connection, ok bool) {
	var id, status uint32
	var original, reply netlink.Tuple
	for kind, value := range netlink.Attributes(attributes) {
		switch kind {
		case netlink.TrackOriginal:
			original = netlink.ReadTuple(value)
			c.key += maphash.Bytes(r.seed, value)
		case netlink.TrackReply:
			reply = netlink.ReadTuple(value)
		case netlink.TrackStatus:
			status = netlink.Count(value)
			if status&netlink.StatusTranslated == 0 {
				return connection{}, false
			}
		case netlink.TrackID:
			id = netlink.Count(value)
		case netlink.TrackCountersOriginal:
			c.moved.request = readBytes(value)
		case netlink.TrackCountersReply:
			c.moved.reply = readBytes(value)
		}
	}
	if status == 0 || original.DestinationPort == 0 || !original.Destination.IsValid() || !reply.Source.IsValid() {
		return connection{}, false
	}
	// The factor, which is odd, spreads ids over all bits.
	c.key += uint64(id) * 0x9e3779b97f4a7c15
	c.front = ruleset.Front{Address: original.Destination, Protocol: ruleset.Protocol(original.Protocol), Port: original.DestinationPort}
	c.target = reply.Source
	c.dying = status&netlink.StatusDying != 0
	return c, true
}

func readBytes(attributes []byte) uint64 {
	if value := netlink.Attribute(attributes, countersBytes); len(value) >= 8 {
		return binary.BigEndian.Uint64(value)
	}
	return 0
}
