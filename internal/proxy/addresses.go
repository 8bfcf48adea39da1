package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
)

func interfaceAddresses() ([]netip.Addr, error) {
	found, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("reading the addresses of interfaces: %w", err)
	}
	all := make([]netip.Addr, 0, len(found))
	for _, one := range found {
		if prefix, ok := one.(*net.IPNet); ok {
			if address, ok := netip.AddrFromSlice(prefix.IP); ok {
				all = append(all, address.Unmap())
			}
		}
	}
	return all, nil
}

// followInterfaces passes on the node's addresses at once and after each change, until the context ends.
func followInterfaces(ctx context.Context, log logr.Logger, use func([]netip.Addr)) {
	for ctx.Err() == nil {
		if err := followOnce(ctx, use); err != nil && ctx.Err() == nil {
			log.Error(err, "Cannot read the addresses of the node's interfaces")
		}
		select {
		case <-ctx.Done():
		case <-time.After(followAgain):
		}
	}
}

// followAgain is the pause after a failure.
const followAgain = time.Second

func followOnce(ctx context.Context, use func([]netip.Addr)) error {
	changes, err := watchAddresses()
	if err != nil {
		return fmt.Errorf("watching the addresses of interfaces: %w", err)
	}
	defer changes.Close()
	defer context.AfterFunc(ctx, func() { _ = changes.Close() })()
	notice := make([]byte, 4<<10) // its content does not matter
	for {
		all, err := interfaceAddresses()
		if err != nil {
			return err
		}
		use(all)
		// The kernel drops notices if the socket is full. That does no harm: all addresses are read again.
		if _, err := changes.Read(notice); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return fmt.Errorf("watching the addresses of interfaces: %w", err)
		}
	}
}

// watchAddresses opens a socket at which the kernel reports each address that is added or removed.
func watchAddresses() (*os.File, error) {
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	groups := &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR}
	if err := unix.Bind(socket, groups); err != nil {
		return nil, errors.Join(err, unix.Close(socket))
	}
	return os.NewFile(uintptr(socket), "netlink"), nil
}
