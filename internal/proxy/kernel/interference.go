package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/netlink"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// noticeBuffer has room for thousands of changes by kube-proxy between two looks.
const noticeBuffer = 1 << 20

// listen subscribes to notices of changes of any table by other sockets than own. With a subscriber, all changes cost the
// kernel a little more.
func listen(s *netlink.Socket, own uint32) error {
	if err := s.SetReceiveBuffer(noticeBuffer); err != nil {
		return err
	}
	if err := s.Filter(othersOnly(own)); err != nil {
		return err
	}
	return s.Join(unix.NFNLGRP_NFTABLES)
}

// othersOnly drops notices of own's transactions. All messages of a notice belong to one transaction, so the header of the
// first is enough.
func othersOnly(own uint32) []unix.SockFilter {
	const portOfHeader = 12
	// A filter reads numbers in network order. The header is in native order.
	var raw [4]byte
	binary.NativeEndian.PutUint32(raw[:], own)
	return []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: portOfHeader},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: binary.BigEndian.Uint32(raw[:]), Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff},
	}
}

// notices reports whether a notice is about the proxy's tables. The error is netlink.ErrLost if notices were lost.
func notices(s *netlink.Socket) (ours bool, err error) {
	err = s.Receive(func(m netlink.Message) {
		ours = ours || m.Kind>>8 == unix.NFNL_SUBSYS_NFTABLES && concernsOwnTables(m.Kind&0xff, m.Content)
	})
	return ours, err
}

// concernsOwnTables reports whether a notice is about the proxy's tables. All kinds of notices but one begin with the
// table.
func concernsOwnTables(kind uint16, content []byte) bool {
	if kind == unix.NFT_MSG_NEWGEN || len(content) < netlink.HeaderLength {
		return false
	}
	if family := content[0]; family != unix.NFPROTO_IPV4 && family != unix.NFPROTO_IPV6 {
		return false
	}
	return netlink.Text(netlink.Attribute(content[netlink.HeaderLength:], unix.NFTA_TABLE_NAME)) == ruleset.TableName
}

// Transactions larger than bulkThreshold elements run with notices off. With a subscriber, the kernel makes a notice of
// each element, which takes longer than the element itself.
const bulkThreshold = 1000

// withoutNotices runs a function with notices off. The generation of the rules shows whether others changed rules
// meanwhile.
func (c *Conn) withoutNotices(do func()) {
	commits := c.commits
	before, err := readGeneration(&c.asker)
	if err != nil || c.others.Leave(unix.NFNLGRP_NFTABLES) != nil {
		do()
		return
	}
	do()
	joined := c.others.Join(unix.NFNLGRP_NFTABLES)
	after, err := readGeneration(&c.asker)
	c.missedNotifications = c.missedNotifications || joined != nil || err != nil || after-before != c.commits-commits
}

// Interference reports whether others have changed the tables since the last call. It costs the kernel nothing. Shape and
// Read show the differences.
func (c *Conn) Interference() (ruleset.Interference, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	ours, err := notices(c.others)
	if c.missedNotifications {
		failed := c.others.Join(unix.NFNLGRP_NFTABLES)
		c.missedNotifications = failed != nil
		err = errors.Join(netlink.ErrLost, err, failed)
	}
	switch {
	case ours:
		return ruleset.Interfered, nil
	case errors.Is(err, netlink.ErrLost):
		return ruleset.PossibleInterference, nil
	case err != nil:
		return ruleset.NoInterference, fmt.Errorf("reading notices of changes: %w", err)
	}
	return ruleset.NoInterference, nil
}
