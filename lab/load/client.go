package load

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

type client struct {
	dial     DialFunc
	recorder *recorder
	enough   <-chan struct{} // as in Watch
}

type session struct {
	client
	job
	name string // prefix of the ids of its requests
	mu   sync.Mutex
	idle []*connection // the last used one is at the end
}

// run sends until the plan is done, enough is closed or the context ends. When it returns, everything
// is recorded.
func (c *client) run(ctx context.Context, j job) {
	s := &session{client: *c, job: j, name: rand.Text()[:8]}
	defer s.closeIdle()

	var requests sync.WaitGroup
	defer requests.Wait()
	slots := make(chan struct{}, j.Plan.Concurrency)
	pace := newPacer(j)
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
			s.recorder.update(now, func(r *Result) { r.Due++; r.Unsent.Late++ })
		case send:
			select {
			case slots <- struct{}{}:
			default:
				if !j.Plan.Patient {
					s.recorder.update(now, func(r *Result) { r.Due++; r.Unsent.Busy++ })
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
			s.recorder.update(now, func(r *Result) { r.Due++ })
			requests.Go(func() {
				defer func() { <-slots }()
				s.request(ctx, n)
			})
		}
	}
}

func (s *session) request(ctx context.Context, n int64) {
	began := time.Now()
	limited, cancel := context.WithDeadline(ctx, began.Add(s.Plan.Timeout))
	defer cancel()

	// Sources start at different targets.
	target := s.Plan.Targets[(n+int64(s.Index))%int64(len(s.Plan.Targets))]
	failure := Failure{From: s.Place, Target: target.String()}
	fail := func(err error) {
		if isStopped(ctx) {
			s.recorder.update(time.Now(), func(r *Result) { r.Abandoned++ })
			return
		}
		failure.Time, failure.Kind, failure.Error = time.Now(), kindOf(err), err.Error()
		failure.After = failure.Time.Sub(began)
		s.recorder.failed(failure)
	}

	conn, err := s.connection(limited, target)
	if conn == nil {
		if !isStopped(ctx) && isLocal(err) {
			s.recorder.update(time.Now(), func(r *Result) { r.Unsent.Local++ })
			return
		}
		fail(err)
		return
	}
	failure.Local, failure.To = conn.LocalAddr().String(), conn.peer
	if err != nil {
		_ = conn.Close() // already broken
		fail(err)
		return
	}
	// When ctx ends, a deadline in the past interrupts reading and writing. If setting it
	// fails, the request's own deadline still applies.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(began) })
	r := request{protocol: s.Plan.Protocol, id: fmt.Sprintf("%s-%d", s.name, n), last: !s.Plan.KeepAlive}
	answer, reusable, err := conn.exchange(r)
	now := time.Now()
	running := stop()
	if err == nil && s.Plan.Service != "" && !answer.serves(s.Plan.Service) {
		err = &answerError{WrongService, fmt.Sprintf("the answer is from Service %s/%s, not from %s",
			answer.Namespace, answer.Service, s.Plan.Service)}
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
	s.recorder.answered(now, s.Place, answer.Endpoint, took)
	if took > s.Plan.Timeout/2 && !conn.retransmitted && hasRetransmitted(conn.Conn) {
		s.recorder.update(now, func(r *Result) { r.Resent++ })
	}
	if reusable && running {
		s.putIdle(conn)
	} else {
		conn.finish(running && s.Plan.Protocol != UDP)
	}
}

// isStopped reports whether the run was stopped. It also compares the deadline with the time,
// since a connection can notice the deadline of ctx before ctx does.
func isStopped(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// connection takes an idle connection or opens one. If it returns both a connection and an error,
// the connection was idle and is broken.
func (s *session) connection(ctx context.Context, target netip.AddrPort) (*connection, error) {
	deadline, _ := ctx.Deadline()
	for {
		conn := s.takeIdle(target)
		if conn == nil {
			break
		}
		err := conn.checkIdle()
		if err == nil {
			err = conn.SetDeadline(deadline)
		}
		if !errors.Is(err, io.EOF) {
			return conn, err
		}
		_ = conn.Close() // the other side has closed it
		s.recorder.update(time.Now(), func(r *Result) { r.Replaced++ })
	}
	network := "tcp"
	if s.Plan.Protocol == UDP {
		network = "udp"
	}
	dialled, err := s.dial(ctx, network, target.String())
	if err != nil {
		return nil, err
	}
	conn := newConnection(dialled, target)
	conn.retransmitted = hasRetransmitted(dialled)
	s.recorder.update(time.Now(), func(r *Result) {
		r.Connections++
		if conn.retransmitted {
			r.Resent++
		}
	})
	return conn, conn.SetDeadline(deadline)
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

// takeIdle takes the most recently used idle connection to a target.
func (s *session) takeIdle(target netip.AddrPort) *connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.idle) - 1; i >= 0; i-- {
		if conn := s.idle[i]; conn.target == target {
			s.idle = append(s.idle[:i], s.idle[i+1:]...)
			return conn
		}
	}
	return nil
}

func (s *session) putIdle(conn *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = append(s.idle, conn)
}

func (s *session) closeIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.idle {
		_ = conn.Close() // no more answers are expected
	}
}
