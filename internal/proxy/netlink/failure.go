package netlink

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Reply is an answer of the kernel. Its content is valid until the next one.
type Reply struct {
	Message
	// About is the index of the answered message.
	About int
}

// Failure is a failure that the kernel reports.
type Failure struct {
	// Message is the index of the failed message, 0 for the whole batch.
	Message int
	Errno   unix.Errno
	// Offset is the position of the reason in the message, 0 if unknown.
	Offset int
	// Text is the kernel's own text, usually empty.
	Text string
}

func (f *Failure) Error() string {
	if f.Text != "" {
		return f.Errno.Error() + ": " + f.Text
	}
	return f.Errno.Error()
}

// Unwrap makes errors.Is find the kernel's reason.
func (f *Failure) Unwrap() error { return f.Errno }

// Passing reports whether a retry may succeed.
func (f *Failure) Passing() bool { return f.Errno == unix.EINTR || f.Errno == unix.EAGAIN }

// Failure returns the failure that a reply reports, nil for none.
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
