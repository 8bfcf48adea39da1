package kernel

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Older is the comparison of versions.
var Older = isOlder

// ForbidLong limits transactions as the kernel does for a process without CAP_NET_ADMIN in the first user namespace.
func (c *Conn) ForbidLong() {
	const most = 100 << 10
	c.asker.Socket.SetOption = func(fd, level, option, value int) error {
		if option == unix.SO_SNDBUFFORCE {
			return unix.EPERM
		}
		return unix.SetsockoptInt(fd, level, option, min(value, most))
	}
}

// NarrowNotices shrinks the buffer for notices of foreign changes to the minimum.
func (c *Conn) NarrowNotices(t testing.TB) {
	t.Helper()
	if err := c.others.SetReceiveBuffer(1); err != nil {
		t.Fatal(err)
	}
}

// Pauses counts how often the notices of foreign changes are paused.
func (c *Conn) Pauses() *int {
	pauses := 0
	set := c.others.SetOption
	c.others.SetOption = func(fd, level, option, value int) error {
		if level == unix.SOL_NETLINK && option == unix.NETLINK_DROP_MEMBERSHIP {
			pauses++
		}
		return set(fd, level, option, value)
	}
	return &pauses
}

// Unnoticed does something as a transaction of very many elements is done.
func (c *Conn) Unnoticed(do func()) { c.withoutNotices(do) }
