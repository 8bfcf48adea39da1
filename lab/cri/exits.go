package cri

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// exits waits on one thread for the end of many processes, which need not be children.
type exits struct {
	epoll int
	// closing becomes readable when exits ends. To close epoll would not wake the thread that
	// waits on it, which would go on with whatever gets its number next.
	closing int
	over    chan struct{}
	mu      sync.Mutex
	calls   map[int32]func()
}

func watchExits() (*exits, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watching for the end of processes: %w", err)
	}
	closing, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err == nil {
		err = unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, closing, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(closing)})
	}
	if err != nil {
		_ = unix.Close(fd)
		if closing >= 0 {
			_ = unix.Close(closing)
		}
		return nil, fmt.Errorf("watching for the end of processes: %w", err)
	}
	e := &exits{epoll: fd, closing: closing, over: make(chan struct{}), calls: map[int32]func(){}}
	go e.run()
	return e, nil
}

// close returns when no function is called any more. It closes the descriptors of what it watched.
func (e *exits) close() {
	_, _ = unix.Write(e.closing, binary.NativeEndian.AppendUint64(nil, 1)) // an empty counter takes it
	<-e.over
	e.mu.Lock()
	defer e.mu.Unlock()
	for fd := range e.calls {
		_ = unix.Close(int(fd))
	}
	e.calls = nil
	_ = unix.Close(e.closing)
	_ = unix.Close(e.epoll)
}

// watch calls f when a process has ended, on the goroutine of exits, unless that is closed before.
func (e *exits) watch(p processID, f func()) {
	fd, err := unix.PidfdOpen(p.ID, unix.PIDFD_NONBLOCK)
	if err != nil || !p.exists() {
		if err == nil {
			_ = unix.Close(fd)
		}
		go f()
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.calls == nil {
		_ = unix.Close(fd)
		return
	}
	e.calls[int32(fd)] = f
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(fd)}
	if err := unix.EpollCtl(e.epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		go e.end(int32(fd))
	}
}

func (e *exits) run() {
	defer close(e.over)
	events := make([]unix.EpollEvent, 64)
	for {
		n, err := unix.EpollWait(e.epoll, events, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			return
		}
		for _, event := range events[:n] {
			if event.Fd == int32(e.closing) {
				return
			}
			e.end(event.Fd)
		}
	}
}

// end calls the function of a process once.
func (e *exits) end(fd int32) {
	e.mu.Lock()
	f := e.calls[fd]
	delete(e.calls, fd)
	e.mu.Unlock()
	if f != nil {
		_ = unix.Close(int(fd))
		f()
	}
}
