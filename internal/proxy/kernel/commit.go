package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/netlink"
)

// tries is how often a transaction is tried that the kernel was kept from.
const tries = 5

// errNoAnswer is that the kernel has not said what became of a transaction.
var errNoAnswer = errors.New("the kernel did not answer")

// commit has the kernel do all messages or none, of which the first begins a batch and the last
// ends it. The error is a *netlink.Failure if it has not done them.
func (c *Conn) commit(ctx context.Context, m *netlink.Messages) error {
	if err := c.asker.Socket.Widen(len(m.Bytes)); err != nil {
		return err
	}
	if limit := c.asker.Socket.Limit(); len(m.Bytes) > limit {
		return fmt.Errorf("the transaction has %d bytes, and the kernel permits %d; raise net.core.wmem_max", len(m.Bytes), limit)
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

// try has the kernel do all messages or none, unless it is kept from it.
func (c *Conn) try(m *netlink.Messages) error {
	failures, err := c.attempt(m)
	if err != nil || len(failures) == 0 {
		return err
	}
	// The first is the reason, others may follow from it. What is said about all of them
	// counts only if nothing is said about one.
	about := slices.IndexFunc(failures, func(f *netlink.Failure) bool { return f.Message > 0 })
	return failures[max(about, 0)]
}

// attempt has the kernel do all messages, or none and say what is against them.
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

// beginBatch begins messages that are done at once.
func beginBatch(m *netlink.Messages) {
	m.Begin(unix.NFNL_MSG_BATCH_BEGIN, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	m.End()
}

// endBatch ends them.
func endBatch(m *netlink.Messages) {
	m.Acknowledge()
	m.Begin(unix.NFNL_MSG_BATCH_END, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	m.End()
}
