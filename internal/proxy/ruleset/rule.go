package ruleset

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Rule is a list of statements. The kernel evaluates them until one does not match the packet or decides on it.
type Rule struct {
	Family     Family
	Statements []Statement
}

// String writes the rule as nft does.
func (r Rule) String() string {
	texts := make([]string, len(r.Statements))
	for i, s := range r.Statements {
		texts[i] = s.text(r.Family)
	}
	return strings.Join(texts, " ")
}

// Statement is a part of a rule: one of the types of this package.
type Statement interface {
	text(Family) string
}

// Value is a property of a packet.
type Value uint8

// The values.
const (
	SourceAddress Value = iota + 1
	DestinationAddress
	TransportProtocol // of the layer 4 header, as the kernel found it
	DestinationPort
	// OriginalAddress and OriginalPort are the destination of the connection's first packet before translation.
	OriginalAddress
	OriginalPort
)

func (v Value) text(family Family) string {
	switch v {
	case SourceAddress:
		return family.String() + " saddr"
	case DestinationAddress:
		return family.String() + " daddr"
	case TransportProtocol:
		return "meta l4proto"
	case DestinationPort:
		return "th dport"
	case OriginalAddress:
		return "ct original " + family.String() + " daddr"
	default:
		return "ct original proto-dst"
	}
}

// Field returns the field of the value in keys.
func (v Value) Field() Field {
	switch v {
	case TransportProtocol:
		return FieldProtocol
	case DestinationPort, OriginalPort:
		return FieldPort
	default:
		return FieldAddress
	}
}

func concatenation(family Family, values []Value) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = v.text(family)
	}
	return strings.Join(texts, " . ")
}

// InPrefix matches packets with an address in a prefix, or not in it.
type InPrefix struct {
	Value  Value // SourceAddress or DestinationAddress
	Prefix netip.Prefix
	Not    bool
}

func (s InPrefix) text(family Family) string {
	operator := " "
	if s.Not {
		operator = " != "
	}
	return s.Value.text(family) + operator + prefixText(s.Prefix)
}

// InPrefixes matches packets with an address in one of the prefixes, which are sorted and do not overlap.
type InPrefixes struct {
	Value    Value // SourceAddress or DestinationAddress
	Prefixes []netip.Prefix
}

func (s InPrefixes) text(family Family) string {
	texts := make([]string, len(s.Prefixes))
	for i, p := range s.Prefixes {
		texts[i] = prefixText(p)
	}
	return s.Value.text(family) + " { " + strings.Join(texts, ", ") + " }"
}

func prefixText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// InSet matches packets whose key is in a set.
type InSet struct {
	Key []Value
	Set string
}

func (s InSet) text(family Family) string {
	return concatenation(family, s.Key) + " @" + s.Set
}

// FromInterface matches packets that came in by one of the interfaces or, with Not, by none of them. Packets of the node
// come in by none.
type FromInterface struct {
	Interfaces Interfaces
	Not        bool
}

func (s FromInterface) text(Family) string {
	operator, all := " ", ""
	if s.Not {
		operator = " != "
	}
	if s.Interfaces.Prefix {
		all = "*"
	}
	return "iifname" + operator + `"` + s.Interfaces.Name + all + `"`
}

// FromNode matches packets whose source is an address of the node.
type FromNode struct{}

func (FromNode) text(Family) string { return "fib saddr type local" }

// HasProtocol matches packets of a transport protocol.
type HasProtocol struct {
	Protocol Protocol
}

func (s HasProtocol) text(Family) string { return "meta l4proto " + s.Protocol.String() }

// NewConnection matches packets whose connection is new.
type NewConnection struct{}

func (NewConnection) text(Family) string { return "ct state new" }

// Translated matches packets of connections with a translated destination.
type Translated struct{}

func (Translated) text(Family) string { return "ct status dnat" }

// Marked matches packets whose mark has all the bits.
type Marked struct {
	Bits uint32
}

func (s Marked) text(Family) string {
	return fmt.Sprintf("meta mark & 0x%08[1]x == 0x%08[1]x", s.Bits)
}

// SetMark sets bits of a packet's mark.
type SetMark struct {
	Bits uint32
}

