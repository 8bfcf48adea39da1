package netlink

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrChanged reports that a list changed while it was read.
var ErrChanged error = changed{}

type changed struct{}

func (changed) Error() string { return "the kernel's list changed while it was read" }

// KeepsChanging marks the error for callers that do not import this package.
func (changed) KeepsChanging() bool { return true }

// errCut reports that the end of a list is missing.
var errCut = errors.New("the kernel did not list everything")

// Again repeats a listing until nothing changes meanwhile. times bounds the attempts.
func Again(times int, list func() error) error {
	var err error
	for range times {
		if err = list(); !errors.Is(err, ErrChanged) {
			return err
		}
	}
	return fmt.Errorf("%w: tried %d times", err, times)
}

// Asker sends one request after another.
type Asker struct {
	Socket   *Socket
	Messages Messages
}

// Ask sends a request, and calls a function with each answer, without netfilter's header.
func (a *Asker) Ask(question func(*Messages), each func(content []byte)) error {
	m := &a.Messages
	m.Reset()
	question(m)
	m.End()
	return a.Socket.Ask(m, each)
}

// Ask sends a request, and calls a function with each answer, without netfilter's header.
func (s *Socket) Ask(m *Messages, each func(content []byte)) error {
	a := answer{each: each, listing: m.lists()}
	if err := s.Exchange(m, a.take); err != nil && a.failure == nil {
		return err
	}
	return a.result()
}

type answer struct {
	each func(content []byte)
	// listing means that a list is expected, ended that its end has come, changed that it changed meanwhile.
	listing, ended, changed bool
	failure                 *Failure
}

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
