package load

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

// connection carries one request after the other.
//
// It implements HTTP itself, since net/http's client retries a request on a new connection
// when a reused one fails, which would hide failures.
type connection struct {
	net.Conn
	reader *bufio.Reader
	target netip.AddrPort
	peer   *Endpoint // that answered last
	// retransmitted means that TCP sent more than once to open the connection.
	retransmitted bool
}

func newConnection(conn net.Conn, target netip.AddrPort) *connection {
	return &connection{Conn: conn, reader: bufio.NewReaderSize(conn, maxAnswer), target: target}
}

type request struct {
	protocol Protocol
	id       string
	last     bool // the last request of its connection
}

// exchange sends a request and reads the answer. It returns a wrong answer too, as far as it was
// understood, and whether the connection can be reused.
func (c *connection) exchange(r request) (Answer, bool, error) {
	line, reusable, err := c.ask(r)
	if err != nil {
		return Answer{}, false, err
	}
	answer, err := ParseAnswer(line)
	if err != nil {
		return answer, false, &answerError{WrongAnswer, err.Error()}
	}
	if answer.ID != r.id {
		return answer, false, &answerError{WrongAnswer, fmt.Sprintf("the answer is to request %q, not to %q", answer.ID, r.id)}
	}
	c.peer = &answer.Endpoint
	return answer, reusable && !answer.Last && !r.last, nil
}

func (c *connection) ask(r request) (line []byte, reusable bool, err error) {
	switch r.protocol {
	case TCP:
		return c.askLine(r)
	case UDP:
		return c.askDatagram(r)
	default:
		return c.askHTTP(r)
	}
}

func (c *connection) askHTTP(r request) (body []byte, reusable bool, err error) {
	closing := ""
	if r.last {
		closing = "Connection: close\r\n"
	}
	if _, err := fmt.Fprintf(c.Conn, "GET /?id=%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: vicinity-lab-load\r\n%s\r\n",
		r.id, c.target, closing); err != nil {
		return nil, false, err
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return nil, false, readError(err)
	}
	defer response.Body.Close()
	body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return nil, false, readError(err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, false, &answerError{WrongAnswer, "the answer has status " + response.Status}
	}
	return body, !response.Close, nil
}

func (c *connection) askLine(r request) (line []byte, reusable bool, err error) {
	text := r.id
	if r.last {
		text += " " + CloseWord
	}
	if _, err := io.WriteString(c.Conn, text+"\n"); err != nil {
		return nil, false, err
	}
	line, err = c.reader.ReadSlice('\n')
	if err != nil {
		return nil, false, readError(err)
	}
	return line, true, nil
}

func (c *connection) askDatagram(r request) (datagram []byte, reusable bool, err error) {
	if _, err := io.WriteString(c.Conn, r.id); err != nil {
		return nil, false, err
	}
	buffer := make([]byte, maxAnswer+1)
	n, err := c.Read(buffer)
	return buffer[:n], true, err
}

// readError classifies an error from reading: if it is not about the connection, it is about the
// received text.
func readError(err error) error {
	if kindOf(err) == Other {
		if _, network := errors.AsType[*net.OpError](err); !network {
			return &answerError{WrongAnswer, err.Error()}
		}
	}
	return err
}

// checkIdle checks an idle connection. It returns nil if the connection can be used, io.EOF if the
// other side closed it in good order, or how it broke. If the kernel cannot tell, the connection is
// usable.
func (c *connection) checkIdle() error {
	if c.reader.Buffered() > 0 {
		return io.EOF // an unexpected answer would be taken for the next one
	}
	conn, ok := c.Conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var broken error
	if err := raw.Control(func(fd uintptr) {
		_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch {
		case errors.Is(err, syscall.EAGAIN):
		case err != nil:
			broken = err
		default:
			broken = io.EOF // the end, or unexpected data
		}
	}); err != nil {
		return err
	}
	return broken
}

// closeWait is how long to wait for the other side to close a connection first.
const closeWait = 100 * time.Millisecond

// finish closes a connection after its last answer. The side that closes first keeps the
// port for a minute, and the server has only one port: so the client waits for the server if it
// asked the server to close.
func (c *connection) finish(waitForServer bool) {
	if waitForServer && c.SetDeadline(time.Now().Add(closeWait)) == nil {
		_, _ = c.reader.ReadByte()
	}
	_ = c.Close()
}