func (s SetMark) text(Family) string {
	return fmt.Sprintf("meta mark set meta mark | 0x%08x", s.Bits)
}

// FlipMark flips bits of a packet's mark.
type FlipMark struct {
	Bits uint32
}

func (s FlipMark) text(Family) string {
	return fmt.Sprintf("meta mark set meta mark ^ 0x%08x", s.Bits)
}

// Decide gives the packet a verdict.
type Decide struct {
	Verdict Verdict
}

func (s Decide) text(Family) string { return s.Verdict.String() }

// Draw matches Share of Of packets, at random.
type Draw struct {
	Share, Of uint32
}

func (s Draw) text(Family) string {
	return fmt.Sprintf("numgen random mod %d < %d", s.Of, s.Share)
}

// LookUp gives the packet the verdict of a map. Without one, the next rule follows.
type LookUp struct {
	Key []Value
	Map string
}

func (s LookUp) text(family Family) string {
	return concatenation(family, s.Key) + " vmap @" + s.Map
}

// Translate gives the packet a destination from a map. Without one, the next rule follows.
type Translate struct {
	Key []Value
	// Slots, unless zero, appends a FieldSlot to the key: a random number of Slots numbers, from Offset on.
	Slots, Offset uint32
	Map           string
}

func (s Translate) text(family Family) string {
	key := concatenation(family, s.Key)
	if s.Slots > 0 {
		key += fmt.Sprintf(" . numgen random mod %d", s.Slots)
	}
	if s.Offset > 0 {
		key += fmt.Sprintf(" offset %d", s.Offset)
	}
	return "dnat " + family.String() + " to " + key + " map @" + s.Map
}

// Masquerade gives the packet an address of the node as its source, and a random port.
type Masquerade struct{}

func (Masquerade) text(Family) string { return "masquerade fully-random" }

// Refuse rejects the packet.
type Refuse struct {
	// Reset answers with a TCP reset instead of an ICMP message about the port.
	Reset bool
}

func (s Refuse) text(Family) string {
	if s.Reset {
		return "reject with tcp reset"
	}
	return "reject"
}

// Remember adds the packet's source to a map of clients, with the packet's destination as its target. If the source is in
// the map, Remember restarts its timeout and keeps its target.
type Remember struct {
	Map     string
	Timeout time.Duration
}

func (s Remember) text(family Family) string {
	return fmt.Sprintf("update @%s { %s timeout %s : %s . %s }", s.Map,
		SourceAddress.text(family), timeText(s.Timeout), DestinationAddress.text(family), DestinationPort.text(family))
}

// Recalls matches packets whose source has a target with an address in a map of clients.
type Recalls struct {
	Map     string
	Address netip.Addr
}

func (s Recalls) text(family Family) string {
	return SourceAddress.text(family) + " map @" + s.Map + " " + s.Address.String()
}

// Unremember deletes the packet's source from a map of clients.
type Unremember struct {
	Map string
}

func (s Unremember) text(family Family) string {
	return fmt.Sprintf("delete @%s { %s : %s . %s }", s.Map,
		SourceAddress.text(family), DestinationAddress.text(family), DestinationPort.text(family))
}

// timeText writes a duration as nft does: 1d2h3m4s5ms.
func timeText(d time.Duration) string {
	var b strings.Builder
	rest := d.Milliseconds()
	for _, unit := range []struct {
		name string
		size int64
	}{{"d", 86_400_000}, {"h", 3_600_000}, {"m", 60_000}, {"s", 1000}, {"ms", 1}} {
		if n := rest / unit.size; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, unit.name)
			rest %= unit.size
		}
	}
	if b.Len() == 0 {
		return "0s"
	}
	return b.String()
}

// String writes the verdict as nft does.
func (v Verdict) String() string {
	switch v.Kind {
	case VerdictDrop:
		return "drop"
	case VerdictGoto:
		return "goto " + v.Chain
	case VerdictReturn:
		return "return"
	default:
		return "no verdict"
	}
}

// String is the name of the protocol.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case SCTP:
		return "sctp"
	default:
		return fmt.Sprint(uint8(p))
	}
}
