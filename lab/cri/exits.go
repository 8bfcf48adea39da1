package cri

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// exits waits on one thread for the end of many processes, which need not be children.
type exits struct {
	epoll int
	mu    sync.Mutex
	calls map[int32]func()
}

func watchExits() (*exits, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watching for the end of processes: %w", err)
	}
	e := &exits{epoll: fd, calls: map[int32]func(){}}
	go e.run()
	return e, nil
}

func (e *exits) close() { _ = unix.Close(e.epoll) }

// watch calls f when a process has ended, on the goroutine of exits.
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
	e.calls[int32(fd)] = f
	e.mu.Unlock()
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(fd)}
	if err := unix.EpollCtl(e.epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		go e.end(int32(fd))
	}
}

func (e *exits) run() {
	events := make([]unix.EpollEvent, 64)
	for {
		n, err := unix.EpollWait(e.epoll, events, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			return
		}
		for _, event := range events[:n] {
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
