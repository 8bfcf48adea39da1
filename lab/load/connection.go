package load

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// connection carries one request.
//
// It implements HTTP itself, since net/http's client may repeat a request on another connection, which
// would hide failures.
type connection struct {
	net.Conn
	reader *bufio.Reader
	target netip.AddrPort
	// retransmitted means that TCP sent more than once to open the connection.
	retransmitted bool
}

func newConnection(conn net.Conn, target netip.AddrPort) *connection {
	return &connection{Conn: conn, reader: bufio.NewReaderSize(conn, maxAnswer), target: target}
}

// exchange sends a request and reads the answer. It returns a wrong answer too, as far as it was
// understood.
func (c *connection) exchange(protocol Protocol, id string) (Answer, error) {
	line, err := c.ask(protocol, id)
	if err != nil {
		return Answer{}, err
	}
	answer, err := ParseAnswer(line)
	if err != nil {
		return answer, &answerError{WrongAnswer, err.Error()}
	}
	if answer.ID != id {
		return answer, &answerError{WrongAnswer, fmt.Sprintf("the answer is to request %q, not to %q", answer.ID, id)}
	}
	return answer, nil
}

func (c *connection) ask(protocol Protocol, id string) ([]byte, error) {
	switch protocol {
	case TCP:
		return c.askLine(id)
	case UDP:
		return c.askDatagram(id)
	default:
		return c.askHTTP(id)
	}
}

func (c *connection) askHTTP(id string) ([]byte, error) {
	if _, err := fmt.Fprintf(c.Conn, "GET /?id=%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: vicinity-lab-load\r\nConnection: close\r\n\r\n", id, c.target); err != nil {
		return nil, err
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return nil, readError(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return nil, readError(err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, &answerError{WrongAnswer, "the answer has status " + response.Status}
	}
	return body, nil
}

func (c *connection) askLine(id string) ([]byte, error) {
	if _, err := io.WriteString(c.Conn, id+" "+CloseWord+"\n"); err != nil {
		return nil, err
	}
	line, err := c.reader.ReadSlice('\n')
	if err != nil {
		return nil, readError(err)
	}
	return line, nil
}

func (c *connection) askDatagram(id string) ([]byte, error) {
	if _, err := io.WriteString(c.Conn, id); err != nil {
		return nil, err
	}
	buffer := make([]byte, maxAnswer+1)
	n, err := c.Read(buffer)
	return buffer[:n], err
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

// closeWait is how long to wait for the other side to close a connection first.
const closeWait = 100 * time.Millisecond

// finish closes a connection after its answer. The side that closes first keeps the port for a minute,
// and the server has only one port: so the client waits for the server to close a TCP connection.
func (c *connection) finish(waitForServer bool) {
	if waitForServer && c.SetDeadline(time.Now().Add(closeWait)) == nil {
		_, _ = c.reader.ReadByte()
	}
	_ = c.Close()
}
