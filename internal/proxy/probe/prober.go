package probe

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// DefaultPort is the preferred port for answers. With the same port, the rules of the next process stay the same.
const DefaultPort = 10268

// Options configure a Prober.
type Options struct {
	// Node is the name of the node for the answers.
	Node string
	// Port is the preferred port for answers, 0 for any. If it is taken, another one is used.
	Port uint16
	Pace Pace
	// Changed is called after a new outcome and after a requested probe, by any goroutine.
	Changed func()
	// Unserved is called when a probed family has no listener, so that the caller retries Serve.
	Unserved func()
	// Tried is called after each probe.
	Tried func(family ruleset.Family, failure error)
	// Listen, Dial and Routed replace the functions of the node's network. Routed reports whether there is a route.
	Listen func(at netip.AddrPort) (net.Listener, error)
	Dial   func(ctx context.Context, from netip.Addr, to netip.AddrPort) (net.Conn, error)
	Routed func(from, to netip.Addr) bool
}

// Prober probes a node periodically.
type Prober struct {
	options Options
	nonce   string
	wake    chan struct{}

	mu       sync.Mutex
	families map[ruleset.Family]*probed
	// requested means that a probe is requested.
	requested bool
}

type probed struct {
	listener *listener
	// unserved is why there is no listener.
	unserved error
	target   Target
	state    State
}

// New returns a Prober that answers after Serve, and probes while it runs.
func New(o Options) *Prober {
	if o.Listen == nil {
		o.Listen = listenTCP
	}
	if o.Dial == nil {
		o.Dial = dialTCP
	}
	if o.Routed == nil {
		o.Routed = hasRoute
	}
	return &Prober{
		options: o, nonce: rand.Text(), wake: make(chan struct{}, 1),
		families: map[ruleset.Family]*probed{ruleset.IPv4: {}, ruleset.IPv6: {}},
	}
}

func dialTCP(ctx context.Context, from netip.Addr, to netip.AddrPort) (net.Conn, error) {
	// The route may have another source address, for example on an interface with all cluster IPs.
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
	return d.DialContext(ctx, "tcp", to.String())
}

// hasRoute reports whether the node has a route. Connecting a UDP socket looks up the route and sends nothing, so no rule
// translates the address.
func hasRoute(from, to netip.Addr) bool {
	const discard = 9 // any port that no Service has
	d := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
	conn, err := d.Dial("udp", netip.AddrPortFrom(to, discard).String())
	if err == nil {
		_ = conn.Close()
	}
	return !errors.Is(err, syscall.ENETUNREACH)
}

