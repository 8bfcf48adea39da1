package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"vicinity.dev/vicinity/lab/fabric"
)

// How the gateway checks API servers. A paused server still accepts connections, so only an
// answer counts.
const (
	gatewayProbeEvery   = 500 * time.Millisecond
	gatewayProbeTimeout = 2 * time.Second
	gatewayDialTimeout  = 2 * time.Second
	// gatewayAcceptPause is the pause after an error from accept.
	gatewayAcceptPause = 50 * time.Millisecond
)

// ServeGateway runs the gateway in the host's network until the context ends, and logs
// which API servers come and go.
func (c *ControlPlane) ServeGateway(ctx context.Context, log io.Writer) error {
	b := newBalancer(c.addrs.apiServers)
	b.log = log
	b.dial = func(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
		return c.dial(c.namespace)(ctx, "tcp", addr.String())
	}
	b.probe = func(ctx context.Context, addr netip.AddrPort) error {
		return c.anonymous.get(ctx, "https://"+addr.String()+"/readyz")
	}
	outside, err := new(net.ListenConfig).Listen(ctx, "tcp", c.addrs.outside.String())
	if err != nil {
		return fmt.Errorf("listening for the host: %w", err)
	}
	listeners := []net.Listener{outside}
	if c.namespace != "" && len(c.addrs.apiServers) > 1 {
		inside, err := fabric.Listen(c.namespace, "tcp", c.addrs.inside.String())
		if err != nil {
			return errors.Join(err, outside.Close())
		}
		listeners = append(listeners, inside)
	}
	return b.serve(ctx, listeners...)
}

// balancer forwards connections to servers in turn, except those that do not answer.
type balancer struct {
	backends []*backend
	// dial connects to a server, probe checks whether it is ready.
	dial  func(context.Context, netip.AddrPort) (net.Conn, error)
	probe func(context.Context, netip.AddrPort) error
	log   io.Writer

	mu   sync.Mutex
	next int
}

type backend struct {
	addr netip.AddrPort

	mu    sync.Mutex
	down  bool
	conns map[net.Conn]struct{}
}

func newBalancer(servers []netip.AddrPort) *balancer {
	b := &balancer{log: io.Discard}
	for _, addr := range servers {
		b.backends = append(b.backends, &backend{addr: addr, conns: map[net.Conn]struct{}{}})
	}
	return b
}

func (b *balancer) serve(ctx context.Context, listeners ...net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		for _, listener := range listeners {
			_ = listener.Close()
		}
		for _, backend := range b.backends {
			backend.closeAll()
		}
	})()

	var tasks sync.WaitGroup
	// A single server gets all connections, ready or not.
	if len(b.backends) > 1 {
		for _, backend := range b.backends {
			tasks.Go(func() { b.watch(ctx, backend) })
		}
	}
	failures := make(chan error, len(listeners))
	for _, listener := range listeners {
		tasks.Go(func() { failures <- b.accept(ctx, listener, &tasks) })
	}
	err := <-failures
	ended := ctx.Err() != nil
	cancel()
	tasks.Wait()
	if ended {
		return nil
	}
	return err
}

// accept accepts until the listener is closed. Other errors, such as too many open files,
// are temporary: ending would cut everyone off.
func (b *balancer) accept(ctx context.Context, listener net.Listener, tasks *sync.WaitGroup) error {
	for {
		client, err := listener.Accept()
		if err == nil {
			tasks.Go(func() { b.forward(ctx, client) })
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("accepting on %s: %w", listener.Addr(), err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(gatewayAcceptPause):
		}
	}
}

// forward connects a client to the first server that accepts.
func (b *balancer) forward(ctx context.Context, client net.Conn) {
	defer client.Close()
	for _, backend := range b.order() {
		dialCtx, cancel := context.WithTimeout(ctx, gatewayDialTimeout)
		server, err := b.dial(dialCtx, backend.addr)
		cancel()
		if err != nil {
			continue
		}
		defer server.Close()
		backend.add(server)
		defer backend.remove(server)
		if ctx.Err() == nil {
			join(client, server)
		}
		return
	}
}

// order lists the servers in turn, those that are down last, in case they are just back.
func (b *balancer) order() []*backend {
	b.mu.Lock()
	first := b.next
	b.next = (b.next + 1) % len(b.backends)
	b.mu.Unlock()
	var up, down []*backend
	for i := range b.backends {
		backend := b.backends[(first+i)%len(b.backends)]
		if backend.isDown() {
			down = append(down, backend)
		} else {
			up = append(up, backend)
		}
	}
	return append(up, down...)
}

// watch probes a server. If it fails, its connections are closed, so that clients reconnect
// to another one.
func (b *balancer) watch(ctx context.Context, backend *backend) {
	ticker := time.NewTicker(gatewayProbeEvery)
	defer ticker.Stop()
	for {
		probeCtx, cancel := context.WithTimeout(ctx, gatewayProbeTimeout)
		err := b.probe(probeCtx, backend.addr)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if backend.set(err != nil) {
			b.report(backend.addr, err)
		}
		if err != nil {
			backend.closeAll()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (b *balancer) report(addr netip.AddrPort, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		fmt.Fprintf(b.log, "API server %s is left out: %v\n", addr, err)
		return
	}
	fmt.Fprintf(b.log, "API server %s is back\n", addr)
}

// set sets whether the server is down, and reports whether that changed.
func (s *backend) set(down bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	news := s.down != down
	s.down = down
	return news
}

func (s *backend) isDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

func (s *backend) add(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[conn] = struct{}{}
}

func (s *backend) remove(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
}

func (s *backend) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.conns {
		_ = conn.Close()
	}
}

// join copies in both directions until both sides are done. A half-close is passed on; an
// error closes both sides.
func join(a, b net.Conn) {
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		both.Go(func() {
			from, to := way[0], way[1]
			_, err := io.Copy(to, from)
			half, ok := to.(interface{ CloseWrite() error })
			if err == nil && ok {
				err = half.CloseWrite()
			} else if err == nil {
				err = errors.ErrUnsupported
			}
			if err != nil {
				_ = a.Close()
				_ = b.Close()
			}
		})
	}
	both.Wait()
}
