package kernel

import (
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/netlink"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// The kernel has sixteen words of four bytes. Values in adjacent words form a key.
const (
	firstWord = 0
	// dataWord is the first word of the data of a remembered key.
	dataWord        = 4
	verdictRegister = unix.NFT_REG_VERDICT
)

// Constants of the kernel that package unix lacks.
const (
	netfilterDrop        = 0      // NF_DROP
	connectionNew        = 1 << 3 // the bit of IP_CT_NEW in NFT_CT_STATE
	connectionTranslated = 1 << 5 // IPS_DST_NAT
	originalDirection    = 0      // IP_CT_DIR_ORIGINAL
	fullyRandom          = 1 << 4 // NF_NAT_RANGE_PROTO_RANDOM_FULLY
	portUnreachable      = 3      // ICMP_PORT_UNREACH
	portUnreachableIPv6  = 4      // ICMPV6_PORT_UNREACH
	dynsetDelete         = 2      // NFT_DYNSET_OP_DELETE
)

func register(word int) uint32 { return unix.NFT_REG32_00 + uint32(word) }

type rule struct {
	messages *netlink.Messages
	family   ruleset.Family
	// sets has the numbers of the unnamed sets of its statements, in order.
	sets []uint32
}

func (r *rule) write(statements []ruleset.Statement) error {
	for _, s := range statements {
		if err := r.statement(s); err != nil {
			return err
		}
	}
	return nil
}

func (r *rule) statement(s ruleset.Statement) error {
	switch s := s.(type) {
	case ruleset.InPrefix:
		r.inPrefix(s)
	case ruleset.InPrefixes:
		r.value(firstWord, s.Value)
		r.lookUpRanges()
	case ruleset.InSet:
		r.load(firstWord, s.Key)
		r.lookUp(s.Set, nil)
	case ruleset.FromInterface:
		r.fromInterface(s)
	case ruleset.FromNode:
		r.numbers("fib", unix.NFTA_FIB_DREG, register(firstWord), unix.NFTA_FIB_RESULT, unix.NFT_FIB_RESULT_ADDRTYPE, unix.NFTA_FIB_FLAGS, unix.NFTA_FIB_F_SADDR)
		r.compare(unix.NFT_CMP_EQ, native(unix.RTN_LOCAL))
	case ruleset.HasProtocol:
		r.value(firstWord, ruleset.TransportProtocol)
		r.compare(unix.NFT_CMP_EQ, string([]byte{byte(s.Protocol)}))
	case ruleset.NewConnection:
		r.numbers("ct", unix.NFTA_CT_KEY, unix.NFT_CT_STATE, unix.NFTA_CT_DREG, register(firstWord))
		r.anyBit(connectionNew)
	case ruleset.Translated:
		r.numbers("ct", unix.NFTA_CT_KEY, unix.NFT_CT_STATUS, unix.NFTA_CT_DREG, register(firstWord))
		r.anyBit(connectionTranslated)
	case ruleset.Marked:
		r.meta(firstWord, unix.NFT_META_MARK)
		r.bits(native(s.Bits), native(0))
		r.compare(unix.NFT_CMP_EQ, native(s.Bits))
	case ruleset.SetMark:
		r.changeMark(^s.Bits, s.Bits)
	case ruleset.FlipMark:
		r.changeMark(^uint32(0), s.Bits)
	case ruleset.Decide:
		r.decide(s.Verdict)
	case ruleset.Draw:
		r.draw(s)
	case ruleset.LookUp:
		r.load(firstWord, s.Key)
		r.lookUp(s.Map, destination(verdictRegister))
	case ruleset.Translate:
		r.translate(s)
	case ruleset.Masquerade:
		r.numbers("masq", unix.NFTA_MASQ_FLAGS, fullyRandom)
	case ruleset.Refuse:
		r.refuse(s)
	case ruleset.Remember:
		r.remember(s)
	case ruleset.Recalls:
		r.load(firstWord, []ruleset.Value{ruleset.SourceAddress})
		r.lookUp(s.Map, destination(register(firstWord)))
		r.compare(unix.NFT_CMP_EQ, string(s.Address.AsSlice()))
	case ruleset.Unremember:
		r.unremember(s)
	default:
		return fmt.Errorf("statement %T is unknown", s)
	}
	return nil
}

// expression writes one kernel expression. A statement consists of several.
func (r *rule) expression(name string, content func(*netlink.Messages)) {
	one := r.messages.Nest(unix.NFTA_LIST_ELEM)
	r.messages.Name(unix.NFTA_EXPR_NAME, name)
	data := r.messages.Nest(unix.NFTA_EXPR_DATA)
	content(r.messages)
	r.messages.EndNest(data)
	r.messages.EndNest(one)
}

// numbers writes an expression whose attributes are numbers: a kind, its value, and so on.
func (r *rule) numbers(name string, attributes ...uint32) {
	r.expression(name, func(m *netlink.Messages) {
		for pair := range slices.Chunk(attributes, 2) {
			m.Number32(uint16(pair[0]), pair[1])
		}
	})
}

// writeValue writes an attribute that is nothing but a value.
func writeValue(m *netlink.Messages, kind uint16, value string) {
	data := m.Nest(kind)
	m.Raw(unix.NFTA_DATA_VALUE, value)
	m.EndNest(data)
}

// native is a number in the byte order in which the kernel computes.
func native(n uint32) string {
	return string(binary.NativeEndian.AppendUint32(nil, n))
}

// load loads values one after another, and returns the next word.
func (r *rule) load(word int, values []ruleset.Value) int {
	for _, v := range values {
		r.value(word, v)
		word += r.words(v.Field())
	}
	return word
}

func (r *rule) words(f ruleset.Field) int {
	_, length := field(r.family, f)
	return netlink.Align(int(length)) / 4
}

func (r *rule) value(word int, v ruleset.Value) {
	source, target, length := uint32(12), uint32(16), uint32(4)
	original := uint32(unix.NFT_CT_DST_IP)
	if r.family == ruleset.IPv6 {
		source, target, length = 8, 24, 16
		original = unix.NFT_CT_DST_IP6
	}
	switch v {
	case ruleset.SourceAddress:
		r.payload(word, unix.NFT_PAYLOAD_NETWORK_HEADER, source, length)
	case ruleset.DestinationAddress:
		r.payload(word, unix.NFT_PAYLOAD_NETWORK_HEADER, target, length)
	case ruleset.TransportProtocol:
		r.meta(word, unix.NFT_META_L4PROTO)
	case ruleset.DestinationPort:
		r.payload(word, unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2)
	case ruleset.OriginalAddress:
		r.original(word, original)
	case ruleset.OriginalPort:
		r.original(word, unix.NFT_CT_PROTO_DST)
	}
}

func (r *rule) payload(word int, base, offset, length uint32) {
	r.numbers("payload", unix.NFTA_PAYLOAD_DREG, register(word), unix.NFTA_PAYLOAD_BASE, base, unix.NFTA_PAYLOAD_OFFSET, offset, unix.NFTA_PAYLOAD_LEN, length)
}

func (r *rule) meta(word int, key uint32) {
	r.numbers("meta", unix.NFTA_META_KEY, key, unix.NFTA_META_DREG, register(word))
}

// original loads a property of the packet's connection, in the direction of its first packet.
func (r *rule) original(word int, key uint32) {
	r.expression("ct", func(m *netlink.Messages) {
		m.Number32(unix.NFTA_CT_KEY, key)
		m.Number32(unix.NFTA_CT_DREG, register(word))
		m.Raw(unix.NFTA_CT_DIRECTION, string([]byte{originalDirection}))
	})
}

// compare continues the rule if the first word matches the operand.
func (r *rule) compare(operator uint32, operand string) {
	r.expression("cmp", func(m *netlink.Messages) {
		m.Number32(unix.NFTA_CMP_SREG, register(firstWord))
		m.Number32(unix.NFTA_CMP_OP, operator)
		writeValue(m, unix.NFTA_CMP_DATA, operand)
	})
}

// bits keeps some bits of the first word, and flips some.
func (r *rule) bits(keep, flip string) {
	r.expression("bitwise", func(m *netlink.Messages) {
		m.Number32(unix.NFTA_BITWISE_SREG, register(firstWord))
		m.Number32(unix.NFTA_BITWISE_DREG, register(firstWord))
		m.Number32(unix.NFTA_BITWISE_LEN, uint32(len(keep)))
		writeValue(m, unix.NFTA_BITWISE_MASK, keep)
		writeValue(m, unix.NFTA_BITWISE_XOR, flip)
	})
}

// anyBit continues the rule if the first word has any of the bits.
func (r *rule) anyBit(bits uint32) {
	r.bits(native(bits), native(0))
	r.compare(unix.NFT_CMP_NEQ, native(0))
}

// changeMark keeps some bits of the packet's mark, and flips some.
func (r *rule) changeMark(keep, flip uint32) {
	r.meta(firstWord, unix.NFT_META_MARK)
	r.bits(native(keep), native(flip))
	r.numbers("meta", unix.NFTA_META_KEY, unix.NFT_META_MARK, unix.NFTA_META_SREG, register(firstWord))
}

func (r *rule) inPrefix(s ruleset.InPrefix) {
	r.value(firstWord, s.Value)
	prefix := s.Prefix.Masked()
	if !prefix.IsSingleIP() {
		mask := make([]byte, prefix.Addr().BitLen()/8)
		for bit := range prefix.Bits() {
			mask[bit/8] |= 0x80 >> (bit % 8)
		}
		r.bits(string(mask), string(make([]byte, len(mask))))
	}
	operator := uint32(unix.NFT_CMP_EQ)
	if s.Not {
		operator = unix.NFT_CMP_NEQ
	}
	r.compare(operator, string(prefix.Addr().AsSlice()))
}

// fromInterface compares the name of the incoming interface, which the kernel pads with zeros to sixteen bytes.
func (r *rule) fromInterface(s ruleset.FromInterface) {
	r.meta(firstWord, unix.NFT_META_IIFNAME)
	name := s.Interfaces.Name
	if !s.Interfaces.Prefix {
		whole := make([]byte, unix.IFNAMSIZ)
		copy(whole, name)
		name = string(whole)
	}
	operator := uint32(unix.NFT_CMP_EQ)
	if s.Not {
		operator = unix.NFT_CMP_NEQ
	}
	r.compare(operator, name)
}

func (r *rule) decide(v ruleset.Verdict) {
	r.expression("immediate", func(m *netlink.Messages) {
		m.Number32(unix.NFTA_IMMEDIATE_DREG, verdictRegister)
		data := m.Nest(unix.NFTA_IMMEDIATE_DATA)
		writeVerdict(m, v)
		m.EndNest(data)
	})
}

func writeVerdict(m *netlink.Messages, v ruleset.Verdict) {
	verdict := m.Nest(unix.NFTA_DATA_VERDICT)
	m.Number32(unix.NFTA_VERDICT_CODE, verdictCode(v.Kind))
	if v.Chain != "" {
		m.Name(unix.NFTA_VERDICT_CHAIN, v.Chain)
	}
	m.EndNest(verdict)
}

func verdictCode(kind ruleset.VerdictKind) uint32 {
	code := int32(netfilterDrop)
	switch kind {
	case ruleset.VerdictGoto:
		code = unix.NFT_GOTO
	case ruleset.VerdictReturn:
		code = unix.NFT_RETURN
	}
	return uint32(code)
}

func destination(number uint32) *uint32 { return &number }

// lookUp looks up the loaded key in a set or a map.
func (r *rule) lookUp(set string, to *uint32) {
	r.expression("lookup", func(m *netlink.Messages) {
		m.Name(unix.NFTA_LOOKUP_SET, set)
		m.Number32(unix.NFTA_LOOKUP_SREG, register(firstWord))
		if to != nil {
			m.Number32(unix.NFTA_LOOKUP_DREG, *to)
		}
	})
}

// lookUpRanges looks up the loaded value in the next unnamed set of the rule.
func (r *rule) lookUpRanges() {
	id := r.sets[0]
	r.sets = r.sets[1:]
	r.expression("lookup", func(m *netlink.Messages) {
		m.Name(unix.NFTA_LOOKUP_SET, rangesName)
		m.Number32(unix.NFTA_LOOKUP_SREG, register(firstWord))
		m.Number32(unix.NFTA_LOOKUP_SET_ID, id)
	})
}

// random loads a random number.
func (r *rule) random(word int, numbers, offset uint32) {
	r.numbers("numgen", unix.NFTA_NG_DREG, register(word), unix.NFTA_NG_MODULUS, numbers, unix.NFTA_NG_TYPE, unix.NFT_NG_RANDOM, unix.NFTA_NG_OFFSET, offset)
}

// draw compares a random number in network order, in which the kernel compares.
func (r *rule) draw(s ruleset.Draw) {
	r.random(firstWord, s.Of, 0)
	r.numbers("byteorder", unix.NFTA_BYTEORDER_SREG, register(firstWord), unix.NFTA_BYTEORDER_DREG, register(firstWord),
		unix.NFTA_BYTEORDER_OP, unix.NFT_BYTEORDER_HTON, unix.NFTA_BYTEORDER_LEN, 4, unix.NFTA_BYTEORDER_SIZE, 4)
	r.compare(unix.NFT_CMP_LT, string(binary.BigEndian.AppendUint32(nil, s.Share)))
}

func (r *rule) translate(s ruleset.Translate) {
	next := r.load(firstWord, s.Key)
	if s.Slots > 0 {
		r.random(next, s.Slots, s.Offset)
	}
	r.lookUp(s.Map, destination(register(firstWord)))
	r.numbers("nat", unix.NFTA_NAT_TYPE, unix.NFT_NAT_DNAT, unix.NFTA_NAT_FAMILY, uint32(familyNumber(r.family)),
		unix.NFTA_NAT_REG_ADDR_MIN, register(firstWord), unix.NFTA_NAT_REG_PROTO_MIN, register(firstWord+r.words(ruleset.FieldAddress)))
}

func (r *rule) refuse(s ruleset.Refuse) {
	r.expression("reject", func(m *netlink.Messages) {
		if s.Reset {
			m.Number32(unix.NFTA_REJECT_TYPE, unix.NFT_REJECT_TCP_RST)
			return
		}
		code := byte(portUnreachable)
		if r.family == ruleset.IPv6 {
			code = portUnreachableIPv6
		}
		m.Number32(unix.NFTA_REJECT_TYPE, unix.NFT_REJECT_ICMP_UNREACH)
		m.Raw(unix.NFTA_REJECT_ICMP_CODE, string([]byte{code}))
	})
}

func (r *rule) remember(s ruleset.Remember) {
	r.changeClient(s.Map, unix.NFT_DYNSET_OP_UPDATE, func(m *netlink.Messages) {
		m.Number64(unix.NFTA_DYNSET_TIMEOUT, uint64(s.Timeout.Milliseconds()))
	})
}

// unremember names a target only because the kernel requires one.
func (r *rule) unremember(s ruleset.Unremember) {
	r.changeClient(s.Map, dynsetDelete, func(*netlink.Messages) {})
}

// changeClient changes the element of the packet's source in a map. Its target is the packet's destination.
func (r *rule) changeClient(clients string, operation uint32, more func(*netlink.Messages)) {
	r.load(firstWord, []ruleset.Value{ruleset.SourceAddress})
	r.load(dataWord, []ruleset.Value{ruleset.DestinationAddress, ruleset.DestinationPort})
	r.expression("dynset", func(m *netlink.Messages) {
		m.Name(unix.NFTA_DYNSET_SET_NAME, clients)
		m.Number32(unix.NFTA_DYNSET_OP, operation)
		m.Number32(unix.NFTA_DYNSET_SREG_KEY, register(firstWord))
		m.Number32(unix.NFTA_DYNSET_SREG_DATA, register(dataWord))
		more(m)
	})
}
