package accounting

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/netlink"
)

// conntrack is the connection tracking of the process's network namespace.
type conntrack struct {
	// folder has the kernel's network settings.
	folder string
}

// longestReport is larger than any report. gather is the pause in which reports gather, with the default buffer: a wake-up
// costs more than reading a report.
const (
	longestReport = 4 << 10
	gather        = 100 * time.Millisecond
)

// ends receives reports of ended connections.
type ends struct {
	file   *os.File
	gather time.Duration
	// all means that all waiting reports were read.
	all bool
}

// listen subscribes to reports of ended connections. The filter comes before the subscription, so that it applies to all
// reports.
func (conntrack) listen() (reports, error) {
	socket, err := netlink.Dial()
	if err != nil {
		return nil, err
	}
	fail := func(err error) (reports, error) {
		return nil, errors.Join(fmt.Errorf("listening to connection tracking: %w", err), socket.Close())
	}
	if err := socket.SetReceiveBuffer(reportBuffer); err != nil {
		return fail(err)
	}
	if err := socket.Filter(translatedOnly); err != nil {
		return fail(err)
	}
	if err := socket.Join(unix.NFNLGRP_CONNTRACK_DESTROY); err != nil {
		return fail(err)
	}
	given, err := socket.Given()
	if err != nil {
		return fail(err)
	}
	file, err := socket.File()
	if err != nil {
		return fail(err)
	}
	return &ends{file: file, gather: gatheredIn(given)}, nil
}

// gatheredIn scales gather to the buffer that the kernel allowed. The kernel doubles the requested size.
func gatheredIn(given int) time.Duration {
	const usual = 2 * reportBuffer
	return gather * time.Duration(min(given, usual)) / usual
}

// findAttribute is the offset at which a filter reads the position of the attribute X at or after A (SKF_AD_OFF +
// SKF_AD_NLATTR).
const findAttribute = 0xfffff000 + 12

// translatedOnly passes only messages about translated connections: most connections of a busy node are not to Services.
var translatedOnly = []unix.SockFilter{
	{Code: unix.BPF_LD | unix.BPF_IMM, K: unix.SizeofNlMsghdr + netlink.HeaderLength},
	{Code: unix.BPF_LDX | unix.BPF_IMM, K: netlink.TrackStatus},
	{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: findAttribute},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: 0, Jt: 4}, // there is none
	{Code: unix.BPF_MISC | unix.BPF_TAX},
	{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_IND, K: unix.SizeofNlAttr},
	{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: netlink.StatusTranslated, Jf: 1},
	{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff},
	{Code: unix.BPF_RET | unix.BPF_K, K: 0},
}

// receive waits for reports, and reads as many as fit.
func (e *ends) receive(into []byte) (n int, err error) {
	if e.all {
		time.Sleep(e.gather)
	}
	n, err = e.file.Read(into)
	if err == nil {
		n, err = e.receiveMore(into, n)
	}
	switch {
	case errors.Is(err, unix.ENOBUFS):
		return n, errLost
	case err != nil:
		return n, fmt.Errorf("reading reports of connection tracking: %w", err)
	}
	return n, nil
}

// receiveMore reads more reports behind the first n bytes, without waiting.
func (e *ends) receiveMore(into []byte, n int) (int, error) {
	connection, err := e.file.SyscallConn()
	if err != nil {
		return n, err
	}
	e.all = false
	var failure error
	err = connection.Control(func(fd uintptr) {
		for len(into)-n >= longestReport && failure == nil {
			var more int
			if more, failure = ignoringInterrupts(func() (int, error) { return unix.Read(int(fd), into[n:]) }); failure == nil {
				n = netlink.Align(n + more)
			}
		}
	})
	if errors.Is(failure, unix.EAGAIN) {
		e.all, failure = true, nil
	}
	if err != nil {
		return n, os.ErrClosed // the only possible cause
	}
	return n, failure
}

func (e *ends) close() error { return e.file.Close() }

// read passes on the connection table, and returns the CPU time of reading and use.
func (conntrack) read(ctx context.Context, use func(content []byte)) (used time.Duration, err error) {
	// The thread's CPU time includes the kernel's work.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began, err := threadTime()
	if err != nil {
		return 0, err
	}
	if err = readTable(ctx, use); err != nil {
		err = fmt.Errorf("reading the tracked connections: %w", err)
	}
	ended, failed := threadTime()
	return ended - began, errors.Join(err, failed)
}

func threadTime() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0, fmt.Errorf("reading the clock of a thread: %w", err)
	}
	return time.Duration(t.Nano()), nil
}

// readTable requests all translated connections. Old kernels return all connections. The table may change meanwhile.
func readTable(ctx context.Context, use func(content []byte)) error {
	socket, err := netlink.Dial()
	if err != nil {
		return err
	}
	err = socket.Ask(tableRequest(), func(content []byte) {
		if ctx.Err() == nil {
			use(content)
		}
	})
	if errors.Is(err, netlink.ErrChanged) {
		err = nil
	}
	return errors.Join(err, ctx.Err(), socket.Close())
}

func tableRequest() *netlink.Messages {
	var m netlink.Messages
	m.Begin(netlink.TrackGet, unix.NLM_F_DUMP, unix.AF_UNSPEC, 0)
	m.Number32(netlink.TrackStatus, netlink.StatusTranslated)
	m.Number32(netlink.TrackStatusMask, netlink.StatusTranslated)
	m.End()
	return &m
}

func ignoringInterrupts(read func() (int, error)) (int, error) {
	for {
		if n, err := read(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
