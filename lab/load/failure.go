package load

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// Kind classifies failures.
type Kind string

// The kinds of failure.
const (
	Refused      Kind = "refused"
	Reset        Kind = "reset"
	TimedOut     Kind = "timed out"
	Closed       Kind = "closed" // before the answer was complete
	Unreachable  Kind = "unreachable"
	WrongAnswer  Kind = "wrong answer"
	WrongService Kind = "wrong service"
	Other        Kind = "other"
)

var kinds = [...]Kind{Refused, Reset, TimedOut, Closed, Unreachable, WrongAnswer, WrongService, Other}

// Failure is one failed request, with the addresses to find it in the kernel's connection
// tracking.
type Failure struct {
	Time time.Time
	Kind Kind
	From Place
	// To is the endpoint, if a wrong answer named it.
	To *Endpoint
	// Local is the local address, if the connection was opened.
	Local  string
	Target string
	After  time.Duration // since the request began
	Error  string
}

type answerError struct {
	kind Kind
	text string
}

func (e *answerError) Error() string { return e.text }

func kindOf(err error) Kind {
	var answer *answerError
	if errors.As(err, &answer) {
		return answer.kind
	}
	for _, sort := range []struct {
		kind Kind
		errs []error
	}{
		{Refused, []error{syscall.ECONNREFUSED}},
		// EPIPE means that the reset arrived before the request was written.
		{Reset, []error{syscall.ECONNRESET, syscall.EPIPE}},
		{TimedOut, []error{context.DeadlineExceeded, os.ErrDeadlineExceeded, syscall.ETIMEDOUT}},
		{Unreachable, []error{syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.ENETDOWN}},
		{Closed, []error{io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed, syscall.ECONNABORTED}},
	} {
		for _, target := range sort.errs {
			if errors.Is(err, target) {
				return sort.kind
			}
		}
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return TimedOut
	}
	return Other
}

// isLocal reports whether opening a connection failed because this machine ran out of ports,
// files or memory. Then the request was not sent.
func isLocal(err error) bool {
	for _, target := range []error{syscall.EADDRNOTAVAIL, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
