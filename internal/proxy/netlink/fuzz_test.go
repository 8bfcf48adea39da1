package netlink

import (
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzReplies reads what no kernel sends.
func FuzzReplies(f *testing.F) {
	var m Messages
	m.Begin(TrackNew, 0, unix.NFPROTO_IPV4, 0)
	original := m.Nest(TrackOriginal)
	address := m.Nest(TupleAddress)
	m.Raw(AddressIPv4Source, "\x0a\x00\x00\x01")
	m.EndNest(address)
	m.EndNest(original)
	m.End()
	f.Add(m.Bytes)
	f.Add(append(m.Bytes, m.Bytes...))
	f.Fuzz(func(t *testing.T, read []byte) {
		for _, kind := range []uint16{unix.NLMSG_ERROR, unix.NLMSG_DONE} {
			failure := Reply{Message: Message{Kind: kind, Flags: unix.NLM_F_ACK_TLVS, Content: read}}.Failure()
			if failure != nil && (failure.Errno == 0 || failure.Error() == "") {
				t.Errorf("failure %#v", failure)
			}
		}
		// Reads end where their messages do.
		length := 0
		for rest := read; ; {
			m, next, ok := NextMessage(rest)
			if !ok {
				break
			}
			if length += unix.SizeofNlMsghdr + len(m.Content); len(next) >= len(rest) {
				t.Fatalf("%d bytes are left of %d", len(next), len(rest))
			}
			if tuple := ReadTuple(m.Content); tuple.Source.IsValid() && len(m.Content) < 4 {
				t.Errorf("%x is %+v", m.Content, tuple)
			}
			rest = next
		}
		if length > len(read) {
			t.Errorf("%d bytes of messages in %d", length, len(read))
		}
	})
}
