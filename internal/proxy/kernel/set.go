package kernel

import (
	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// Constants of the kernel that the package unix has no names for.
const (
	setConcatenation     = 0x80 // NFT_SET_CONCAT
	setDescriptionFields = 2    // NFTA_SET_DESC_CONCAT
	setDescriptionLength = 1    // NFTA_SET_FIELD_LEN
)

// The numbers that nft has for types. That of several fields has six bits for each.
const (
	bitsOfType      = 6
	typeIPv4Address = 7
	typeIPv6Address = 8
	typeProtocol    = 12
	typePort        = 13
	typeMark        = 19
)

// field is what the kernel, and nft, know of a field: the number that nft has for its
// type, by which it lists what it reads, and its length.
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
	// A slot is a plain number, and marks are the only ones that nft has a type for.
	return typeMark, 4
}

// concatenation is the type of several fields, and the length of all, each padded.
func concatenation(family ruleset.Family, fields []ruleset.Field) (kind, length uint32) {
	for _, f := range fields {
		one, bytes := field(family, f)
		kind = kind<<bitsOfType | one
		length += uint32(align(int(bytes)))
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
	m.name(unix.NFTA_SET_TABLE, e.name)
	m.name(unix.NFTA_SET_NAME, set.Name)
	var flags uint32
	if set.Verdicts || set.Data != nil {
		flags |= unix.NFT_SET_MAP
	}
	if set.Size > 0 {
		flags |= unix.NFT_SET_TIMEOUT | unix.NFT_SET_EVAL
	}
	if len(set.Key) > 1 {
		flags |= setConcatenation
	}
	m.number32(unix.NFTA_SET_FLAGS, flags)
	kind, length := concatenation(e.family, set.Key)
	m.number32(unix.NFTA_SET_KEY_TYPE, kind)
	m.number32(unix.NFTA_SET_KEY_LEN, length)
	m.number32(unix.NFTA_SET_ID, e.sets)
	switch {
	case set.Verdicts:
		m.number32(unix.NFTA_SET_DATA_TYPE, unix.NFT_DATA_VERDICT)
		m.number32(unix.NFTA_SET_DATA_LEN, 0)
	case set.Data != nil:
		kind, length := concatenation(e.family, set.Data)
		m.number32(unix.NFTA_SET_DATA_TYPE, kind)
		m.number32(unix.NFTA_SET_DATA_LEN, length)
	}
	e.description(set)
	m.raw(unix.NFTA_SET_USERDATA, comment(setComment, set.Fingerprint()))
	m.end()
}

// description writes how many elements a set has room for, and where the fields of its
// keys begin, without which nft fails to list them.
func (e *encoder) description(set *ruleset.Set) {
	if set.Size == 0 && len(set.Key) == 1 {
		return
	}
	m := e.messages
	description := m.nest(unix.NFTA_SET_DESC)
	if set.Size > 0 {
		m.number32(unix.NFTA_SET_DESC_SIZE, set.Size)
	}
	if len(set.Key) > 1 {
		fields := m.nest(setDescriptionFields)
		for _, f := range set.Key {
			_, length := field(e.family, f)
			one := m.nest(unix.NFTA_LIST_ELEM)
			m.number32(setDescriptionLength, length)
			m.nested(one)
		}
		m.nested(fields)
	}
	m.nested(description)
}

// elements writes the elements of a change, in as many messages as they need.
func (e *encoder) elements(o origin, kind, flags uint16, c *ruleset.Change) {
	m := e.messages
	for rest := c.Elements; len(rest) > 0; {
		o.element = len(c.Elements) - len(rest)
		e.begin(o, kind, flags)
		m.name(unix.NFTA_SET_ELEM_LIST_TABLE, e.name)
		m.name(unix.NFTA_SET_ELEM_LIST_SET, c.Set.Name)
		list := m.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		for len(rest) > 0 {
			start := len(m.bytes)
			e.element(&rest[0])
			if len(m.bytes)-list > maxAttribute {
				m.bytes = m.bytes[:start]
				break
			}
			rest = rest[1:]
		}
		m.nested(list)
		m.end()
	}
}

// element writes an element.
func (e *encoder) element(element *ruleset.Element) {
	m := e.messages
	one := m.nest(unix.NFTA_LIST_ELEM)
	key := m.nest(unix.NFTA_SET_ELEM_KEY)
	m.raw(unix.NFTA_DATA_VALUE, element.Key)
	m.nested(key)
	switch {
	case element.Verdict.Kind != 0:
		data := m.nest(unix.NFTA_SET_ELEM_DATA)
		writeVerdict(m, element.Verdict)
		m.nested(data)
	case element.Data != "":
		data := m.nest(unix.NFTA_SET_ELEM_DATA)
		m.raw(unix.NFTA_DATA_VALUE, element.Data)
		m.nested(data)
	}
	m.nested(one)
}
