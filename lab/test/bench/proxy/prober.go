package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/lab/fabric"
)

// prober opens connections in the network of a node, on one thread and directly by system calls.
type prober struct{ namespace string }

const (
	// probeTime is the timeout of a connection if another one follows at once.
	probeTime = 250 * time.Millisecond
	// connectTime is the timeout of a measured connection. A lost packet is sent again after a second.
	connectTime = 10 * time.Second
)

// aim is the wanted result: a connection to an address, or a number in a row, are answered with a
// letter. Between two of them is a pause.
type aim struct {
	to    netip.AddrPort
	want  byte
	inRow int
	pause time.Duration
}

// until opens connections until the aim is reached, and returns the time since a moment.
func (p prober) until(ctx context.Context, a aim, since time.Time) (took time.Duration, err error) {
	err = fabric.InNamespace(p.namespace, func() error {
		last := errors.New("not tried")
		for row := 0; ctx.Err() == nil; {
			letter, err := try(a.to, probeTime)
			if err == nil && letter == a.want {
				if row++; row >= a.inRow {
					took = time.Since(since)
					return nil
				}
				continue
			}
			row = 0
			if last = err; err == nil {
				last = fmt.Errorf("it is answered by %q", letter)
			}
			time.Sleep(a.pause)
		}
		return fmt.Errorf("waiting for %s to be answered by %q (%w): %w", a.to, a.want, last, context.Cause(ctx))
	})
	return took, err
}

// way is the network of a node and an address.
type way struct {
	namespace string
	to        netip.AddrPort
}

const (
	// batch is the number of sockets that are made for each way before they connect: changing
	// namespaces between connections would disturb them.
	batch = 100
	// firstPort is the first source port of measured connections. Each has its own port, so that the
	// kernel remembers nothing of it. The kernel itself uses the ports above lastPort.
	firstPort, lastPort = 10_000, 32_767
)

// connections are the times of one way's connections, the number of failures, and the last error.
type connections struct {
	took   []time.Duration
	failed int
	last   error
}

// times opens connections by each way in turn. At most one in a hundred may fail. The kernel remembers
// no connection at the start.
func times(ctx context.Context, number int, ways ...way) ([]connections, error) {
	all := make([]connections, len(ways))
	ports := portRange{next: firstPort, left: lastPort - firstPort + 1}
	for _, w := range ways {
		if err := fabric.InNamespace(w.namespace, forgetConnections); err != nil {
			return nil, err
		}
	}
	for done := 0; done < number; done += batch {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		sockets := make([][]int, len(ways))
		for i, w := range ways {
			var err error
			if sockets[i], err = openSockets(w.namespace, min(batch, number-done), &ports); err != nil {
				closeAll(sockets)
				return nil, err
			}
		}
		connectAll(sockets, ways, all)
		closeAll(sockets)
		for i := range all {
			if one := &all[i]; 100*one.failed > number {
				return nil, fmt.Errorf("%d of %d connections to %s failed: %w", one.failed, number, ways[i].to, one.last)
			}
		}
	}
	return all, nil
}

// connectAll connects sockets of each way in turn, starting with another way each time.
func connectAll(sockets [][]int, ways []way, all []connections) {
	for n := range sockets[0] {
		for i := range ways {
			i = (i + n) % len(ways)
			_, took, err := connect(sockets[i][n], ways[i].to)
			if err == nil {
				all[i].took = append(all[i].took, took)
				continue
			}
			all[i].failed++
			all[i].last = fmt.Errorf("connecting to %s for %.3f s: %w", ways[i].to, took.Seconds(), err)
		}
	}
}

func closeAll(sockets [][]int) {
	for _, some := range sockets {
		for _, socket := range some {
			_ = unix.Close(socket)
		}
	}
}

// portRange hands out each source port once.
type portRange struct {
	next uint16
	left int
}

// take returns a port, or 0 if none is left.
func (p *portRange) take() uint16 {
	if p.left == 0 {
		return 0
	}
	port := p.next
	p.next++
	p.left--
	return port
}

// openSockets makes sockets in a namespace, each with its own source port. It skips ports in use.
func openSockets(namespace string, number int, ports *portRange) (sockets []int, err error) {
	err = fabric.InNamespace(namespace, func() error {
		for len(sockets) < number {
			port := ports.take()
			if port == 0 {
				return errors.New("too few source ports; lower -connects")
			}
			socket, err := newSocket(connectTime)
			if err != nil {
				return err
			}
			sockets = append(sockets, socket)
			switch err := unix.Bind(socket, &unix.SockaddrInet4{Port: int(port)}); {
			case errors.Is(err, unix.EADDRINUSE):
				_ = unix.Close(socket)
				sockets = sockets[:len(sockets)-1]
			case err != nil:
				return fmt.Errorf("taking source port %d: %w", port, err)
			}
		}
		return nil
	})
	return sockets, err
}

// forgetConnections makes the kernel forget all connections of this thread's namespace.
func forgetConnections() error {
	handle, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
	if err != nil {
		return fmt.Errorf("opening a netlink socket: %w", err)
	}
	defer handle.Close()
	if err := handle.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
		return fmt.Errorf("flushing the connection table: %w", err)
	}
	return nil
}

// newSocket makes a socket with a timeout in the network of this thread.
func newSocket(timeout time.Duration) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	limit := unix.NsecToTimeval(timeout.Nanoseconds())
	for _, option := range []int{unix.SO_SNDTIMEO, unix.SO_RCVTIMEO} {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &limit); err != nil {
			return 0, errors.Join(err, unix.Close(fd))
		}
	}
	// A closed socket must leave no port in use: thousands of connections follow each other.
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// try opens a connection from the network of this thread, and returns the answer.
func try(to netip.AddrPort, timeout time.Duration) (letter byte, err error) {
	fd, err := newSocket(timeout)
	if err != nil {
		return 0, err
	}
	letter, _, err = connect(fd, to)
	return letter, errors.Join(err, unix.Close(fd))
}

// connect connects a socket, and returns the answer and the time to connect.
func connect(fd int, to netip.AddrPort) (letter byte, took time.Duration, err error) {
	address := &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}
	begun := time.Now()
	for {
		if err = unix.Connect(fd, address); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	took = time.Since(begun)
	if err != nil {
		return 0, took, err
	}
	buffer := make([]byte, 1)
	var n int
	for {
		if n, err = unix.Read(fd, buffer); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err == nil && n == 0 {
		err = errors.New("it was closed without an answer")
	}
	return buffer[0], took, err
}
