package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

type client struct {
	job
	dial     DialFunc
	recorder *recorder
	enough   <-chan struct{} // as in Watch
	name     string          // prefix of the ids of its requests
}

// run sends until the plan is done, enough is closed or the context ends. When it returns, everything
// is recorded.
func (c *client) run(ctx context.Context) {
	var requests sync.WaitGroup
	defer requests.Wait()
	slots := make(chan struct{}, c.Plan.Concurrency)
	pace := newPacer(c.job)
	start := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-c.enough:
			return
		case <-ctx.Done():
			return
		default:
		}
		n := pace.next
		now := time.Now()
		action, by := pace.step(now.Sub(start))
		switch action {
		case finish:
			return
		case wait:
			timer.Reset(by)
			select {
			case <-timer.C:
			case <-c.enough:
				return
			case <-ctx.Done():
			}
		case skip:
			c.recorder.update(now, func(r *Result) { r.Due++; r.Unsent.Late++ })
		case send:
			select {
			case slots <- struct{}{}:
			default:
				if !c.Plan.Patient {
					c.recorder.update(now, func(r *Result) { r.Due++; r.Unsent.Busy++ })
					continue
				}
				select {
				case slots <- struct{}{}:
				case <-c.enough:
					return
				case <-ctx.Done():
					return
				}
			}
			c.recorder.update(now, func(r *Result) { r.Due++ })
			requests.Go(func() {
				defer func() { <-slots }()
				c.request(ctx, n)
			})
		}
	}
}

func (c *client) request(ctx context.Context, n int64) {
	began := time.Now()
	limited, cancel := context.WithDeadline(ctx, began.Add(c.Plan.Timeout))
	defer cancel()

	// Sources start at different targets.
	target := c.Plan.Targets[(n+int64(c.Index))%int64(len(c.Plan.Targets))]
	failure := Failure{From: c.Place, Target: target.String()}
	fail := func(err error) {
		if isStopped(ctx) {
			c.recorder.update(time.Now(), func(r *Result) { r.Abandoned++ })
			return
		}
		failure.Time, failure.Kind, failure.Error = time.Now(), kindOf(err), err.Error()
		failure.After = failure.Time.Sub(began)
		c.recorder.failed(failure)
	}

	conn, err := c.connect(limited, target)
	if err != nil {
		if !isStopped(ctx) && isLocal(err) {
			c.recorder.update(time.Now(), func(r *Result) { r.Unsent.Local++ })
			return
		}
		fail(err)
		return
	}
	failure.Local = conn.LocalAddr().String()
	// When ctx ends, a deadline in the past interrupts reading and writing. If setting it
	// fails, the request's own deadline still applies.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(began) })
	answer, err := conn.exchange(c.Plan.Protocol, fmt.Sprintf("%s-%d", c.name, n))
	now := time.Now()
	running := stop()
	if err == nil && c.Plan.Service != "" && !answer.serves(c.Plan.Service) {
		err = &answerError{WrongService, fmt.Sprintf("the answer is from Service %s/%s, not from %s",
			answer.Namespace, answer.Service, c.Plan.Service)}
	}
	if err != nil {
		if answer.Pod != "" {
			failure.To = &answer.Endpoint
		}
		_ = conn.Close() // the failure matters more
		fail(err)
		return
	}
	took := now.Sub(began)
	c.recorder.answered(now, c.Place, answer.Endpoint, took)
	if took > c.Plan.Timeout/2 && !conn.retransmitted && hasRetransmitted(conn.Conn) {
		c.recorder.update(now, func(r *Result) { r.Resent++ })
	}
	conn.finish(running && c.Plan.Protocol != UDP)
}

// isStopped reports whether the run was stopped. It also compares the deadline with the time,
// since a connection can notice the deadline of ctx before ctx does.
func isStopped(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// connect opens a connection whose deadline is that of the context.
func (c *client) connect(ctx context.Context, target netip.AddrPort) (*connection, error) {
	network := "tcp"
	if c.Plan.Protocol == UDP {
		network = "udp"
	}
	dialled, err := c.dial(ctx, network, target.String())
	if err != nil {
		return nil, err
	}
	conn := newConnection(dialled, target)
	conn.retransmitted = hasRetransmitted(dialled)
	c.recorder.update(time.Now(), func(r *Result) {
		r.Connections++
		if conn.retransmitted {
			r.Resent++
		}
	})
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// hasRetransmitted reports whether TCP sent anything more than once. TCP repeats an unanswered SYN after a
// second.
func hasRetransmitted(conn net.Conn) bool {
	socket, ok := conn.(*net.TCPConn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	return err == nil && countRetransmits(raw) > 0
}

func countRetransmits(raw syscall.RawConn) (number uint32) {
	// If this fails the connection is closed already, and its request reports that.
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			number = info.Total_retrans
		}
	})
	return number
}
