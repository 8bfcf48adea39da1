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

// partly is that the kernel has done the beginning of a transaction, and no more.
type partly struct {
	error
}

func (p partly) Unwrap() error { return p.error }

// commit has the kernel do what messages say, of which the first begins a batch and the
// last ends it: at once if it takes them at once, else in parts. The error is a *netlink.Failure
// if it has not done them.
func (c *Conn) commit(ctx context.Context, m *netlink.Messages) error {
	if err := c.asker.Socket.Widen(len(m.Bytes)); err != nil {
		return err
	}
	if len(m.Bytes) <= c.asker.Socket.Limit() {
		return c.commitBatch(ctx, m)
	}
	var part netlink.Messages
	for at := 1; at < len(m.Starts)-1; {
		end := fill(&part, m, at, c.asker.Socket.Limit())
		if end == at {
			return fmt.Errorf("a message of %d bytes is longer than the %d bytes that the kernel permits", len(m.Message(at)), c.asker.Socket.Limit())
		}
		if err := c.commitBatch(ctx, &part); err != nil {
			var f *netlink.Failure
			if errors.As(err, &f) && f.Message > 0 {
				f.Message += at - 1
			}
			if at > 1 {
				return partly{err}
			}
			return err
		}
		at = end
	}
	return nil
}

// commitBatch has the kernel do all messages or none.
func (c *Conn) commitBatch(ctx context.Context, m *netlink.Messages) error {
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

// fill makes a batch of the messages from one on, as many as there is room for, and
// returns the first that is not among them.
func fill(part, m *netlink.Messages, from, room int) (end int) {
	part.Reset()
	beginBatch(part)
	overhead := 2 * len(part.Bytes) // the end is as long as the beginning
	used := overhead
	for end = from; end < len(m.Starts)-1 && used+len(m.Message(end)) <= room; end++ {
		used += len(m.Message(end))
		part.Append(m.Message(end))
	}
	endBatch(part)
	return end
}
