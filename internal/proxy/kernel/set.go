package kernel

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/netlink"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// Constants of the kernel that package unix lacks.
const (
	setConcatenation     = 0x80 // NFT_SET_CONCAT
	setDescriptionSize   = 1    // NFTA_SET_DESC_SIZE
	setDescriptionFields = 2    // NFTA_SET_DESC_CONCAT
	setDescriptionLength = 1    // NFTA_SET_FIELD_LEN
)

// Numbers of types in nft. A type of several fields has six bits for each.
const (
	bitsOfType      = 6
	typeIPv4Address = 7
	typeIPv6Address = 8
	typeProtocol    = 12
	typePort        = 13
	typeMark        = 19
)

// field returns nft's number for the type of a field, which nft needs to list elements, and the length of the field.
func field(family ruleset.Family, f ruleset.Field) (kind, length uint32) {
	switch f {
	case ruleset.FieldAddress:
		if family == ruleset.IPv6 {
			return typeIPv6Address, 16
		}
		return typeIPv4Address, 4
	case ruleset.FieldProtocol:
		return typeProtocol, 1
	case ruleset.FieldPort:
		return typePort, 2
	}
	// A slot is a number, and marks are the only number type of nft.
	return typeMark, 4
}

// concatenation returns the type of several fields, and their padded length.
func concatenation(family ruleset.Family, fields []ruleset.Field) (kind, length uint32) {
	for _, f := range fields {
		one, bytes := field(family, f)
		kind = kind<<bitsOfType | one
		length += uint32(netlink.Align(int(bytes)))
	}
	if len(fields) == 1 {
		_, length = field(family, fields[0])
	}
	return kind, length
}

// addSet writes a set without elements.
func (e *encoder) addSet(o origin, set *ruleset.Set) {
	m := e.messages
	e.sets++
	e.begin(o, unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE)
	m.Name(unix.NFTA_SET_TABLE, e.name)
	m.Name(unix.NFTA_SET_NAME, set.Name)
	var flags uint32
	if set.Verdicts || set.Data != nil {
		flags |= unix.NFT_SET_MAP
	}
	if set.Dynamic {
		flags |= unix.NFT_SET_TIMEOUT | unix.NFT_SET_EVAL
	}
	if len(set.Key) > 1 {
		flags |= setConcatenation
	}
	m.Number32(unix.NFTA_SET_FLAGS, flags)
	kind, length := concatenation(e.family, set.Key)
	m.Number32(unix.NFTA_SET_KEY_TYPE, kind)
	m.Number32(unix.NFTA_SET_KEY_LEN, length)
	m.Number32(unix.NFTA_SET_ID, e.sets)
	switch {
	case set.Verdicts:
		m.Number32(unix.NFTA_SET_DATA_TYPE, unix.NFT_DATA_VERDICT)
		m.Number32(unix.NFTA_SET_DATA_LEN, 0)
	case set.Data != nil:
		kind, length := concatenation(e.family, set.Data)
		m.Number32(unix.NFTA_SET_DATA_TYPE, kind)
		m.Number32(unix.NFTA_SET_DATA_LEN, length)
	}
	e.description(set)
	m.Raw(unix.NFTA_SET_USERDATA, comment(setComment, set.Fingerprint()))
	m.End()
}

// description writes the size of a set, and the lengths of the fields of its keys. Without them nft cannot list the
// elements.
func (e *encoder) description(set *ruleset.Set) {
	if len(set.Key) == 1 && set.Size == 0 {
		return
	}
	m := e.messages
	description := m.Nest(unix.NFTA_SET_DESC)
	defer m.EndNest(description)
	if set.Size > 0 {
		m.Number32(setDescriptionSize, uint32(set.Size))
	}
	if len(set.Key) == 1 {
		return
	}
	fields := m.Nest(setDescriptionFields)
	for _, f := range set.Key {
		_, length := field(e.family, f)
		one := m.Nest(unix.NFTA_LIST_ELEM)
		m.Number32(setDescriptionLength, length)
		m.EndNest(one)
	}
	m.EndNest(fields)
}

// rangesName is the name of unnamed sets. The kernel replaces %d.
const rangesName = "__set%d"

// ranges writes the unnamed sets of a rule, and returns their numbers. The kernel deletes them with the rule.
func (e *encoder) ranges(o origin, statements []ruleset.Statement) []uint32 {
	var numbers []uint32
	for _, s := range statements {
		if in, ok := s.(ruleset.InPrefixes); ok {
			e.addRanges(o, in.Prefixes)
			numbers = append(numbers, e.sets)
		}
	}
	return numbers
}

