package accounting

import (
	"cmp"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/netlink"
)

const (
	// Attributes NFTA_FLOWTABLE_ of linux/netfilter/nf_tables.h, and flags NFT_FLOWTABLE_HW_OFFLOAD and _COUNTER.
	flowtableTable, flowtableName, flowtableFlags = 1, 2, 7
	flowtableHardware, flowtableCounter           = 1, 2
	// flowtableTries bounds the attempts to list flowtables while tables change.
	flowtableTries = 8
)

func (conntrack) uncounted() (found string, err error) {
	err = listFlowtables(func(content []byte) { found = cmp.Or(found, uncountedFlowtable(content)) })
	if err != nil && !knowsNone(err) {
		return "", fmt.Errorf("listing flowtables, whose bytes may be missing: %w", err)
	}
	return found, nil
}

// knowsNone reports whether a kernel refuses the list since it knows no flowtables.
func knowsNone(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT)
}

// listFlowtables calls a function with the flowtables of all tables.
func listFlowtables(each func(content []byte)) error {
	socket, err := netlink.Dial()
	if err != nil {
		return err
	}
	asker := netlink.Asker{Socket: socket}
	err = netlink.Again(flowtableTries, func() error {
		return asker.Ask(func(m *netlink.Messages) {
			m.Begin(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETFLOWTABLE, unix.NLM_F_DUMP, unix.NFPROTO_UNSPEC, 0)
		}, each)
	})
	return errors.Join(err, socket.Close())
}

// uncountedFlowtable names a flowtable whose packets may be missing in the bytes of tracked connections. With the flag
// counter, the kernel counts the packets that it forwards itself, and those of a network card if its driver reports them.
func uncountedFlowtable(content []byte) string {
	why := "does not count"
	flags := netlink.Count(netlink.Attribute(content, flowtableFlags))
	switch {
	case flags&flowtableCounter == 0:
	case flags&flowtableHardware != 0:
		why = "is offloaded to hardware"
	default:
		return ""
	}
	name, table := netlink.Attribute(content, flowtableName), netlink.Attribute(content, flowtableTable)
	return fmt.Sprintf("flowtable %s of table %s %s", netlink.Text(name), netlink.Text(table), why)
}
