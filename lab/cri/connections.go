package cri

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
)

// connections tracks what a listener accepted, until either side closes it. An http.Server
// forgets a connection once a stream took it over.
type connections struct {
	net.Listener

	mu     sync.Mutex
	open   map[*connection]bool
	closed bool
}

func newConnections(l net.Listener) *connections {
	return &connections{Listener: l, open: map[*connection]bool{}}
}

// Accept waits for a connection.
func (c *connections) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	one := &connection{Conn: conn, all: c}
	one.over, one.end = context.WithCancel(context.Background())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errors.Join(net.ErrClosed, conn.Close())
	}
	c.open[one] = true
	return one, nil
}

// closeAll closes all connections, and those that are accepted from now on.
func (c *connections) closeAll() {
	c.mu.Lock()
	c.closed = true
	open := c.open
	c.open = nil
	c.mu.Unlock()
	for one := range open {
		_ = one.Close()
	}
}

type connection struct {
	net.Conn
	all *connections
	// over ends with the connection.
	over context.Context
	end  context.CancelFunc
}

// Read ends the connection's context when the other side has closed it.
func (c *connection) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	// A server that hands a connection over interrupts its own read by a deadline.
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.end()
	}
	return n, err
}

// Close closes the connection.
func (c *connection) Close() error {
	c.end()
	c.all.mu.Lock()
	delete(c.all.open, c)
	c.all.mu.Unlock()
	return c.Conn.Close()
}

// withConnection is for http.Server.ConnContext: a request's context ends with its
// connection.
func withConnection(ctx context.Context, conn net.Conn) context.Context {
	one, ok := conn.(*connection)
	if !ok {
		return ctx
	}
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(one.over, cancel)
	return ctx
}
