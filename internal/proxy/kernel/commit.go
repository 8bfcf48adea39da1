package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
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
// last ends it: at once if it takes them at once, else in parts. The error is a *failure
// if it has not done them.
func (c *Conn) commit(ctx context.Context, m *messages) error {
	if err := c.socket.widen(len(m.bytes)); err != nil {
		return err
	}
	if len(m.bytes) <= c.socket.limit {
		return c.commitBatch(ctx, m)
	}
	var part messages
	for at := 1; at < len(m.starts)-1; {
		end := m.fill(&part, at, c.socket.limit)
		if end == at {
			return fmt.Errorf("a message of %d bytes is longer than the %d bytes that the kernel permits", m.length(at), c.socket.limit)
		}
		if err := c.commitBatch(ctx, &part); err != nil {
			var f *failure
			if errors.As(err, &f) && f.message > 0 {
				f.message += at - 1
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
func (c *Conn) commitBatch(ctx context.Context, m *messages) error {
	for try := 1; ; try++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := c.try(m)
		var f *failure
		if !errors.As(err, &f) || !f.passing() || try == tries {
			return err
		}
	}
}

// try has the kernel do all messages or none, unless it is kept from it.
func (c *Conn) try(m *messages) error {
	failures, err := c.attempt(m)
	if err != nil || len(failures) == 0 {
		return err
	}
	// The first is the reason, others may follow from it. What is said about all of them
	// counts only if nothing is said about one.
	about := slices.IndexFunc(failures, func(f *failure) bool { return f.message > 0 })
	return failures[max(about, 0)]
}

// attempt has the kernel do all messages, or none and say what is against them.
func (c *Conn) attempt(m *messages) ([]*failure, error) {
	last := len(m.starts) - 2
	var failures []*failure
	done := false
	err := c.socket.exchange(m, func(r reply) {
		if f := r.failure(); f != nil {
			failures = append(failures, f)
		} else {
			done = done || r.message == last
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
func (m *messages) beginBatch() {
	m.begin(unix.NFNL_MSG_BATCH_BEGIN, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	m.end()
}

// endBatch ends them.
func (m *messages) endBatch() {
	m.acknowledge()
	m.begin(unix.NFNL_MSG_BATCH_END, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	m.end()
}

// length is that of a message.
func (m *messages) length(i int) int {
	end := len(m.bytes)
	if i+1 < len(m.starts) {
		end = m.starts[i+1]
	}
	return end - m.starts[i]
}

// fill makes a batch of the messages from one on, as many as there is room for, and
// returns the first that is not among them.
func (m *messages) fill(part *messages, from, room int) (end int) {
	part.reset()
	part.beginBatch()
	overhead := 2 * len(part.bytes) // the end is as long as the beginning
	used := overhead
	for end = from; end < len(m.starts)-1 && used+m.length(end) <= room; end++ {
		used += m.length(end)
		part.starts = append(part.starts, len(part.bytes))
		part.bytes = append(part.bytes, m.bytes[m.starts[end]:m.starts[end]+m.length(end)]...)
	}
	part.endBatch()
	return end
}
