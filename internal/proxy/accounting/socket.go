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

// conntrack is the connection tracking of the network namespace in which the process
// runs.
type conntrack struct {
	// folder has its switches.
	folder string
}

// longestReport is more than the kernel writes about a connection. gather is how long reports may
// gather once all are read, with the default buffer: a wake-up for each costs more than to read it.
const (
	longestReport = 4 << 10
	gather        = 100 * time.Millisecond
)

// ends are the reports of connections that have ended.
type ends struct {
	file   *os.File
	gather time.Duration
	// all says that all were read that there were.
	all bool
}

// listen asks for reports of connections that end. The filter is set before the membership, so that
// nothing slips through.
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

// gatheredIn scales gather to the buffer that the kernel gave, which is twice what was asked for.
func gatheredIn(given int) time.Duration {
	const usual = 2 * reportBuffer
	return gather * time.Duration(min(given, usual)) / usual
}

// findAttribute is where a filter reads, as if it were of the packet, the place of the
// attribute X at or after A (SKF_AD_OFF + SKF_AD_NLATTR).
const findAttribute = 0xfffff000 + 12

// translatedOnly passes messages about translated connections, since most on a busy node are not to
// Services.
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

// receive waits for reports, and reads as many as there are and fit in.
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

// receiveMore reads more of them behind the first bytes, without waiting.
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
		return n, os.ErrClosed // which is all that can be wrong
	}
	return n, failure
}

func (e *ends) close() error { return e.file.Close() }

// read passes the table of connections on in parts, and returns the CPU time of that and of their
// use.
func (conntrack) read(ctx context.Context, use func(part []byte)) (used time.Duration, err error) {
	// Time is that of the thread, in which the kernel does its part of the work too.
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

// readTable asks for all translated connections. Old kernels ignore that, and return all.
func readTable(ctx context.Context, use func(part []byte)) error {
	socket, err := netlink.Dial()
	if err != nil {
		return err
	}
	err = socket.List(tableRequest(), func(part []byte) bool {
		if ctx.Err() != nil {
			return false
		}
		use(part)
		return true
	})
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
