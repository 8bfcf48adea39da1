package kernel

import (
	"testing"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/netlink"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// message is what a message holds that a function writes.
func message(write func(*netlink.Messages)) []byte {
	var m netlink.Messages
	write(&m)
	return m.Bytes
}

// FuzzReplies reads what no kernel sends.
func FuzzReplies(f *testing.F) {
	f.Add(message(func(m *netlink.Messages) {
		key := m.Nest(unix.NFTA_SET_ELEM_KEY)
		m.Raw(unix.NFTA_DATA_VALUE, "key.")
		m.EndNest(key)
		data := m.Nest(unix.NFTA_SET_ELEM_DATA)
		writeVerdict(m, ruleset.Verdict{Kind: ruleset.VerdictGoto, Chain: "pick-3"})
		m.EndNest(data)
	}))
	f.Add(message(func(m *netlink.Messages) {
		original := m.Nest(netlink.TrackOriginal)
		address := m.Nest(netlink.TupleAddress)
		m.Raw(netlink.AddressIPv4Source, "\x0a\x00\x00\x01")
		m.Raw(netlink.AddressIPv4Destination, "\x0a\x60\x00\x01")
		m.EndNest(address)
		protocol := m.Nest(netlink.TupleProtocol)
		m.Raw(netlink.ProtocolNumber, "\x11")
		m.Raw(netlink.ProtocolDestinationPort, "\x00\x35")
		m.EndNest(protocol)
		m.EndNest(original)
		m.Raw(netlink.TrackID, "1234")
	}))
	f.Add([]byte("\xff\xff\xff\xffxxxx" + comment(setComment, "words")))
	f.Fuzz(func(t *testing.T, content []byte) {
		r := reader{strings: make(map[string]string)}
		e := r.element(content)
		if len(e.Key)+len(e.Data)+len(e.Verdict.Chain) > len(content) {
			t.Errorf("element %q is longer than %q", e, content)
		}
		// What deletes a connection names the same one.
		deleted := netlink.ReadTuple(netlink.Attribute([]byte(deletion(content)), netlink.TrackOriginal))
		if first := netlink.Attribute(content, netlink.TrackOriginal); first != nil && deleted != netlink.ReadTuple(first) {
			t.Errorf("the deletion is of %+v, the connection %+v", deleted, netlink.ReadTuple(first))
		}
		if words := commented(setComment, content); len(words) > len(content) {
			t.Errorf("comment %q in %q", words, content)
		}
	})
}
