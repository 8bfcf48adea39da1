package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// receiveBuffer holds the longest of the kernel's messages: it cuts listings into pieces
// of half of it.
const receiveBuffer = 64 << 10

// socket is a connection to netfilter in the network namespace of the thread that made it.
//
// The kernel does all that a message asks for, and has its answers ready, by the time that
// the message is sent. So nothing here waits for an answer: that none is left is how the
// last one is known.
type socket struct {
	fd       int
	port     uint32 // by which the kernel knows it
	sequence uint32
	// limit is how long what is sent at once may be.
	limit int
	// setOption sets an option of the socket.
	setOption func(fd, level, option, value int) error
	buffer    []byte
}

// reply is an answer of the kernel.
type reply struct {
	kind, flags uint16
	// message is which of the messages is answered.
	message int
	// content is valid until the next reply.
	content []byte
}

// errLost is that the kernel had answers that there was no room for.
var errLost = errors.New("answers of the kernel were lost")

// dial makes a socket.
func dial() (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	s := &socket{fd: fd, setOption: unix.SetsockoptInt, buffer: make([]byte, receiveBuffer)}
	if err := s.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("preparing a netlink socket: %w", err), s.close())
	}
	return s, nil
}

func (s *socket) prepare() error {
	if err := unix.Bind(s.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	name, err := unix.Getsockname(s.fd)
	if err != nil {
		return err
	}
	if address, ok := name.(*unix.SockaddrNetlink); ok {
		s.port = address.Pid
	}
	// Answers say which part of a message was wrong, and do not repeat all of it.
	for _, option := range []int{unix.NETLINK_EXT_ACK, unix.NETLINK_CAP_ACK} {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, option, 1); err != nil {
			return err
		}
	}
	return s.measure()
}

// measure finds out how much may be sent at once.
func (s *socket) measure() error {
	size, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	if err != nil {
		return err
	}
	// The kernel keeps some bytes of the buffer to itself.
	s.limit = size - 64
	return nil
}

// widen lets so many bytes be sent at once, if the kernel permits it.
func (s *socket) widen(length int) error {
	if length <= s.limit {
		return nil
	}
	// The kernel sets twice of what it is told.
	err := s.setOption(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, length)
	if errors.Is(err, unix.EPERM) {
		err = s.setOption(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, length)
	}
	if err != nil {
		return fmt.Errorf("setting the size of a netlink socket's buffer to %d bytes: %w", length, err)
	}
	return s.measure()
}

func (s *socket) close() error {
	if s == nil {
		return nil // it was never opened
	}
	return unix.Close(s.fd)
}

// send sends messages, again if the kernel lacks memory for them at the moment.
func (s *socket) send(b []byte) error {
	for try := 1; ; try++ {
		err := unix.Sendto(s.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		again := errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOBUFS)
		if !again || try == tries {
			return os.NewSyscallError("sendto", err)
		}
	}
}

// exchange sends messages and calls a function with each of the answers.
func (s *socket) exchange(m *messages, each func(reply)) error {
	first := s.sequence + 1
	s.sequence += uint32(len(m.starts))
	m.number(first)
	if err := s.send(m.bytes); err != nil {
		return err
	}
	return s.drain(func(header unix.NlMsghdr, content []byte) {
		// What an earlier message left behind is no answer to these.
		if at := header.Seq - first; at < uint32(len(m.starts)) {
			each(reply{kind: header.Type, flags: header.Flags, message: int(at), content: content})
		}
	})
}

// drain calls a function with each message that is there.
func (s *socket) drain(each func(unix.NlMsghdr, []byte)) error {
	var lost error
	for {
		n, _, err := unix.Recvfrom(s.fd, s.buffer, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOBUFS):
			lost = errLost
			continue
		case errors.Is(err, unix.EAGAIN):
			return lost
		case err != nil:
			return os.NewSyscallError("recvfrom", err)
		case n > len(s.buffer):
			lost = fmt.Errorf("a netlink message has %d bytes, at most %d were expected", n, len(s.buffer))
			continue
		}
		for b := s.buffer[:n]; len(b) >= unix.SizeofNlMsghdr; {
			header := unix.NlMsghdr{
				Len:   binary.NativeEndian.Uint32(b),
				Type:  binary.NativeEndian.Uint16(b[4:]),
				Flags: binary.NativeEndian.Uint16(b[6:]),
				Seq:   binary.NativeEndian.Uint32(b[8:]),
			}
			length := int(header.Len)
			if length < unix.SizeofNlMsghdr || length > len(b) {
				lost = fmt.Errorf("a netlink message claims %d bytes of %d", length, len(b))
				break
			}
			each(header, b[unix.SizeofNlMsghdr:length])
			b = b[min(align(length), len(b)):]
		}
	}
}

// failure is what the kernel says that it could not do.
type failure struct {
	// message is the one that it is about, and 0 if it is about all of a batch.
	message int
	errno   unix.Errno
	// offset is where in the message the reason is, zero if the kernel does not say.
	offset int
	// text is what the kernel says about it, which is nothing as a rule.
	text string
}

func (f *failure) Error() string {
	if f.text != "" {
		return f.errno.Error() + ": " + f.text
	}
	return f.errno.Error()
}

func (f *failure) Unwrap() error { return f.errno }

// passing tells whether the same may well be done the next time.
func (f *failure) passing() bool { return f.errno == unix.EINTR || f.errno == unix.EAGAIN }

// failure is what a reply says has failed, nil if nothing has.
func (r reply) failure() *failure {
	if (r.kind != unix.NLMSG_ERROR && r.kind != unix.NLMSG_DONE) || len(r.content) < 4 {
		return nil
	}
	code := int32(binary.NativeEndian.Uint32(r.content))
	if code >= 0 {
		return nil
	}
	f := &failure{message: r.message, errno: unix.Errno(-code)}
	rest := r.content[4:]
	if r.kind == unix.NLMSG_ERROR {
		rest = rest[min(unix.SizeofNlMsghdr, len(rest)):]
	}
	if r.flags&unix.NLM_F_ACK_TLVS == 0 {
		return f
	}
	for kind, content := range attributes(rest) {
		switch kind {
		case unix.NLMSGERR_ATTR_MSG:
			f.text = text(content)
		case unix.NLMSGERR_ATTR_OFFS:
			if len(content) == 4 {
				f.offset = int(binary.NativeEndian.Uint32(content))
			}
		}
	}
	return f
}
