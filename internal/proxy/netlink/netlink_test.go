package netlink

import (
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// Only a complete listing counts.
func TestListingsAreWhole(t *testing.T) {
	item := Reply{Message: Message{Kind: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWCHAIN, Content: make([]byte, HeaderLength)}}
	interrupted := item
	interrupted.Flags = unix.NLM_F_DUMP_INTR
	end := Reply{Message: Message{Kind: unix.NLMSG_DONE, Content: make([]byte, 4)}}
	refused := -int32(unix.ENOENT)
	failed := Reply{Message: Message{Kind: unix.NLMSG_DONE, Content: binary.NativeEndian.AppendUint32(nil, uint32(refused))}}
	for _, test := range []struct {
		name    string
		flags   uint16
		replies []Reply
		items   int
		want    error
	}{
		{"whole", unix.NLM_F_DUMP, []Reply{item, item, end}, 2, nil},
		{"empty", unix.NLM_F_DUMP, []Reply{end}, 0, nil},
		{"without an end", unix.NLM_F_DUMP, []Reply{item, item}, 2, errCut},
		{"without anything", unix.NLM_F_DUMP, nil, 0, errCut},
		{"changed meanwhile", unix.NLM_F_DUMP, []Reply{item, interrupted, end}, 2, ErrChanged},
		{"of an absent object", unix.NLM_F_DUMP, []Reply{failed}, 0, unix.ENOENT},
		{"with an end that says no more", unix.NLM_F_DUMP, []Reply{item, {Message: Message{Kind: unix.NLMSG_DONE}}}, 1, nil},
		{"refused", unix.NLM_F_DUMP, []Reply{{Message: Message{Kind: unix.NLMSG_ERROR, Content: failed.Content}}}, 0, unix.ENOENT},
		{"of one thing", 0, []Reply{item}, 1, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var m Messages
			m.Begin(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETCHAIN, test.flags, unix.NFPROTO_IPV4, 0)
			m.End()
			items := 0
			a := answer{each: func([]byte) { items++ }, listing: m.lists()}
			for _, r := range test.replies {
				a.take(r)
			}
			if err := a.result(); !errors.Is(err, test.want) || items != test.items {
				t.Errorf("%d items, %v; want %d, %v", items, err, test.items, test.want)
			}
		})
	}
}

// The readers accept any bytes, including bytes that no kernel sends.
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
				t.Fatalf("%d of %d bytes remain", len(next), len(rest))
			}
			if tuple := ReadTuple(m.Content); tuple.Source.IsValid() && len(m.Content) < 4 {
				t.Errorf("%x is %+v", m.Content, tuple)
			}
			rest = next
		}
		if length > len(read) {
			t.Errorf("the messages have %d bytes of %d", length, len(read))
		}
	})
}
