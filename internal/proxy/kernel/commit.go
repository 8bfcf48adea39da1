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

// partly reports that the kernel carried out only the beginning of a transaction.
type partly struct {
	error
}

func (p partly) Unwrap() error { return p.error }

// commit sends a batch, including its first and its last message. If the kernel does not permit so long a batch, commit
// sends it in parts. canSplit reports whether a part may begin with a message. The error is a *netlink.Failure if the kernel
// refuses the batch.
func (c *Conn) commit(ctx context.Context, m *netlink.Messages, canSplit func(message int) bool) error {
	if err := c.asker.Socket.Widen(len(m.Bytes)); err != nil {
		return err
	}
	limit := c.asker.Socket.Limit()
	if len(m.Bytes) <= limit {
		return c.commitBatch(ctx, m)
	}
	var part netlink.Messages
	for from := 1; from < len(m.Starts)-1; {
		end := endOfPart(m, from, limit, canSplit)
		if end == from {
			return fmt.Errorf("a change takes more than the %d bytes that the kernel permits; raise net.core.wmem_max", limit)
		}
		part.Reset()
		beginBatch(&part)
		for i := from; i < end; i++ {
			part.Append(m.Message(i))
		}
		endBatch(&part)
		if err := c.commitBatch(ctx, &part); err != nil {
			var f *netlink.Failure
			if errors.As(err, &f) && f.Message > 0 {
				f.Message += from - 1
			}
			if from > 1 {
				return partly{err}
			}
			return err
		}
		from = end
	}
	return nil
}

// commitBatch sends a batch, which the kernel carries out atomically.
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

// endOfPart returns the end of a part that begins with a message, as late as the limit allows.
func endOfPart(m *netlink.Messages, from, limit int, canSplit func(message int) bool) int {
	last := len(m.Starts) - 1 // the end of the batch, as long as its beginning
	used := 2 * len(m.Message(0))
	end := from
	for i := from; i < last; i++ {
		if used += len(m.Message(i)); used > limit {
			break
		}
		if i+1 == last || canSplit(i+1) {
			end = i + 1
		}
	}
	return end
}
