package netlink

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// MaxAttribute is the maximum length of an attribute with its header. A longer one would be cut off silently.
const MaxAttribute = 1<<16 - 1

// HeaderLength is the length of netfilter's header, which follows netlink's.
const HeaderLength = 4

// Messages are netlink messages one after another.
type Messages struct {
	Bytes []byte
	// Starts has the offset of each message.
	Starts []int
}

// Reset removes all messages and keeps the memory.
func (m *Messages) Reset() {
	m.Bytes, m.Starts = m.Bytes[:0], m.Starts[:0]
}

// Release frees the memory of a large transaction.
func (m *Messages) Release() {
	const small = 256 << 10
	if cap(m.Bytes) > small {
		*m = Messages{}
	}
}

// Begin begins a message. Most kinds ignore the resource in netfilter's header.
func (m *Messages) Begin(kind, flags uint16, family uint8, resource uint16) {
	m.Starts = append(m.Starts, len(m.Bytes))
	m.Bytes = append(m.Bytes, 0, 0, 0, 0) // the length, see End
	m.Bytes = binary.NativeEndian.AppendUint16(m.Bytes, kind)
	m.Bytes = binary.NativeEndian.AppendUint16(m.Bytes, unix.NLM_F_REQUEST|flags)
	m.Bytes = append(m.Bytes, 0, 0, 0, 0, 0, 0, 0, 0) // the sequence number, see number, and the sender
	m.Bytes = append(m.Bytes, family, unix.NFNETLINK_V0)
	m.Bytes = binary.BigEndian.AppendUint16(m.Bytes, resource)
}

// End ends the last message.
func (m *Messages) End() {
	start := m.Starts[len(m.Starts)-1]
	binary.NativeEndian.PutUint32(m.Bytes[start:], uint32(len(m.Bytes)-start))
}

// Acknowledge requests an answer to the last message even if it succeeds.
func (m *Messages) Acknowledge() {
	at := m.Starts[len(m.Starts)-1] + 6
	binary.NativeEndian.PutUint16(m.Bytes[at:], binary.NativeEndian.Uint16(m.Bytes[at:])|unix.NLM_F_ACK)
}

// Message returns the i-th message.
func (m *Messages) Message(i int) []byte {
	end := len(m.Bytes)
	if i+1 < len(m.Starts) {
		end = m.Starts[i+1]
	}
	return m.Bytes[m.Starts[i]:end]
}

// Append adds a copy of a message.
func (m *Messages) Append(message []byte) {
	m.Starts = append(m.Starts, len(m.Bytes))
	m.Bytes = append(m.Bytes, message...)
}

// lists reports whether the first message asks for a list.
func (m *Messages) lists() bool {
	return binary.NativeEndian.Uint16(m.Bytes[m.Starts[0]+6:])&unix.NLM_F_DUMP == unix.NLM_F_DUMP
}

// number numbers the messages. Answers have these numbers.
func (m *Messages) number(first uint32) {
	for i, start := range m.Starts {
		binary.NativeEndian.PutUint32(m.Bytes[start+8:], first+uint32(i))
	}
}

// Nest begins an attribute of attributes. EndNest ends it.
func (m *Messages) Nest(kind uint16) (start int) {
	start = len(m.Bytes)
	m.header(kind|unix.NLA_F_NESTED, 0)
	return start
}

// EndNest ends an attribute of attributes.
func (m *Messages) EndNest(start int) {
	binary.NativeEndian.PutUint16(m.Bytes[start:], uint16(len(m.Bytes)-start))
}

// header begins an attribute.
func (m *Messages) header(kind uint16, content int) {
	m.Bytes = binary.NativeEndian.AppendUint16(m.Bytes, uint16(unix.SizeofNlAttr+content))
	m.Bytes = binary.NativeEndian.AppendUint16(m.Bytes, kind)
}

func (m *Messages) pad() {
	for len(m.Bytes)%unix.NLA_ALIGNTO != 0 {
		m.Bytes = append(m.Bytes, 0)
	}
}

// Number32 writes a number.
func (m *Messages) Number32(kind uint16, value uint32) {
	m.header(kind, 4)
	m.Bytes = binary.BigEndian.AppendUint32(m.Bytes, value)
}

// Number64 writes a number.
func (m *Messages) Number64(kind uint16, value uint64) {
	m.header(kind, 8)
	m.Bytes = binary.BigEndian.AppendUint64(m.Bytes, value)
}

// Name writes a name.
func (m *Messages) Name(kind uint16, value string) {
	m.header(kind, len(value)+1)
	m.Bytes = append(append(m.Bytes, value...), 0)
	m.pad()
}

// Raw writes any other content.
func (m *Messages) Raw(kind uint16, value string) {
	m.header(kind, len(value))
	m.Bytes = append(m.Bytes, value...)
	m.pad()
}
