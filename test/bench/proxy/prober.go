package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/lab/fabric"
)

// prober opens connections in the network of a node, on one thread and without anything
// between it and the kernel.
type prober struct{ namespace string }

const (
	// probeTime is how long a connection may take that is one of many: another comes at
	// once.
	probeTime = 250 * time.Millisecond
	// connectTime is how long one may take whose time is what is asked for. A packet that
	// is lost is sent again after a second.
	connectTime = 10 * time.Second
)

// aim is what connections are to come to: one to an address, or so many in a row, are
// answered by a letter. Between two of them is a pause.
type aim struct {
	to    netip.AddrPort
	want  byte
	inRow int
	pause time.Duration
}

// until opens connections until they came to what they are to come to, and returns how
// long that took from a moment on.
func (p prober) until(ctx context.Context, a aim, since time.Time) (took time.Duration, err error) {
	err = fabric.InNamespace(p.namespace, func() error {
		last := errors.New("not tried")
		for row := 0; ctx.Err() == nil; {
			letter, _, err := connect(a.to, probeTime)
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

// times opens connections to some addresses in turn, one after the other, and returns how
// long those to each took, and how many failed. More than a hundredth must not.
func (p prober) times(ctx context.Context, number int, to ...netip.AddrPort) (all [][]time.Duration, failed int, err error) {
	all = make([][]time.Duration, len(to))
	err = fabric.InNamespace(p.namespace, func() error {
		for range number {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			for i, address := range to {
				_, took, err := connect(address, connectTime)
				if err == nil {
					all[i] = append(all[i], took)
				} else if failed++; 100*failed > number {
					return fmt.Errorf("connecting to %s for %.3f s, after which %d have failed: %w", address, took.Seconds(), failed, err)
				}
			}
		}
		return nil
	})
	return all, failed, err
}

// connect opens a connection, and returns what it was answered and how long opening it
// took.
func connect(to netip.AddrPort, patience time.Duration) (letter byte, took time.Duration, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = unix.Close(fd) }()
	limit := unix.NsecToTimeval(patience.Nanoseconds())
	for _, option := range []int{unix.SO_SNDTIMEO, unix.SO_RCVTIMEO} {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &limit); err != nil {
			return 0, 0, err
		}
	}
	// What was closed leaves no port taken: thousands of connections come one after the
	// other.
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return 0, 0, err
	}
	begun := time.Now()
	for {
		if err = unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	took = time.Since(begun)
	if err != nil {
		return 0, took, err
	}
	buffer := make([]byte, 1)
	n, err := unix.Read(fd, buffer)
	if err == nil && n == 0 {
		err = errors.New("it was closed without an answer")
	}
	return buffer[0], took, err
}
