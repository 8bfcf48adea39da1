package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

var (
	front = netip.MustParseAddrPort("10.96.0.9:80")
	node  = netip.MustParseAddr("192.0.2.1")
	quick = Pace{Every: 10 * time.Millisecond, Again: time.Millisecond, Retry: 2 * time.Millisecond, Tries: 3, Timeout: time.Second, Fresh: time.Hour}
)

// network stands for that of a node: listeners are at the loopback address, under another
// name.
type network struct {
	t *testing.T
	// leads is the target of connections to the front.
	leads atomic.Pointer[func(ctx context.Context) (net.Conn, error)]
	// closed means that the node does not reach its own address.
	closed atomic.Bool
	// stranded means that the node has no route to the front.
	stranded atomic.Bool
	where    atomic.Pointer[string] // of the listener
}

func (n *network) listen(at netip.AddrPort) (net.Listener, error) {
	if at.Addr() != node {
		return nil, syscall.EADDRNOTAVAIL
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	where := l.Addr().String()
	n.where.Store(&where)
	return named{l, net.TCPAddrFromAddrPort(netip.AddrPortFrom(node, l.Addr().(*net.TCPAddr).AddrPort().Port()))}, nil
}

// named is a listener that returns another address.
type named struct {
	net.Listener
	at net.Addr
}

func (l named) Addr() net.Addr { return l.at }

func (n *network) dial(ctx context.Context, from netip.Addr, to netip.AddrPort) (net.Conn, error) {
	switch {
	case from != node:
		n.t.Errorf("connecting from %s", from)
		return nil, errors.New("from a strange address")
	case to == front:
		return (*n.leads.Load())(ctx)
	case n.closed.Load():
		return nil, syscall.ECONNREFUSED
	}
	return n.own(ctx)
}

// own connects to the listener.
func (n *network) own(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", *n.where.Load())
}

func (n *network) lead(to func(ctx context.Context) (net.Conn, error)) { n.leads.Store(&to) }

func refuse(context.Context) (net.Conn, error) {
	return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
}

func unreachable(context.Context) (net.Conn, error) {
	return nil, &net.OpError{Op: "dial", Err: syscall.ENETUNREACH}
}

// prober returns a Prober that runs until the test ends.
func (n *network) prober(pace Pace, changed, unserved func()) *Prober {
	p := New(Options{
		Node: "node-a", Port: DefaultPort, Pace: pace, Listen: n.listen, Dial: n.dial, Routed: func(netip.Addr, netip.Addr) bool { return !n.stranded.Load() },
		Changed: changed, Unserved: unserved, Tried: func(ruleset.Family, error) {},
	})
	ctx, cancel := context.WithCancel(n.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.Run(ctx)
	}()
	n.t.Cleanup(func() {
		cancel()
		<-ended
	})
	return p
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("this does not happen: %s", what)
		}
	}
}

func (p *Prober) outcome() State { return p.States()[ruleset.IPv4] }

