package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/netlink"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// noticeBuffer is how many bytes of notices the kernel keeps from one look at them to the
// next: what kube-proxy writes for some thousands of changes.
const noticeBuffer = 1 << 20

// listen has the kernel tell at a socket what others change, of any table: all but the
// owner of a port. That makes what is changed cost a little more, for everybody.
func listen(s *netlink.Socket, own uint32) error {
	if err := s.SetReceiveBuffer(noticeBuffer); err != nil {
		return err
	}
	if err := s.Filter(othersOnly(own)); err != nil {
		return err
	}
	return s.Join(unix.NFNLGRP_NFTABLES)
}

// othersOnly lets notices pass but for those of what the owner of a port has changed. What
// the kernel puts into one notice is of one transaction, so that it is enough to look at
// the header of its first message.
func othersOnly(own uint32) []unix.SockFilter {
	const portOfHeader = 12
	// A filter reads numbers in network order, in which the header is not.
	var raw [4]byte
	binary.NativeEndian.PutUint32(raw[:], own)
	return []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: portOfHeader},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: binary.BigEndian.Uint32(raw[:]), Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff},
	}
}

// notices takes those that are there, and reports whether any is about a table of ours. The
// error is netlink.ErrLost if there were more than there was room for.
func notices(s *netlink.Socket) (ours bool, err error) {
	err = s.Receive(func(m netlink.Message) {
		ours = ours || m.Kind>>8 == unix.NFNL_SUBSYS_NFTABLES && aboutOurs(m.Kind&0xff, m.Content)
	})
	return ours, err
}

// aboutOurs looks what table a notice is about, which all but one kind of them name first.
func aboutOurs(kind uint16, content []byte) bool {
	if kind == unix.NFT_MSG_NEWGEN || len(content) < netlink.HeaderLength {
		return false
	}
	if family := content[0]; family != unix.NFPROTO_IPV4 && family != unix.NFPROTO_IPV6 {
		return false
	}
	return netlink.Text(netlink.Attribute(content[netlink.HeaderLength:], unix.NFTA_TABLE_NAME)) == ruleset.TableName
}

// bulk is of how many elements nobody is to be told. The kernel makes a notice of each as
// long as somebody listens, which takes it longer than the element itself.
const bulk = 1000

// unnoticed does something while nobody listens. That others have not changed anything
// meanwhile is known by the generation of the rules.
func (c *Conn) unnoticed(do func()) {
	commits := c.commits
	before, err := readGeneration(&c.asker)
	if err != nil || c.others.Leave(unix.NFNLGRP_NFTABLES) != nil {
		do()
		return
	}
	do()
	joined := c.others.Join(unix.NFNLGRP_NFTABLES)
	after, err := readGeneration(&c.asker)
	c.unheard = c.unheard || joined != nil || err != nil || after-before != c.commits-commits
}

// Interference tells what is known of changes that others have made since it was called
// before, or since the connection was opened. It costs the kernel nothing; what is
// different now, Shape and Read tell.
func (c *Conn) Interference() (ruleset.Interference, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	ours, err := notices(c.others)
	if c.unheard {
		failed := c.others.Join(unix.NFNLGRP_NFTABLES)
		c.unheard = failed != nil
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
