package kernel

import "golang.org/x/sys/unix"

// ForbidLong has the kernel take no more at once than it takes from everybody where it is
// sparing.
func (c *Conn) ForbidLong() {
	const most = 100 << 10
	c.socket.setOption = func(fd, level, option, value int) error {
		if option == unix.SO_SNDBUFFORCE {
			return unix.EPERM
		}
		return unix.SetsockoptInt(fd, level, option, min(value, most))
	}
}

// Older is the comparison of versions.
var Older = older