func TestProber(t *testing.T) {
	n := &network{t: t}
	n.lead(n.own)
	p := n.prober(quick, func() {}, func() {})
	if v := p.Verdict(time.Now()); v != (Verdict{Holds: true, Recent: true}) {
		t.Errorf("without targets: %+v", v)
	}
	at := p.Serve(ruleset.IPv4, []netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.9"), node})
	if at.Addr() != node || at.Port() == 0 {
		t.Fatalf("it answers at %s", at)
	}
	if again := p.Serve(ruleset.IPv4, []netip.Addr{netip.MustParseAddr("192.0.2.9"), node}); again != at {
		t.Errorf("it answers the second probe at %s, the first at %s", again, at)
	}
	aim := func(endpoint netip.AddrPort) {
		p.Aim([]Target{{Family: ruleset.IPv4, Front: front, Endpoint: endpoint}})
	}
	aim(at)
	eventually(t, "a probe passes", func() bool { return p.outcome().Outcome == Passed })
	first := p.outcome().Proven
	eventually(t, "another one passes", func() bool { return p.outcome().Proven.After(first) })

	stranger := func(answer string) func(context.Context) (net.Conn, error) {
		return func(context.Context) (net.Conn, error) {
			here, there := net.Pipe()
			go func() {
				_, _ = there.Read(make([]byte, 1<<10))
				_, _ = io.WriteString(there, answer)
				_ = there.Close()
			}()
			return here, nil
		}
	}
	for _, step := range []struct {
		name   string
		leads  func(context.Context) (net.Conn, error)
		closed bool
		reason string
		is     Outcome
	}{
		{"refused", refuse, false, "a connection of the node to 10.96.0.9:80 does not end at vicinity-proxy, where its rules lead it: connection refused", Failed},
		{"an answer of another server", stranger("HTTP/1.1 404 Not Found\r\n\r\n"), false, "something else answers", Failed},
		{"a connection that says nothing", stranger(""), false, "something else answers", Failed},
		{"that of the proxy of another node", stranger("vicinity-proxy on node node-a, process ABCDEFGHIJ\n"), false, "something else answers", Failed},
		{"no answer", func(context.Context) (net.Conn, error) { return nil, context.DeadlineExceeded }, false, "there is no answer", Failed},
		{"what a socket load balancer says of a Service without endpoints", func(context.Context) (net.Conn, error) { return nil, syscall.EHOSTUNREACH }, false, "no route to host", Failed},
		{"its own address is closed", refuse, true, "the node cannot reach its own address 192.0.2.1:", Failed},
		{"no route from where something else leads", unreachable, false, "does not end at vicinity-proxy, where its rules lead it: network is unreachable", Failed},
		{"no route", unreachable, false, "the node has no route to 10.96.0.9", Impossible},
	} {
		n.closed.Store(step.closed)
		n.stranded.Store(step.is == Impossible)
		n.lead(step.leads)
		eventually(t, step.name+" is noticed", func() bool {
			s := p.outcome()
			return s.Outcome == step.is && strings.Contains(s.Reason, step.reason)
		})
		if v := p.Verdict(time.Now()); v.Holds != (step.is == Impossible) {
			t.Errorf("%s: %+v", step.name, v)
		}
		n.closed.Store(false)
		n.lead(n.own)
		eventually(t, step.name+" is over", func() bool { return p.Verdict(time.Now()) == Verdict{Holds: true, Recent: true} })
	}
	// A passed probe of another address does not count for this one.
	n.lead(refuse)
	p.Aim([]Target{{Family: ruleset.IPv4, Front: front, Endpoint: netip.AddrPortFrom(node, 1)}})
	if v := p.Verdict(time.Now()); v.Holds {
		t.Errorf("with rules that lead elsewhere: %+v", v)
	}
	p.Aim(nil)
	if v := p.Verdict(time.Now()); !v.Holds {
		t.Errorf("after the last target: %+v", v)
	}
}

// Before the kernel has the rules, nothing is probed, and the outcome is pending.
func TestNothingIsProbedWithoutRules(t *testing.T) {
	n := &network{t: t}
	n.lead(n.own)
	tried := 0
	p := New(Options{
		Node: "node-a", Pace: DefaultPace, Listen: n.listen, Dial: n.dial,
		Changed: func() {}, Unserved: func() {}, Tried: func(ruleset.Family, error) { tried++ },
	})
	t.Cleanup(p.close)
	at := p.Serve(ruleset.IPv4, []netip.Addr{node})
	for _, endpoint := range []netip.AddrPort{{}, netip.AddrPortFrom(node, 1)} {
		p.Aim([]Target{{Family: ruleset.IPv4, Front: front, Endpoint: endpoint}})
		p.Ask()
		p.round(t.Context())
		if v := p.Verdict(time.Now()); tried != 0 || v != (Verdict{Due: true}) {
			t.Errorf("%d probes while the rules lead to %s: %+v", tried, endpoint, v)
		}
	}
	p.Aim([]Target{{Family: ruleset.IPv4, Front: front, Endpoint: at}})
	p.round(t.Context())
	if v := p.Verdict(time.Now()); tried != 1 || !v.Holds {
		t.Errorf("%d probes when they lead here: %+v", tried, v)
	}
}

// A listener that fails, for example for lack of memory, is replaced.
func TestBrokenListenersAreReplaced(t *testing.T) {
	n := &network{t: t}
	unserved := make(chan struct{}, 1)
	opened := 0
	p := New(Options{
		Listen: func(at netip.AddrPort) (net.Listener, error) {
			l, err := n.listen(at)
			if opened++; err == nil && opened == 1 {
				err = l.(named).Close() // so that Accept fails
			}
			return l, err
		},
		Unserved: func() { unserved <- struct{}{} },
	})
	t.Cleanup(p.close)
	addresses := []netip.Addr{node}
	p.Serve(ruleset.IPv4, addresses)
	<-unserved
	p.Serve(ruleset.IPv4, addresses)
	if opened != 2 {
		t.Errorf("it listens %d times", opened)
	}
}

// Pods ask by HTTP, and read the name of their node. Silent connections block no answer.
func TestAnswers(t *testing.T) {
	const line = "vicinity-proxy on node node-a\n"
	l, err := newListener(listenTCP, []netip.Addr{netip.MustParseAddr("127.0.0.1")}, 0, line)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- l.serve() }()
	t.Cleanup(func() {
		l.close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	for range 10 * mostConnections {
		conn, err := net.Dial("tcp", l.at.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	for range 20 {
		response, err := http.Get(fmt.Sprintf("http://%s/", l.at))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || string(body) != line {
			t.Errorf("a request is answered %q, %v", body, err)
		}
	}
}
