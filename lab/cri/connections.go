package cri

import (
	"context"
	"errors"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// connections tracks what a listener accepted, until either side closes it. An http.Server
// forgets a connection once a stream took it over.
type connections struct {
	net.Listener

	mu     sync.Mutex
	open   map[*connection]bool
	closed bool
	// empty is closed when the last connection after end is.
	empty chan struct{}
}

func newConnections(l net.Listener) *connections {
	return &connections{Listener: l, open: map[*connection]bool{}, empty: make(chan struct{})}
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

// end ends the contexts of all connections, and closes those that are accepted from now on.
// Streams get the time to report how they ended, since a client takes a connection that only
// closes for a success. Connections that are open after it are closed.
func (c *connections) end(within time.Duration) {
	c.mu.Lock()
	c.closed = true
	for one := range c.open {
		one.end()
	}
	c.checkEmpty()
	c.mu.Unlock()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-c.empty:
		return
	case <-timer.C:
	}
	c.mu.Lock()
	left := slices.Collect(maps.Keys(c.open))
	c.mu.Unlock()
	for _, one := range left {
		_ = one.Close()
	}
}

// checkEmpty notes that the last connection is closed; c.mu is held.
func (c *connections) checkEmpty() {
	if !c.closed || len(c.open) > 0 {
		return
	}
	select {
	case <-c.empty:
	default:
		close(c.empty)
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
	c.all.checkEmpty()
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
