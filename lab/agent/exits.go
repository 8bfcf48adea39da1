package agent

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// exits waits for the end of any number of processes, of which the agent need not be
// the parent, on a single thread.
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

// close ends the watch.
func (e *exits) close() { _ = unix.Close(e.epoll) }

// watch calls f, on the watch's goroutine, when a process ended; at once if it has.
func (e *exits) watch(p process, f func()) {
	fd, err := unix.PidfdOpen(p.ID, unix.PIDFD_NONBLOCK)
	if err != nil || !p.same() {
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
		e.end(int32(fd))
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

// end calls what was to be called for a process, once.
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