func (e *encoder) addRanges(o origin, prefixes []netip.Prefix) {
	m := e.messages
	e.sets++
	e.begin(o, unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE)
	m.Name(unix.NFTA_SET_TABLE, e.name)
	m.Name(unix.NFTA_SET_NAME, rangesName)
	m.Number32(unix.NFTA_SET_FLAGS, unix.NFT_SET_ANONYMOUS|unix.NFT_SET_CONSTANT|unix.NFT_SET_INTERVAL)
	kind, length := field(e.family, ruleset.FieldAddress)
	m.Number32(unix.NFTA_SET_KEY_TYPE, kind)
	m.Number32(unix.NFTA_SET_KEY_LEN, length)
	m.Number32(unix.NFTA_SET_ID, e.sets)
	m.End()
	for part := range slices.Chunk(rangeEnds(prefixes), rangesAtOnce) {
		e.begin(o, unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE)
		m.Name(unix.NFTA_SET_ELEM_LIST_TABLE, e.name)
		m.Name(unix.NFTA_SET_ELEM_LIST_SET, rangesName)
		m.Number32(unix.NFTA_SET_ELEM_LIST_SET_ID, e.sets)
		list := m.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		for _, end := range part {
			e.rangeEnd(end)
		}
		m.EndNest(list)
		m.End()
	}
}

const rangesAtOnce = 1000

// rangeEnd is the first address of a range, or the first one after it.
type rangeEnd struct {
	address netip.Addr
	after   bool
}

// rangeEnds returns the ends of sorted, separate prefixes. There is no end between adjacent prefixes: Linux before 6.19 would
// take the address for an end only.
func rangeEnds(prefixes []netip.Prefix) []rangeEnd {
	ends := make([]rangeEnd, 0, 2*len(prefixes))
	for _, p := range prefixes {
		if last := len(ends) - 1; last >= 0 && ends[last].address == p.Addr() {
			ends = ends[:last]
		} else {
			ends = append(ends, rangeEnd{address: p.Addr()})
		}
		if after := afterPrefix(p); after.IsValid() {
			ends = append(ends, rangeEnd{address: after, after: true})
		}
	}
	return ends
}

func (e *encoder) rangeEnd(end rangeEnd) {
	m := e.messages
	one := m.Nest(unix.NFTA_LIST_ELEM)
	if end.after {
		m.Number32(unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
	}
	writeValue(m, unix.NFTA_SET_ELEM_KEY, string(end.address.AsSlice()))
	m.EndNest(one)
}

// afterPrefix is the first address after a prefix, invalid if there is none.
func afterPrefix(p netip.Prefix) netip.Addr {
	bytes := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < 8*len(bytes); bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return last.Next()
}

// elements writes the elements of a change, in as many messages as they need.
func (e *encoder) elements(o origin, kind, flags uint16, c *ruleset.Change) {
	m := e.messages
	for rest := c.Elements; len(rest) > 0; {
		o.element = len(c.Elements) - len(rest)
		e.begin(o, kind, flags)
		m.Name(unix.NFTA_SET_ELEM_LIST_TABLE, e.name)
		m.Name(unix.NFTA_SET_ELEM_LIST_SET, c.Set.Name)
		list := m.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		for len(rest) > 0 {
			start := len(m.Bytes)
			e.element(&rest[0])
			if len(m.Bytes)-list > netlink.MaxAttribute {
				m.Bytes = m.Bytes[:start]
				break
			}
			rest = rest[1:]
		}
		m.EndNest(list)
		m.End()
	}
}

func (e *encoder) element(element *ruleset.Element) {
	m := e.messages
	one := m.Nest(unix.NFTA_LIST_ELEM)
	writeValue(m, unix.NFTA_SET_ELEM_KEY, element.Key)
	switch {
	case element.Verdict.Kind != 0:
		data := m.Nest(unix.NFTA_SET_ELEM_DATA)
		writeVerdict(m, element.Verdict)
		m.EndNest(data)
	case element.Data != "":
		writeValue(m, unix.NFTA_SET_ELEM_DATA, element.Data)
	}
	m.EndNest(one)
}

// Kinds of comments in the user data of rules and sets, which nft shows.
const (
	ruleComment = 0 // NFTNL_UDATA_RULE_COMMENT
	setComment  = 7 // NFTNL_UDATA_SET_COMMENT
)

// comment is user data with a comment: kind, length, and the text with a zero.
func comment(kind byte, text string) string {
	return string([]byte{kind, byte(len(text) + 1)}) + text + "\x00"
}

// commented reads the comment in user data, empty if there is none.
func commented(kind byte, data []byte) string {
	for len(data) >= 2 {
		length := int(data[1])
		if 2+length > len(data) {
			return ""
		}
		if data[0] == kind {
			return netlink.Text(data[2 : 2+length])
		}
		data = data[2+length:]
	}
	return ""
}
