package agent

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
)

// connections are those that a listener accepted. A server forgets a connection that a
// stream took over; here it is known until it is closed, by either side.
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

// closeAll closes the connections that are open, and those that are still to come.
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

// connection is one of the connections.
type connection struct {
	net.Conn
	all *connections
	// over ends with the connection.
	over context.Context
	end  context.CancelFunc
}

// Read reads, and notices when the other side is gone.
func (c *connection) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	// A server that hands a connection over interrupts its own reading by a deadline.
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

// withConnection makes a context for what is asked on a connection: it ends with that.
func withConnection(ctx context.Context, conn net.Conn) context.Context {
	one, ok := conn.(*connection)
	if !ok {
		return ctx
	}
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(one.over, cancel)
	return ctx
}
