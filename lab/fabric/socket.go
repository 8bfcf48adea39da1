package fabric

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Dial connects to an IP address and port from a network namespace. The network is tcp or
// udp, optionally with 4 or 6.
//
// Only the socket is made in the namespace: no thread waits for the connection.
func Dial(ctx context.Context, namespace, network, address string) (net.Conn, error) {
	conn, err := dial(ctx, namespace, network, address)
	if err != nil {
		return nil, fmt.Errorf("dialling %s %s from network namespace %q: %w", network, address, namespace, err)
	}
	return conn, nil
}

func dial(ctx context.Context, namespace, network, address string) (net.Conn, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("%w; write an IP address and a port", err)
	}
	kind := unix.SOCK_STREAM
	switch {
	case strings.HasPrefix(network, "udp"):
		kind = unix.SOCK_DGRAM
	case !strings.HasPrefix(network, "tcp"):
		return nil, fmt.Errorf("network %q: write tcp or udp", network)
	}
	domain, remote := sockaddr(to)
	fd := -1
	err = InNamespace(namespace, func() (err error) {
		fd, err = unix.Socket(domain, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	socket := os.NewFile(uintptr(fd), network)
	// net.FileConn duplicates the descriptor.
	defer socket.Close()
	if err := connect(ctx, socket, remote); err != nil {
		return nil, err
	}
	return net.FileConn(socket)
}

func sockaddr(to netip.AddrPort) (domain int, remote unix.Sockaddr) {
	if addr := to.Addr().Unmap(); addr.Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Addr: addr.As4(), Port: int(to.Port())}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Addr: to.Addr().As16(), Port: int(to.Port())}
}

func connect(ctx context.Context, socket *os.File, remote unix.Sockaddr) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var started error
	if err := raw.Control(func(fd uintptr) { started = unix.Connect(int(fd), remote) }); err != nil {
		return err
	}
	if started == nil {
		return nil
	}
	if !errors.Is(started, unix.EINPROGRESS) {
		return started
	}
	// A deadline in the past interrupts the wait.
	defer context.AfterFunc(ctx, func() { _ = socket.SetWriteDeadline(time.Unix(1, 0)) })()
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = unix.Errno(code)
		}
		if err != nil {
			failed = err
			return true
		}
		_, err = unix.Getpeername(int(fd))
		return err == nil
	})
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(failed, err)
}

// Listen listens on an address in a network namespace. Accepted connections are in it, too.
func Listen(namespace, network, address string) (net.Listener, error) {
	var listener net.Listener
	err := InNamespace(namespace, func() (err error) {
		listener, err = new(net.ListenConfig).Listen(context.Background(), network, address)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listening in network namespace %q: %w", namespace, err)
	}
	return listener, nil
}
