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

// connection is one that requests go over, one after the other.
//
// HTTP is spoken here by hand, since net/http's client opens another connection and
// asks again when one fails that was used before, and so hides what is to be counted.
type connection struct {
	net.Conn
	reader *bufio.Reader
	target netip.AddrPort
	peer   *Endpoint // who answered last
}

func newConnection(conn net.Conn, target netip.AddrPort) *connection {
	return &connection{Conn: conn, reader: bufio.NewReaderSize(conn, maxAnswer), target: target}
}

// request is what is asked over a connection.
type request struct {
	protocol Protocol
	id       string
	last     bool // no other follows
}

// exchange asks and reads the answer, and says whether the connection can be used
// again. The answer is returned also if it is a wrong one, as far as it was understood.
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
		return answer, false, &answerError{WrongAnswer, fmt.Sprintf("the answer is to request %q, this was %q", answer.ID, r.id)}
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
		return nil, false, malformed(err)
	}
	defer response.Body.Close()
	body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return nil, false, malformed(err)
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
		return nil, false, malformed(err)
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

// malformed sorts an error from reading: one that is not about the connection is about
// what came over it.
func malformed(err error) error {
	if kindOf(err) == Other {
		if _, network := errors.AsType[*net.OpError](err); !network {
			return &answerError{WrongAnswer, err.Error()}
		}
	}
	return err
}

// idle looks at a connection that nothing was asked over for a while: nil if it can be
// used, io.EOF if the other side closed it in good order, else how it broke. Where the
// kernel cannot be asked, all is well.
func (c *connection) idle() error {
	if c.reader.Buffered() > 0 {
		return io.EOF // what came unasked would be taken for an answer
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
			broken = io.EOF // the end, or something that came unasked
		}
	}); err != nil {
		return err
	}
	return broken
}

// parting is how long to wait for the other side to close a connection first.
const parting = 100 * time.Millisecond

// part closes a connection after its last answer. The side that closes first keeps the
// port for a minute, and the side that answers has only one port to keep: where the
// other side was asked to close, it may go first.
func (c *connection) part(asked bool) {
	if asked && c.SetDeadline(time.Now().Add(parting)) == nil {
		// What comes, if anything, does not matter.
		_, _ = c.reader.ReadByte()
	}
	// Nothing is lost when closing fails: the answer is there.
	_ = c.Close()
}
