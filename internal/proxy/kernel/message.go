package kernel

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// maxAttribute is the length that an attribute can have at most, with its header: the
// header has 16 bits for it. What is longer would be cut off without a word.
const maxAttribute = 1<<16 - 1

// netfilterHeader is the length of the header that follows that of netlink in messages of
// all parts of netfilter.
const netfilterHeader = 4

// messages are netlink messages one behind another, as the kernel takes them.
type messages struct {
	bytes []byte
	// starts are where they begin.
	starts []int
}

func (m *messages) reset() {
	m.bytes, m.starts = m.bytes[:0], m.starts[:0]
}

// release gives much memory back, of which a large transaction has taken more than any
// other will need.
func (m *messages) release() {
	const small = 256 << 10
	if cap(m.bytes) > small {
		*m = messages{}
	}
}

// begin begins a message. Resource is what the header of netfilter has by that name, which
// most kinds have no use for.
func (m *messages) begin(kind, flags uint16, family uint8, resource uint16) {
	m.starts = append(m.starts, len(m.bytes))
	m.bytes = append(m.bytes, 0, 0, 0, 0) // the length, see end
	m.bytes = binary.NativeEndian.AppendUint16(m.bytes, kind)
	m.bytes = binary.NativeEndian.AppendUint16(m.bytes, unix.NLM_F_REQUEST|flags)
	m.bytes = append(m.bytes, 0, 0, 0, 0, 0, 0, 0, 0) // the sequence number, see number, and the sender
	m.bytes = append(m.bytes, family, unix.NFNETLINK_V0)
	m.bytes = binary.BigEndian.AppendUint16(m.bytes, resource)
}

// end ends the message that was begun last.
func (m *messages) end() {
	start := m.starts[len(m.starts)-1]
	binary.NativeEndian.PutUint32(m.bytes[start:], uint32(len(m.bytes)-start))
}

// acknowledge has the kernel answer the last message also if all is well.
func (m *messages) acknowledge() {
	at := m.starts[len(m.starts)-1] + 6
	binary.NativeEndian.PutUint16(m.bytes[at:], binary.NativeEndian.Uint16(m.bytes[at:])|unix.NLM_F_ACK)
}

// lists reports whether the first message asks for a list of things.
func (m *messages) lists() bool {
	return binary.NativeEndian.Uint16(m.bytes[m.starts[0]+6:])&unix.NLM_F_DUMP == unix.NLM_F_DUMP
}

// number numbers the messages, by which the kernel says which of them it answers.
func (m *messages) number(first uint32) {
	for i, start := range m.starts {
		binary.NativeEndian.PutUint32(m.bytes[start+8:], first+uint32(i))
	}
}

// nest begins an attribute of attributes.
func (m *messages) nest(kind uint16) (start int) {
	start = len(m.bytes)
	m.header(kind|unix.NLA_F_NESTED, 0)
	return start
}

// nested ends an attribute of attributes.
func (m *messages) nested(start int) {
	binary.NativeEndian.PutUint16(m.bytes[start:], uint16(len(m.bytes)-start))
}

// header begins an attribute with so many bytes of content.
func (m *messages) header(kind uint16, content int) {
	m.bytes = binary.NativeEndian.AppendUint16(m.bytes, uint16(unix.SizeofNlAttr+content))
	m.bytes = binary.NativeEndian.AppendUint16(m.bytes, kind)
}

// pad fills up to where the next attribute may begin.
func (m *messages) pad() {
	for len(m.bytes)%unix.NLA_ALIGNTO != 0 {
		m.bytes = append(m.bytes, 0)
	}
}

// number32 writes an attribute that is a number.
func (m *messages) number32(kind uint16, value uint32) {
	m.header(kind, 4)
	m.bytes = binary.BigEndian.AppendUint32(m.bytes, value)
}

// number64 writes an attribute that is a number.
func (m *messages) number64(kind uint16, value uint64) {
	m.header(kind, 8)
	m.bytes = binary.BigEndian.AppendUint64(m.bytes, value)
}

// name writes an attribute that is a name.
func (m *messages) name(kind uint16, value string) {
	m.header(kind, len(value)+1)
	m.bytes = append(append(m.bytes, value...), 0)
	m.pad()
}

// raw writes an attribute of any other content.
func (m *messages) raw(kind uint16, value string) {
	m.header(kind, len(value))
	m.bytes = append(m.bytes, value...)
	m.pad()
}

// attributes yields kind and content of each attribute, as far as they are whole.
func attributes(b []byte) func(yield func(kind uint16, content []byte) bool) {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.SizeofNlAttr {
			length := int(binary.NativeEndian.Uint16(b))
			if length < unix.SizeofNlAttr || length > len(b) {
				return
			}
			kind := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
			if !yield(kind, b[unix.SizeofNlAttr:length]) {
				return
			}
			b = b[min(align(length), len(b)):]
		}
	}
}

// attribute is the content of the first attribute of a kind, nil if there is none.
func attribute(b []byte, kind uint16) []byte {
	for found, content := range attributes(b) {
		if found == kind {
			return content
		}
	}
	return nil
}

// text is a name as attributes hold it.
func text(content []byte) string { return string(bytes.TrimSuffix(content, []byte{0})) }

// count is a number as attributes hold it, zero if there is none.
func count(content []byte) uint32 {
	if len(content) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(content)
}

// align is where the next of the parts of a message begins.
func align(length int) int {
	return (length + unix.NLA_ALIGNTO - 1) &^ (unix.NLA_ALIGNTO - 1)
}
