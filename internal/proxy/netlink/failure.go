package netlink

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Reply is an answer of the kernel. Its content is valid until the next reply.
type Reply struct {
	Message
	// About is which of the messages is answered.
	About int
}

// Failure is what the kernel says that it could not do.
type Failure struct {
	// Message is the one that it is about, and 0 if it is about all of a batch.
	Message int
	Errno   unix.Errno
	// Offset is where in the message the reason is, zero if the kernel does not say.
	Offset int
	// Text is what the kernel says about it, which is nothing as a rule.
	Text string
}

func (f *Failure) Error() string {
	if f.Text != "" {
		return f.Errno.Error() + ": " + f.Text
	}
	return f.Errno.Error()
}

// Unwrap makes the kernel's reason one that errors.Is finds.
func (f *Failure) Unwrap() error { return f.Errno }

// Passing tells whether the same may well be done the next time.
func (f *Failure) Passing() bool { return f.Errno == unix.EINTR || f.Errno == unix.EAGAIN }

// Failure is what a reply says has failed, nil if nothing has.
func (r Reply) Failure() *Failure {
	if (r.Kind != unix.NLMSG_ERROR && r.Kind != unix.NLMSG_DONE) || len(r.Content) < 4 {
		return nil
	}
	code := int32(binary.NativeEndian.Uint32(r.Content))
	if code >= 0 {
		return nil
	}
	f := &Failure{Message: r.About, Errno: unix.Errno(-code)}
	rest := r.Content[4:]
	if r.Kind == unix.NLMSG_ERROR {
		rest = rest[min(unix.SizeofNlMsghdr, len(rest)):]
	}
	if r.Flags&unix.NLM_F_ACK_TLVS == 0 {
		return f
	}
	for kind, content := range Attributes(rest) {
		switch kind {
		case unix.NLMSGERR_ATTR_MSG:
			f.Text = Text(content)
		case unix.NLMSGERR_ATTR_OFFS:
			if len(content) == 4 {
				f.Offset = int(binary.NativeEndian.Uint32(content))
			}
		}
	}
	return f
}
