package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// errChanged is that something was changed while it was being listed.
var errChanged = errors.New("what the kernel lists changes all the time")

// ask sends a question, which a function writes, and calls another with what each answer
// holds after the header of netfilter.
func (c *Conn) ask(question func(*messages), each func(content []byte)) error {
	m := &c.messages
	m.reset()
	question(m)
	m.end()
	return c.socket.ask(m, each)
}

func (s *socket) ask(m *messages, each func(content []byte)) error {
	var failed error
	changed := false
	err := s.exchange(m, func(r reply) {
		changed = changed || r.flags&unix.NLM_F_DUMP_INTR != 0
		switch f := r.failure(); {
		case f != nil:
			failed = f
		case r.kind >= unix.NLMSG_MIN_TYPE && len(r.content) >= netfilterHeader:
			each(r.content[netfilterHeader:])
		}
	})
	switch {
	case failed != nil:
		return failed
	case err != nil:
		return err
	case changed:
		return errChanged
	}
	return nil
}

// again calls a function until what it lists does not change meanwhile.
func again(list func() error) error {
	const tries = 20
	var err error
	for range tries {
		if err = list(); !errors.Is(err, errChanged) {
			return err
		}
	}
	return fmt.Errorf("%w: tried %d times", err, tries)
}