// Serve starts to answer at one of the node's addresses, and returns the address and port. It keeps the current ones if
// possible. The result is invalid if it cannot answer.
func (p *Prober) Serve(family ruleset.Family, addresses []netip.Addr) netip.AddrPort {
	candidates := slices.DeleteFunc(slices.Clone(addresses), func(a netip.Addr) bool {
		return a.Is4() != (family == ruleset.IPv4) || a.IsLoopback() || a.IsLinkLocalUnicast()
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.families[family]
	if f.listener != nil {
		if slices.Contains(candidates, f.listener.at.Addr()) {
			return f.listener.at
		}
		f.listener.close()
	}
	line := fmt.Sprintf("vicinity-proxy on node %s, process %s\n", p.options.Node, p.nonce)
	f.listener, f.unserved = newListener(p.options.Listen, candidates, p.options.Port, line)
	if f.unserved != nil {
		return netip.AddrPort{}
	}
	go p.answer(f, f.listener)
	return f.listener.at
}

// answer answers until a listener is closed. If the listener fails, answer calls Unserved.
func (p *Prober) answer(f *probed, l *listener) {
	err := l.serve()
	if err == nil {
		return
	}
	p.mu.Lock()
	isCurrent := f.listener == l
	if isCurrent {
		f.listener, f.unserved = nil, err
	}
	p.mu.Unlock()
	if isCurrent {
		p.options.Unserved()
	}
}

// Aim replaces all targets.
func (p *Prober) Aim(targets []Target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for family, f := range p.families {
		var target Target
		if i := slices.IndexFunc(targets, func(t Target) bool { return t.Family == family }); i >= 0 {
			target = targets[i]
		}
		if target != f.target {
			f.target, f.state = target, State{}
			p.wakeRun()
		}
	}
}

// Ask requests a probe now. Earlier probes are no longer recent.
func (p *Prober) Ask() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.requested {
		return
	}
	p.requested = true
	for _, f := range p.families {
		f.state.next = time.Time{}
	}
	p.wakeRun()
}

func (p *Prober) wakeRun() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// States returns the states of the probed families.
func (p *Prober) States() map[ruleset.Family]State {
	p.mu.Lock()
	defer p.mu.Unlock()
	states := make(map[ruleset.Family]State, len(p.families))
	for family, f := range p.families {
		if f.target.Front.IsValid() {
			states[family] = f.state
		}
	}
	return states
}

// Verdict returns the verdict at a time.
func (p *Prober) Verdict(now time.Time) Verdict {
	return verdict(p.States(), now, p.options.Pace.Fresh)
}

// Run probes until the context ends, and then stops answering.
func (p *Prober) Run(ctx context.Context) {
	defer p.close()
	for ctx.Err() == nil {
		timer := time.NewTimer(p.round(ctx))
		select {
		case <-ctx.Done():
		case <-p.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (p *Prober) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.families {
		if f.listener != nil {
			f.listener.close()
		}
	}
}

// round runs the due probes, and returns the time until the next round.
func (p *Prober) round(ctx context.Context) time.Duration {
	p.mu.Lock()
	requested := p.requested
	p.requested = false
	p.mu.Unlock()
	wait, changed := p.options.Pace.Every, requested
	for _, family := range ruleset.Families {
		if p.due(family) {
			changed = p.probe(ctx, family) || changed
		}
		p.mu.Lock()
		if f := p.families[family]; f.canProbe() {
			wait = min(wait, max(0, time.Until(f.state.next)))
		}
		p.mu.Unlock()
	}
	if changed && ctx.Err() == nil {
		p.options.Changed()
	}
	return wait
}

// canProbe reports whether a probe makes sense: the rules lead here, or there is no listener to report.
func (f *probed) canProbe() bool {
	return f.target.Front.IsValid() && (f.listener == nil || f.target.Endpoint == f.listener.at)
}

func (p *Prober) due(family ruleset.Family) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.families[family]
	return f.canProbe() && !time.Now().Before(f.state.next)
}

// probe probes a family, and reports whether the outcome has changed.
func (p *Prober) probe(ctx context.Context, family ruleset.Family) (changed bool) {
	p.mu.Lock()
	f := p.families[family]
	target, unserved := f.target, f.unserved
	p.mu.Unlock()
	began := time.Now()
	var failure error
	if target.Endpoint.IsValid() {
		failure = p.connect(ctx, target)
	} else {
		failure = impossibleError{fmt.Sprintf("vicinity-proxy cannot listen at an IPv%d address of the node: %v", family, unserved)}
		p.options.Unserved()
	}
	if ctx.Err() != nil {
		return false
	}
	p.options.Tried(family, failure)
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.target != target {
		return false // the target has changed meanwhile
	}
	before := f.state
	f.state.take(failure, began, time.Now(), p.options.Pace)
	if p.requested {
		f.state.next = time.Time{} // the request came during this probe
	}
	return f.state.Outcome != before.Outcome || f.state.Reason != before.Reason
}

// connect connects to a front, and checks that this process answers.
func (p *Prober) connect(ctx context.Context, target Target) error {
	failure := p.ask(ctx, target.Endpoint.Addr(), target.Front)
	switch {
	case failure == nil:
		return nil
	case errors.Is(failure, syscall.ENETUNREACH) && !p.options.Routed(target.Endpoint.Addr(), target.Front.Addr()):
		// With a route, the error means that another program has translated the address.
		return impossibleError{fmt.Sprintf("the node has no route to %s", target.Front.Addr())}
	}
	if p.ask(ctx, target.Endpoint.Addr(), target.Endpoint) != nil {
		return fmt.Errorf("the node cannot reach its own address %s, where vicinity-proxy listens: a packet filter of the node may drop the packets", target.Endpoint)
	}
	return fmt.Errorf("a connection of the node to %s does not end at vicinity-proxy, where its rules lead it: %s", target.Front, reasonOf(failure))
}

var errOtherAnswer = errors.New("something else answers")

func (p *Prober) ask(ctx context.Context, from netip.Addr, to netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(ctx, p.options.Pace.Timeout)
	defer cancel()
	conn, err := p.options.Dial(ctx, from, to)
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, limited := ctx.Deadline(); limited {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	// An answer may come even if the request fails.
	_, _ = io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n")
	const most = 1 << 10
	answer, err := io.ReadAll(io.LimitReader(conn, most))
	if strings.Contains(string(answer), p.nonce) {
		return nil
	}
	if err == nil || len(answer) > 0 {
		return errOtherAnswer
	}
	return err
}

// reasonOf returns the same text for equal failures.
func reasonOf(err error) string {
	var errno syscall.Errno
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "there is no answer"
	case errors.As(err, &errno):
		return errno.Error()
	}
	return err.Error()
}
