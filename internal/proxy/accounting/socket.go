package accounting

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// readLength is more than the kernel puts into one read of a netlink socket.
const readLength = 64 << 10

// answerTimeout is how long the kernel may take for the next part of its table.
const answerTimeout = 10 * time.Second

// conntrack is the connection tracking of the network namespace in which the process
// runs.
type conntrack struct {
	// folder has its switches.
	folder string
}

// longestReport is more than the kernel writes about a connection, and gather how long
// reports are left to gather when all were read: to be woken up by each of them costs more
// than to read it. It is that long with the default buffer, which has room for what ends
// meanwhile, and as much shorter as the kernel gives less.
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

// listen asks for the reports. What comes faster than it is read has room in a buffer.
func (conntrack) listen(buffer int) (reports, error) {
	fd, err := open(unix.SOCK_NONBLOCK)
	if err != nil {
		return nil, err
	}
	if err := prepare(fd, buffer); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	given, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("asking for the buffer of a netlink socket: %w", err), unix.Close(fd))
	}
	return &ends{file: os.NewFile(uintptr(fd), "netlink"), gather: gatheredIn(given)}, nil
}

// gatheredIn is how long reports may gather in a buffer of so many bytes, as the kernel counts
// them: it gives twice what it is asked for.
func gatheredIn(given int) time.Duration {
	const usual = 2 * DefaultBuffer
	return gather * time.Duration(min(given, usual)) / usual
}

// open makes a netlink socket.
func open(flags int) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|flags, unix.NETLINK_NETFILTER)
	if err != nil {
		return -1, fmt.Errorf("making a netlink socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return -1, errors.Join(fmt.Errorf("binding a netlink socket: %w", err), unix.Close(fd))
	}
	return fd, nil
}

// prepare makes a socket one that gets the reports that are of interest. The filter
// comes before the membership, so that none slips through.
func prepare(fd, buffer int) error {
	// The first is beyond what the system allows everybody, and for root only.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer); err != nil {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, buffer); err != nil {
			return fmt.Errorf("giving a netlink socket a buffer of %d bytes: %w", buffer, err)
		}
	}
	program := unix.SockFprog{Len: uint16(len(translatedOnly)), Filter: &translatedOnly[0]}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program); err != nil {
		return fmt.Errorf("filtering the reports of connection tracking: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, unix.NFNLGRP_CONNTRACK_DESTROY); err != nil {
		return fmt.Errorf("asking for the reports of connection tracking: %w", err)
	}
	return nil
}

// findAttribute is where a filter reads, as if it were of the packet, the place of the
// attribute X at or after A (SKF_AD_OFF + SKF_AD_NLATTR).
const findAttribute = 0xfffff000 + 12

// translatedOnly lets messages pass that have the bit in their status. On a busy node
// most connections are not to a Service, and the kernel then never wakes anybody up.
var translatedOnly = []unix.SockFilter{
	{Code: unix.BPF_LD | unix.BPF_IMM, K: headerLength + preambleLength},
	{Code: unix.BPF_LDX | unix.BPF_IMM, K: attributeStatus},
	{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: findAttribute},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: 0, Jt: 4}, // there is none
	{Code: unix.BPF_MISC | unix.BPF_TAX},
	{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_IND, K: attributeLength},
	{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: statusTranslated, Jf: 1},
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
				n = aligned(n + more)
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

// read hands out the table of connections in parts, each in messages, and says how much
// time of a processor that took, what the parts were used for included.
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

func readTable(ctx context.Context, use func(part []byte)) error {
	fd, err := open(0)
	if err != nil {
		return err
	}
	socket := os.NewFile(uintptr(fd), "netlink")
	defer socket.Close()
	timeout := unix.NsecToTimeval(answerTimeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return err
	}
	if err := unix.Sendto(fd, tableRequest(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	part := make([]byte, readLength)
	for ctx.Err() == nil {
		n, err := ignoringInterrupts(func() (int, error) { return unix.Read(fd, part) })
		if err != nil {
			return err
		}
		last, err := ending(part[:n])
		if err != nil {
			return err
		}
		use(part[:n])
		if last {
			return nil
		}
	}
	return ctx.Err()
}

func ignoringInterrupts(read func() (int, error)) (int, error) {
	for {
		if n, err := read(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// ending looks whether a part is the last, or says that something went wrong.
func ending(part []byte) (last bool, err error) {
	for {
		m, rest, ok := nextMessage(part)
		if !ok {
			return false, nil
		}
		part = rest
		switch m.kind {
		case unix.NLMSG_DONE, unix.NLMSG_ERROR:
			if len(m.payload) < 4 {
				return true, nil
			}
			// It is a negative number of an error, or zero.
			if code := int32(binary.NativeEndian.Uint32(m.payload)); code < 0 {
				return true, unix.Errno(-code)
			}
			return true, nil
		}
	}
}

// tableRequest asks for all connections of both families whose destination was
// translated. Kernels that cannot choose by status give all of them.
func tableRequest() []byte {
	const attributes = 2
	request := make([]byte, 0, headerLength+preambleLength+attributes*(attributeLength+4))
	request = binary.NativeEndian.AppendUint32(request, uint32(cap(request)))
	request = binary.NativeEndian.AppendUint16(request, messageGet)
	request = binary.NativeEndian.AppendUint16(request, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	request = append(request, make([]byte, headerLength-len(request)+preambleLength)...)
	for _, kind := range []uint16{attributeStatus, attributeStatusMask} {
		request = binary.NativeEndian.AppendUint16(request, attributeLength+4)
		request = binary.NativeEndian.AppendUint16(request, kind)
		request = binary.BigEndian.AppendUint32(request, statusTranslated)
	}
	return request
}
