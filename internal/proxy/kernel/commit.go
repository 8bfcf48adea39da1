package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/netlink"
)

// tries bounds the attempts of an interrupted transaction.
const tries = 5

var errNoAnswer = errors.New("the kernel did not answer")

// commit sends a batch, including its first and its last message. The kernel carries it out atomically. The error is a
// *netlink.Failure if the kernel refuses the batch.
func (c *Conn) commit(ctx context.Context, m *netlink.Messages) error {
	if err := c.asker.Socket.Widen(len(m.Bytes)); err != nil {
		return err
	}
	if limit := c.asker.Socket.Limit(); len(m.Bytes) > limit {
		return &netlink.Failure{Errno: unix.EMSGSIZE, Text: fmt.Sprintf("it has %d bytes, and the kernel permits %d; raise net.core.wmem_max", len(m.Bytes), limit)}
	}
	for try := 1; ; try++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := c.try(m)
		var f *netlink.Failure
		if !errors.As(err, &f) || !f.Passing() || try == tries {
			return err
		}
	}
}

func (c *Conn) try(m *netlink.Messages) error {
	failures, err := c.attempt(m)
	if err != nil || len(failures) == 0 {
		return err
	}
	// The first failure of a message is the reason. A failure of the whole batch counts only without one.
	about := slices.IndexFunc(failures, func(f *netlink.Failure) bool { return f.Message > 0 })
	return failures[max(about, 0)]
}

// attempt returns all failures of a batch.
func (c *Conn) attempt(m *netlink.Messages) ([]*netlink.Failure, error) {
	last := len(m.Starts) - 2
	var failures []*netlink.Failure
	done := false
	err := c.asker.Socket.Exchange(m, func(r netlink.Reply) {
		if f := r.Failure(); f != nil {
			failures = append(failures, f)
		} else {
			done = done || r.About == last
		}
	})
	switch {
	case len(failures) > 0:
		return failures, nil
	case err == nil && !done:
		err = errNoAnswer
	case err == nil:
		c.commits++
	}
	return nil, err
}

func beginBatch(m *netlink.Messages) {
	m.Begin(unix.NFNL_MSG_BATCH_BEGIN, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	m.End()
}

func endBatch(m *netlink.Messages) {
	m.Acknowledge()
	m.Begin(unix.NFNL_MSG_BATCH_END, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	m.End()
}
