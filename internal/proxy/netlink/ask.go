package netlink

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrChanged is that something was changed while it was being listed.
var ErrChanged error = changed{}

// changed is an error that tells others of it.
type changed struct{}

// Error says it to people.
func (changed) Error() string { return "what the kernel lists changes all the time" }

// KeepsChanging says it to programs.
func (changed) KeepsChanging() bool { return true }

// errCut is that there is no end of a listing, so that it may not have been all.
var errCut = errors.New("the kernel did not list everything")

// Again calls a function until what it lists does not change meanwhile, so many times at
// most.
func Again(times int, list func() error) error {
	var err error
	for range times {
		if err = list(); !errors.Is(err, ErrChanged) {
			return err
		}
	}
	return fmt.Errorf("%w: tried %d times", err, times)
}

// Asker asks the kernel, one thing after another.
type Asker struct {
	Socket   *Socket
	Messages Messages
}

// Ask sends a question, which a function writes, and calls another with what each answer
// holds after the header of netfilter.
func (a *Asker) Ask(question func(*Messages), each func(content []byte)) error {
	m := &a.Messages
	m.Reset()
	question(m)
	m.End()
	return a.Socket.Ask(m, each)
}

// Ask sends a question, and calls a function with what each answer holds after the header of
// netfilter.
func (s *Socket) Ask(m *Messages, each func(content []byte)) error {
	a := answer{each: each, listing: m.lists()}
	if err := s.Exchange(m, a.take); err != nil && a.failure == nil {
		return err
	}
	return a.result()
}

// List asks for a list, and calls a function with each part that the kernel gives of it,
// which are several messages. It ends early if that returns false. Whether the list changed
// meanwhile it does not tell.
func (s *Socket) List(m *Messages, use func(part []byte) bool) error {
	if _, err := s.send(m); err != nil {
		return err
	}
	a := answer{each: func([]byte) {}, listing: true}
	stopped := false
	err := s.drain(func(part []byte) bool {
		stopped = !use(part)
		for rest := part; ; {
			m, after, ok := NextMessage(rest)
			if !ok {
				return !stopped
			}
			a.take(Reply{Message: m})
			rest = after
		}
	})
	a.changed = false
	switch {
	case stopped:
		return nil
	case err != nil && a.failure == nil:
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
	failure                 *Failure
}

// take takes the next part of an answer.
func (a *answer) take(r Reply) {
	a.changed = a.changed || r.Flags&unix.NLM_F_DUMP_INTR != 0
	switch f := r.Failure(); {
	case f != nil:
		a.failure = f
	case r.Kind == unix.NLMSG_DONE:
		a.ended = true
	case r.Kind >= unix.NLMSG_MIN_TYPE && len(r.Content) >= HeaderLength:
		a.each(r.Content[HeaderLength:])
	}
}

// result is what is wrong with all that was taken.
func (a *answer) result() error {
	switch {
	case a.failure != nil:
		return a.failure
	case a.listing && !a.ended:
		return errCut
	case a.changed:
		return ErrChanged
	}
	return nil
}
