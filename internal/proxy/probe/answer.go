package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"
)

// listener answers all who connect with one line that says which process it is, as an answer
// of HTTP, so that a pod can ask too. Whoever connects and is silent holds up nobody.
type listener struct {
	net.Listener
	at     netip.AddrPort
	answer string
	// lingering bounds how many connections are kept until their other end has sent its
	// request and read the answer.
	lingering chan struct{}
}

const (
	// mostLingering connections are kept at a time, each for lingerTime at most. A request
	// that has not come within requestTime is not waited for.
	mostLingering = 32
	lingerTime    = time.Second
	requestTime   = 100 * time.Millisecond
	// mostRead is what is read of a request.
	mostRead = 8 << 10
	// acceptAgain is how long to wait when a connection could not be taken.
	acceptAgain = 100 * time.Millisecond
)

// listenFunc opens a listener.
type listenFunc func(at netip.AddrPort) (net.Listener, error)

func listenTCP(at netip.AddrPort) (net.Listener, error) {
	var config net.ListenConfig
	return config.Listen(context.Background(), "tcp", at.String())
}

// newListener listens at the first of some addresses that has room, at a port if that is
// free and else at another. The error is that of the first address.
func newListener(open listenFunc, candidates []netip.Addr, port uint16, line string) (*listener, error) {
	err := errors.New("the node has no such address")
	var first error
	for _, address := range candidates {
		for _, number := range []uint16{port, 0} {
			var opened net.Listener
			if opened, err = open(netip.AddrPortFrom(address, number)); err != nil {
				if first == nil {
					first = err
				}
				continue
			}
			at, ok := opened.Addr().(*net.TCPAddr)
			if !ok {
				return nil, errors.Join(fmt.Errorf("listening at %s: it is no address of TCP", opened.Addr()), opened.Close())
			}
			l := &listener{
				Listener: opened, at: netip.AddrPortFrom(at.AddrPort().Addr().Unmap(), at.AddrPort().Port()),
				answer:    fmt.Sprintf("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(line), line),
				lingering: make(chan struct{}, mostLingering),
			}
			go l.serve()
			return l, nil
		}
	}
	if first != nil {
		err = first
	}
	return nil, err
}

// serve answers until the listener is closed.
func (l *listener) serve() {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		} else if err != nil {
			time.Sleep(acceptAgain)
			continue
		}
		l.reply(conn)
	}
}

// reply answers a request. If too many connections are kept it does not wait for one. The
// answer is shorter than the buffer of any connection, so that it does not wait for the other
// end.
func (l *listener) reply(conn net.Conn) {
	select {
	case l.lingering <- struct{}{}:
	default:
		_, _ = io.WriteString(conn, l.answer)
		_ = conn.Close()
		return
	}
	go func() {
		defer func() {
			_ = conn.Close()
			<-l.lingering
		}()
		_ = conn.SetDeadline(time.Now().Add(requestTime))
		_, _ = conn.Read(make([]byte, 1))
		_ = conn.SetDeadline(time.Now().Add(lingerTime))
		if _, err := io.WriteString(conn, l.answer); err != nil {
			return
		}
		// To close at once, with a part of the request unread, would take the answer back.
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
		_, _ = io.CopyN(io.Discard, conn, mostRead)
	}()
}
