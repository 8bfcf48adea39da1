package netlink

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ReceiveBuffer has room for the kernel's longest messages: it cuts lists into pieces of half of it.
const ReceiveBuffer = 64 << 10

// tries bounds the attempts to send messages while the kernel lacks memory.
const tries = 5

// Socket is a connection to netfilter in the network namespace of the thread that opened it.
//
// The kernel has its answers ready when the message is sent. So no function waits: an empty socket is the end of the
// answers.
type Socket struct {
	// SetOption sets an option of the socket. Tests replace it.
	SetOption func(fd, level, option, value int) error

	fd       int
	port     uint32
	sequence uint32
	limit    int
	buffer   []byte
}

// ErrLost reports that answers or notices were lost for lack of room.
var ErrLost = errors.New("answers of the kernel were lost")

// Dial opens a socket.
func Dial() (*Socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	s := &Socket{fd: fd, SetOption: unix.SetsockoptInt, buffer: make([]byte, ReceiveBuffer)}
	if err := s.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("preparing a netlink socket: %w", err), s.Close())
	}
	return s, nil
}

func (s *Socket) prepare() error {
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
	// Answers name the wrong part of a message, and do not repeat the message.
	for _, option := range []int{unix.NETLINK_EXT_ACK, unix.NETLINK_CAP_ACK} {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, option, 1); err != nil {
			return err
		}
	}
	return s.measure()
}

func (s *Socket) measure() error {
	size, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	if err != nil {
		return err
	}
	// The kernel needs some bytes for itself.
	s.limit = size - 64
	return nil
}

// Port returns the socket's address in the kernel.
func (s *Socket) Port() uint32 { return s.port }

// Limit returns the maximum size of a batch in bytes.
func (s *Socket) Limit() int { return s.limit }

// Widen raises the limit to length, if the kernel permits it.
func (s *Socket) Widen(length int) error {
	if length <= s.limit {
		return nil
	}
	// The kernel doubles the value.
	if err := s.setBuffer(unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, length); err != nil {
		return err
	}
	return s.measure()
}

// SetReceiveBuffer sets the room for answers and notices, as far as the kernel permits.
func (s *Socket) SetReceiveBuffer(length int) error {
	return s.setBuffer(unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, length)
}

// setBuffer sets the size of a buffer. The system's limit does not apply to root.
func (s *Socket) setBuffer(force, option, length int) error {
	err := s.SetOption(s.fd, unix.SOL_SOCKET, force, length)
	if errors.Is(err, unix.EPERM) {
		err = s.SetOption(s.fd, unix.SOL_SOCKET, option, length)
	}
	if err != nil {
		return fmt.Errorf("setting the size of a netlink socket's buffer to %d bytes: %w", length, err)
	}
	return nil
}

// Close closes the socket, which may be nil.
func (s *Socket) Close() error {
	if s == nil {
		return nil
	}
	return unix.Close(s.fd)
}

// Filter makes the kernel drop rejected messages.
func (s *Socket) Filter(filter []unix.SockFilter) error {
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.SetsockoptSockFprog(s.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program); err != nil {
		return fmt.Errorf("filtering the messages of a netlink socket: %w", err)
	}
	return nil
}

// Join subscribes to a group of notices. It may be called again.
func (s *Socket) Join(group int) error {
	return s.SetOption(s.fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, group)
}

// Leave unsubscribes from a group of notices.
func (s *Socket) Leave(group int) error {
	return s.SetOption(s.fd, unix.SOL_NETLINK, unix.NETLINK_DROP_MEMBERSHIP, group)
}

// Given returns the size of the receive buffer as the kernel counts it.
func (s *Socket) Given() (int, error) {
	given, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		return 0, fmt.Errorf("reading the buffer size of a netlink socket: %w", err)
	}
	return given, nil
}

// File turns the socket into a file whose Read waits. Do not use the socket afterwards.
func (s *Socket) File() (*os.File, error) {
	if err := unix.SetNonblock(s.fd, true); err != nil {
		return nil, fmt.Errorf("preparing a netlink socket: %w", err)
	}
	return os.NewFile(uintptr(s.fd), "netlink"), nil
}

// send numbers and sends messages, with retries while the kernel lacks memory. It returns the first number.
func (s *Socket) send(m *Messages) (first uint32, err error) {
	first = s.sequence + 1
	s.sequence += uint32(len(m.Starts))
	m.number(first)
	for try := 1; ; try++ {
		err := unix.Sendto(s.fd, m.Bytes, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		again := errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOBUFS)
		if !again || try == tries {
			return first, os.NewSyscallError("sendto", err)
		}
	}
}

// Exchange sends messages and calls a function with each answer.
func (s *Socket) Exchange(m *Messages, each func(Reply)) error {
	first, err := s.send(m)
	if err != nil {
		return err
	}
	return s.Receive(func(answer Message) {
		// Answers to earlier messages do not count.
		if at := answer.Sequence - first; at < uint32(len(m.Starts)) {
			each(Reply{Message: answer, About: int(at)})
		}
	})
}

// Receive calls a function with each waiting message.
func (s *Socket) Receive(each func(Message)) error {
	var malformed error
	err := s.drain(func(part []byte) {
		for len(part) >= unix.SizeofNlMsghdr {
			m, rest, ok := NextMessage(part)
			if !ok {
				malformed = errMalformed
				break
			}
			each(m)
			part = rest
		}
	})
	if err != nil {
		return err
	}
	return malformed
}

var errMalformed = errors.New("a netlink message is cut off")

// drain calls a function with the waiting messages, several at a time.
func (s *Socket) drain(use func(part []byte)) error {
	var lost error
	for {
		n, _, err := unix.Recvfrom(s.fd, s.buffer, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOBUFS):
			lost = ErrLost
		case errors.Is(err, unix.EAGAIN):
			return lost
		case err != nil:
			return os.NewSyscallError("recvfrom", err)
		case n > len(s.buffer):
			lost = fmt.Errorf("a netlink message has %d bytes, and the buffer only %d", n, len(s.buffer))
		default:
			use(s.buffer[:n])
		}
	}
}
