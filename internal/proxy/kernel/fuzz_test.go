package kernel

import (
	"testing"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// message is what a message holds that a function writes.
func message(write func(*messages)) []byte {
	var m messages
	write(&m)
	return m.bytes
}

// FuzzReplies reads what no kernel sends.
func FuzzReplies(f *testing.F) {
	f.Add(message(func(m *messages) {
		key := m.nest(unix.NFTA_SET_ELEM_KEY)
		m.raw(unix.NFTA_DATA_VALUE, "key.")
		m.nested(key)
		data := m.nest(unix.NFTA_SET_ELEM_DATA)
		writeVerdict(m, ruleset.Verdict{Kind: ruleset.VerdictGoto, Chain: "pick-3"})
		m.nested(data)
	}))
	f.Add(message(func(m *messages) {
		original := m.nest(trackOriginal)
		address := m.nest(tupleAddress)
		m.raw(addressIPv4Source, "\x0a\x00\x00\x01")
		m.raw(addressIPv4Destination, "\x0a\x60\x00\x01")
		m.nested(address)
		protocol := m.nest(tupleProtocol)
		m.raw(protocolNumber, "\x11")
		m.raw(protocolDestinationPort, "\x00\x35")
		m.nested(protocol)
		m.nested(original)
		m.raw(trackID, "1234")
	}))
	f.Add([]byte("\xff\xff\xff\xffxxxx" + comment(setComment, "words")))
	f.Fuzz(func(t *testing.T, content []byte) {
		r := reader{strings: make(map[string]string)}
		e := r.element(content)
		if len(e.Key)+len(e.Data)+len(e.Verdict.Chain) > len(content) {
			t.Errorf("element %q is longer than %q", e, content)
		}
		// What deletes a connection names the same one.
		protocol, from, to := tuple(attribute(content, trackOriginal))
		p, a, b := tuple(attribute([]byte(deletion(content)), trackOriginal))
		if first := attribute(content, trackOriginal); first != nil && (p != protocol || a != from || b != to) {
			t.Errorf("the deletion is of %v from %s to %s, the connection of %v from %s to %s", p, a, b, protocol, from, to)
		}
		if words := commented(setComment, content); len(words) > len(content) {
			t.Errorf("comment %q in %q", words, content)
		}
		for _, kind := range []uint16{unix.NLMSG_ERROR, unix.NLMSG_DONE} {
			failure := reply{kind: kind, flags: unix.NLM_F_ACK_TLVS, content: content}.failure()
			if failure != nil && (failure.errno == 0 || failure.Error() == "") {
				t.Errorf("failure %#v", failure)
			}
		}
	})
}
