package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"

	"vicinity.dev/vicinity/internal/proxy/httpserver"
)

// listener answers HTTP requests with one line that names this process, so that a pod can ask too.
type listener struct {
	at     netip.AddrPort
	opened net.Listener
	server *http.Server
}

// mostConnections bounds the connections that clients hold.
const mostConnections = 32

// listenFunc opens a listener.
type listenFunc func(at netip.AddrPort) (net.Listener, error)

func listenTCP(at netip.AddrPort) (net.Listener, error) {
	var config net.ListenConfig
	return config.Listen(context.Background(), "tcp", at.String())
}

// newListener opens a listener at the first possible candidate: at the port if it is free, otherwise at any port. It
// answers after serve. The error is that of the first candidate.
func newListener(open listenFunc, candidates []netip.Addr, port uint16, line string) (*listener, error) {
	failure := errors.New("it has no address of this family")
	for i, address := range candidates {
		for _, number := range []uint16{port, 0} {
			opened, err := open(netip.AddrPortFrom(address, number))
			if err == nil {
				return serveLine(opened, line)
			}
			if i == 0 && number == port {
				failure = err
			}
		}
	}
	return nil, failure
}

func serveLine(opened net.Listener, line string) (*listener, error) {
	at, ok := opened.Addr().(*net.TCPAddr)
	if !ok {
		return nil, errors.Join(fmt.Errorf("listening at %s: it is not a TCP address", opened.Addr()), opened.Close())
	}
	server := httpserver.New(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, line) // the client may have gone
	}), httpserver.NewLimit(mostConnections))
	return &listener{netip.AddrPortFrom(at.AddrPort().Addr().Unmap(), at.AddrPort().Port()), opened, server}, nil
}

// serve answers until the listener is closed. It returns an error if it ends early, for example for lack of memory.
func (l *listener) serve() error {
	if err := l.server.Serve(l.opened); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (l *listener) close() {
	_ = l.server.Close()
	_ = l.opened.Close() // before serve, the server does not close it
}
