package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// errChanged is that something was changed while it was being listed.
var errChanged error = changed{}

// changed is an error that tells others of it.
type changed struct{}

// Error says it to people.
func (changed) Error() string { return "what the kernel lists changes all the time" }

// KeepsChanging says it to programs.
func (changed) KeepsChanging() bool { return true }

// asker asks the kernel, one thing after another.
type asker struct {
	socket   *socket
	messages messages
}

// ask sends a question, which a function writes, and calls another with what each answer
// holds after the header of netfilter.
func (a *asker) ask(question func(*messages), each func(content []byte)) error {
	m := &a.messages
	m.reset()
	question(m)
	m.end()
	return a.socket.ask(m, each)
}

func (s *socket) ask(m *messages, each func(content []byte)) error {
	a := answer{each: each, listing: m.lists()}
	if err := s.exchange(m, a.take); err != nil && a.failure == nil {
		return err
	}
	return a.result()
}

// answer is what the kernel says to a question.
type answer struct {
	each func(content []byte)
	// listing says that things are listed, to which there is an end, and ended that it was
	// there. Changed says that what is listed has changed meanwhile.
	listing, ended, changed bool
	failure                 *failure
}

// take takes the next part of an answer.
func (a *answer) take(r reply) {
	a.changed = a.changed || r.flags&unix.NLM_F_DUMP_INTR != 0
	switch f := r.failure(); {
	case f != nil:
		a.failure = f
	case r.kind == unix.NLMSG_DONE:
		a.ended = true
	case r.kind >= unix.NLMSG_MIN_TYPE && len(r.content) >= netfilterHeader:
		a.each(r.content[netfilterHeader:])
	}
}

// errCut is that there is no end of a listing, so that it may not have been all.
var errCut = errors.New("the kernel did not list everything")

// result is what is wrong with all that was taken.
func (a *answer) result() error {
	switch {
	case a.failure != nil:
		return a.failure
	case a.listing && !a.ended:
		return errCut
	case a.changed:
		return errChanged
	}
	return nil
}

// again calls a function until what it lists does not change meanwhile, so many times at
// most.
func again(times int, list func() error) error {
	var err error
	for range times {
		if err = list(); !errors.Is(err, errChanged) {
			return err
		}
	}
	return fmt.Errorf("%w: tried %d times", err, times)
}
