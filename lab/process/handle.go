package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// handle is a descriptor of a process. Its signals never reach a later process with the same
// number.
type handle struct {
	pid  int
	file *os.File
}

// openHandle opens a handle on the process with a number. It calls isWanted when the handle is
// open, and returns nil if that is false or the process has ended.
func openHandle(pid int, isWanted func() bool) (*handle, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("opening process %d: %w; this needs Linux 5.10", pid, err)
	}
	h := &handle{pid: pid, file: os.NewFile(uintptr(fd), fmt.Sprintf("process %d", pid))}
	if !isWanted() {
		h.close()
		return nil, nil
	}
	return h, nil
}

// AwaitEnd waits until the process with a number has ended. It calls isWanted when another process
// can no longer get the number, and does not wait if that is false.
func AwaitEnd(ctx context.Context, pid int, isWanted func() bool) error {
	h, err := openHandle(pid, isWanted)
	if err != nil || h == nil {
		return err
	}
	defer h.close()
	return h.wait(ctx)
}

func (h *handle) close() { _ = h.file.Close() }

// signal sends a signal. It returns nil if the process has ended.
func (h *handle) signal(signal unix.Signal) error {
	raw, err := h.file.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := raw.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), signal, nil, 0) }); err != nil {
		return err
	}
	if sent != nil && !errors.Is(sent, unix.ESRCH) {
		return fmt.Errorf("sending %s to process %d: %w", unix.SignalName(signal), h.pid, sent)
	}
	return nil
}

// wait waits until the process ends: then its descriptor becomes readable.
func (h *handle) wait(ctx context.Context) error {
	raw, err := h.file.SyscallConn()
	if err != nil {
		return err
	}
	// A deadline in the past interrupts the read.
	defer context.AfterFunc(ctx, func() { _ = h.file.SetReadDeadline(time.Unix(1, 0)) })()
	var polled error
	err = raw.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		ready, err := unix.Poll(fds, 0)
		if err != nil && !errors.Is(err, unix.EINTR) {
			polled = err
			return true
		}
		return ready > 0
	})
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(err, polled)
}

// terminate sends SIGTERM, and kills the process after the grace period or when the context ends.
func (h *handle) terminate(ctx context.Context, grace time.Duration) error {
	if grace > 0 {
		if err := h.signal(unix.SIGTERM); err != nil {
			return err
		}
		graceful, cancel := context.WithTimeout(ctx, grace)
		err := h.wait(graceful)
		cancel()
		if err == nil {
			return nil
		}
	}
	if err := h.signal(unix.SIGKILL); err != nil {
		return err
	}
	// The end of the context must not interrupt this.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), killWait)
	defer cancel()
	_ = h.file.SetReadDeadline(time.Time{})
	if err := h.wait(last); err != nil {
		return fmt.Errorf("process %d was killed and has not ended after %s: it waits for the kernel", h.pid, killWait)
	}
	return nil
}
