package netlink

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Messages and attributes of connection tracking (linux/netfilter/nfnetlink_conntrack.h) that package unix
// lacks.
const (
	TrackNew    = unix.NFNL_SUBSYS_CTNETLINK << 8   // IPCTNL_MSG_CT_NEW
	TrackGet    = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1 // IPCTNL_MSG_CT_GET
	TrackDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2 // IPCTNL_MSG_CT_DELETE

	TrackOriginal         = 1  // CTA_TUPLE_ORIG
	TrackReply            = 2  // CTA_TUPLE_REPLY
	TrackStatus           = 3  // CTA_STATUS
	TrackCountersOriginal = 9  // CTA_COUNTERS_ORIG
	TrackCountersReply    = 10 // CTA_COUNTERS_REPLY
	TrackID               = 12 // CTA_ID
	TrackZone             = 18 // CTA_ZONE
	TrackFilter           = 25 // CTA_FILTER
	TrackStatusMask       = 26 // CTA_STATUS_MASK

	TupleAddress  = 1 // CTA_TUPLE_IP
	TupleProtocol = 2 // CTA_TUPLE_PROTO

	AddressIPv4Source      = 1 // CTA_IP_V4_SRC
	AddressIPv4Destination = 2 // CTA_IP_V4_DST
	AddressIPv6Source      = 3 // CTA_IP_V6_SRC
	AddressIPv6Destination = 4 // CTA_IP_V6_DST

	ProtocolNumber          = 1 // CTA_PROTO_NUM
	ProtocolSourcePort      = 2 // CTA_PROTO_SRC_PORT
	ProtocolDestinationPort = 3 // CTA_PROTO_DST_PORT
)

// Bits of the status of a connection.
const (
	StatusAnswered   = 1 << 1 // IPS_SEEN_REPLY
	StatusTranslated = 1 << 5 // IPS_DST_NAT
	StatusDying      = 1 << 9 // IPS_DYING
)

// Tuple is one direction of a connection. Its ports are zero if the protocol has none.
type Tuple struct {
	Source, Destination         netip.Addr
	Protocol                    uint8
	SourcePort, DestinationPort uint16
}

// ReadTuple reads one direction of a connection.
func ReadTuple(content []byte) (t Tuple) {
	for kind, value := range Attributes(content) {
		switch kind {
		case TupleAddress:
			t.readAddresses(value)
		case TupleProtocol:
			t.readProtocol(value)
		}
	}
	return t
}

func (t *Tuple) readAddresses(content []byte) {
	for kind, value := range Attributes(content) {
		address, known := netip.AddrFromSlice(value)
		switch {
		case !known:
		case kind == AddressIPv4Source && address.Is4(), kind == AddressIPv6Source && address.Is6():
			t.Source = address
		case kind == AddressIPv4Destination && address.Is4(), kind == AddressIPv6Destination && address.Is6():
			t.Destination = address
		}
	}
}

func (t *Tuple) readProtocol(content []byte) {
	for kind, value := range Attributes(content) {
		switch {
		case kind == ProtocolNumber && len(value) >= 1:
			t.Protocol = value[0]
		case kind == ProtocolSourcePort && len(value) >= 2:
			t.SourcePort = binary.BigEndian.Uint16(value)
		case kind == ProtocolDestinationPort && len(value) >= 2:
			t.DestinationPort = binary.BigEndian.Uint16(value)
		}
	}
}
