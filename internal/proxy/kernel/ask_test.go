package kernel

import (
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// A listing counts only if it is whole.
func TestListingsAreWhole(t *testing.T) {
	item := reply{kind: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWCHAIN, content: make([]byte, netfilterHeader)}
	interrupted := item
	interrupted.flags = unix.NLM_F_DUMP_INTR
	end := reply{kind: unix.NLMSG_DONE, content: make([]byte, 4)}
	refused := -int32(unix.ENOENT)
	failed := reply{kind: unix.NLMSG_DONE, content: binary.NativeEndian.AppendUint32(nil, uint32(refused))}
	for _, test := range []struct {
		name    string
		flags   uint16
		replies []reply
		items   int
		want    error
	}{
		{"whole", unix.NLM_F_DUMP, []reply{item, item, end}, 2, nil},
		{"empty", unix.NLM_F_DUMP, []reply{end}, 0, nil},
		{"without an end", unix.NLM_F_DUMP, []reply{item, item}, 2, errCut},
		{"without anything", unix.NLM_F_DUMP, nil, 0, errCut},
		{"changed meanwhile", unix.NLM_F_DUMP, []reply{item, interrupted, end}, 2, errChanged},
		{"of what is not there", unix.NLM_F_DUMP, []reply{failed}, 0, unix.ENOENT},
		{"of one thing", 0, []reply{item}, 1, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var m messages
			m.begin(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETCHAIN, test.flags, unix.NFPROTO_IPV4, 0)
			m.end()
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
