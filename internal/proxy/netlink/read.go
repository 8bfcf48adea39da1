package netlink

import (
	"bytes"
	"encoding/binary"
	"iter"

	"golang.org/x/sys/unix"
)

// Message is a message of the kernel, without its header.
type Message struct {
	Kind, Flags uint16
	Sequence    uint32
	Content     []byte
}

// NextMessage takes the first message off a buffer.
func NextMessage(read []byte) (m Message, rest []byte, ok bool) {
	if len(read) < unix.SizeofNlMsghdr {
		return Message{}, nil, false
	}
	length := int(binary.NativeEndian.Uint32(read))
	if length < unix.SizeofNlMsghdr || length > len(read) {
		return Message{}, nil, false
	}
	m = Message{
		Kind: binary.NativeEndian.Uint16(read[4:]), Flags: binary.NativeEndian.Uint16(read[6:]),
		Sequence: binary.NativeEndian.Uint32(read[8:]), Content: read[unix.SizeofNlMsghdr:length],
	}
	return m, read[min(Align(length), len(read)):], true
}

// attributeFlags share a field with the kind of an attribute.
const attributeFlags = unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER

// nextAttribute takes the first attribute off a message.
func nextAttribute(attributes []byte) (kind uint16, content, rest []byte, ok bool) {
	if len(attributes) < unix.SizeofNlAttr {
		return 0, nil, nil, false
	}
	length := int(binary.NativeEndian.Uint16(attributes))
	if length < unix.SizeofNlAttr || length > len(attributes) {
		return 0, nil, nil, false
	}
	kind = binary.NativeEndian.Uint16(attributes[2:]) &^ attributeFlags
	return kind, attributes[unix.SizeofNlAttr:length], attributes[min(Align(length), len(attributes)):], true
}

// Attributes yields all whole attributes.
func Attributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for {
			kind, content, rest, ok := nextAttribute(b)
			if !ok || !yield(kind, content) {
				return
			}
			b = rest
		}
	}
}

// Attribute returns the content of the first attribute of a kind, nil without one.
func Attribute(b []byte, kind uint16) []byte {
	for found, content := range Attributes(b) {
		if found == kind {
			return content
		}
	}
	return nil
}

// Text reads a name.
func Text(content []byte) string { return string(bytes.TrimSuffix(content, []byte{0})) }

// Count reads a number, zero without one.
func Count(content []byte) uint32 {
	if len(content) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(content)
}

// Align rounds a length up to the beginning of the next part of a message.
func Align(length int) int {
	return (length + unix.NLA_ALIGNTO - 1) &^ (unix.NLA_ALIGNTO - 1)
}
