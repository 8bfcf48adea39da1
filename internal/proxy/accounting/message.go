package accounting

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// What messages of connection tracking are made of, by the kernel's names for it
// (linux/netfilter/nfnetlink_conntrack.h).
const (
	messageNew    = unix.NFNL_SUBSYS_CTNETLINK << 8   // IPCTNL_MSG_CT_NEW
	messageGet    = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1 // IPCTNL_MSG_CT_GET
	messageDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2 // IPCTNL_MSG_CT_DELETE

	attributeTupleOriginal    = 1
	attributeTupleReply       = 2
	attributeStatus           = 3
	attributeCountersOriginal = 9
	attributeCountersReply    = 10
	attributeID               = 12
	attributeStatusMask       = 26

	tupleAddresses = 1
	tupleProtocol  = 2

	addressSource4      = 1
	addressDestination4 = 2
	addressSource6      = 3
	addressDestination6 = 4

	protocolNumber          = 1
	protocolDestinationPort = 3

	countersBytes = 2

	// statusTranslated is set for a connection whose destination was replaced.
	statusTranslated = 1 << 5 // IPS_DST_NAT
	// statusDying is set for a connection that ends.
	statusDying = 1 << 9 // IPS_DYING
)

const (
	headerLength    = unix.SizeofNlMsghdr
	preambleLength  = 4 // struct nfgenmsg
	attributeLength = unix.SizeofNlAttr
	// attributeType leaves out the flags that the kernel puts beside a type.
	attributeType = 1<<14 - 1
)

// message is one of those that a read of a netlink socket gives, without its header.
type message struct {
	kind    uint16
	payload []byte
}

// nextMessage takes the first message off what was read.
func nextMessage(read []byte) (m message, rest []byte, ok bool) {
	if len(read) < headerLength {
		return message{}, nil, false
	}
	length := int(binary.NativeEndian.Uint32(read))
	if length < headerLength || length > len(read) {
		return message{}, nil, false
	}
	m = message{binary.NativeEndian.Uint16(read[4:]), read[headerLength:length]}
	return m, read[min(aligned(length), len(read)):], true
}

// aligned is where what follows begins.
func aligned(length int) int { return (length + 3) &^ 3 }

// nextAttribute takes the first attribute off the rest of a message.
func nextAttribute(attributes []byte) (kind uint16, payload, rest []byte, ok bool) {
	if len(attributes) < attributeLength {
		return 0, nil, nil, false
	}
	length := int(binary.NativeEndian.Uint16(attributes))
	if length < attributeLength || length > len(attributes) {
		return 0, nil, nil, false
	}
	kind = binary.NativeEndian.Uint16(attributes[2:]) & attributeType
	return kind, attributes[attributeLength:length], attributes[min(aligned(length), len(attributes)):], true
}

// traffic is how many bytes went each way, as the kernel counts them: packets with
// their IP headers.
type traffic struct {
	request, reply uint64
}

// since is what was added to it since an earlier look. It is false if it is less than
// it was, which no connection becomes.
func (t traffic) since(earlier traffic) (traffic, bool) {
	if t.request < earlier.request || t.reply < earlier.reply {
		return traffic{}, false
	}
	return traffic{t.request - earlier.request, t.reply - earlier.reply}, true
}

// connection is what matters of a tracked connection.
type connection struct {
	// key tells it from all others: it is made of the kernel's id, which alone is too
	// short for that, and of who talks to whom.
	key    uint64
	front  ruleset.Front
	target netip.Addr
	// moved is zero where the kernel does not count.
	moved traffic
	dying bool
}

// reader reads messages of connection tracking.
type reader struct {
	seed maphash.Seed
}

func newReader() reader { return reader{maphash.MakeSeed()} }

// connection reads a message about one. It is false for one without a translated
// destination, and for what is not about a connection with ports.
func (r reader) connection(payload []byte) (c connection, ok bool) {
	if len(payload) < preambleLength {
		return connection{}, false
	}
	var id, status uint32
	var original tuple
	var reply tuple
	for attributes := payload[preambleLength:]; ; {
		kind, value, rest, more := nextAttribute(attributes)
		if !more {
			break
		}
		attributes = rest
		switch kind {
		case attributeTupleOriginal:
			original = readTuple(value)
			c.key += maphash.Bytes(r.seed, value)
		case attributeTupleReply:
			reply = readTuple(value)
		case attributeStatus:
			status = number32(value)
			if status&statusTranslated == 0 {
				return connection{}, false
			}
		case attributeID:
			id = number32(value)
		case attributeCountersOriginal:
			c.moved.request = readBytes(value)
		case attributeCountersReply:
			c.moved.reply = readBytes(value)
		}
	}
	if status == 0 || original.port == 0 || !original.destination.IsValid() || !reply.source.IsValid() {
		return connection{}, false
	}
	// The factor, which is odd, spreads ids over all bits.
	c.key += uint64(id) * 0x9e3779b97f4a7c15
	c.front = ruleset.Front{Address: original.destination, Protocol: ruleset.Protocol(original.protocol), Port: original.port}
	c.target = reply.source
	c.dying = status&statusDying != 0
	return c, true
}

// tuple is one direction of a connection, as far as it is of interest.
type tuple struct {
	source, destination netip.Addr
	protocol            uint8
	port                uint16 // of the destination
}

func readTuple(attributes []byte) (t tuple) {
	for {
		kind, value, rest, more := nextAttribute(attributes)
		if !more {
			return t
		}
		attributes = rest
		switch kind {
		case tupleAddresses:
			t.source, t.destination = readAddresses(value)
		case tupleProtocol:
			t.protocol, t.port = readProtocol(value)
		}
	}
}

func readAddresses(attributes []byte) (source, destination netip.Addr) {
	for {
		kind, value, rest, more := nextAttribute(attributes)
		if !more {
			return source, destination
		}
		attributes = rest
		address, known := netip.AddrFromSlice(value)
		switch {
		case !known:
		case kind == addressSource4 && address.Is4(), kind == addressSource6 && address.Is6():
			source = address
		case kind == addressDestination4 && address.Is4(), kind == addressDestination6 && address.Is6():
			destination = address
		}
	}
}

func readProtocol(attributes []byte) (protocol uint8, port uint16) {
	for {
		kind, value, rest, more := nextAttribute(attributes)
		if !more {
			return protocol, port
		}
		attributes = rest
		switch {
		case kind == protocolNumber && len(value) >= 1:
			protocol = value[0]
		case kind == protocolDestinationPort && len(value) >= 2:
			port = binary.BigEndian.Uint16(value)
		}
	}
}

func readBytes(attributes []byte) uint64 {
	for {
		kind, value, rest, more := nextAttribute(attributes)
		if !more {
			return 0
		}
		attributes = rest
		if kind == countersBytes && len(value) >= 8 {
			return binary.BigEndian.Uint64(value)
		}
	}
}

func number32(value []byte) uint32 {
	if len(value) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(value)
}
