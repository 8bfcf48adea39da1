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

// DefaultPort is where answers are given, if it is free. As long as the port stays, the rules of the next process do.
const DefaultPort = 10268

// Options configure a Prober.
type Options struct {
	// Node is the name of the node, which is in the answers.
	Node string
	// Port is where answers are given, 0 for any. If it is taken, another one is used.
	Port uint16
	Pace Pace
	// Changed is called after a new outcome, and after a probe that was asked for, by any goroutine.
	Changed func()
	// Unserved is called when a family to probe has no listener, so that Serve is tried again.
	Unserved func()
	// Tried is called after each probe.
	Tried func(family ruleset.Family, failure error)
	// Listen, Dial and Routed replace those of the node's network. Routed reports whether there is a route.
	Listen func(at netip.AddrPort) (net.Listener, error)
	Dial   func(ctx context.Context, from netip.Addr, to netip.AddrPort) (net.Conn, error)
	Routed func(from, to netip.Addr) bool
}

// Prober probes a node again and again.
type Prober struct {
	options Options
	nonce   string
	wake    chan struct{}

	mu       sync.Mutex
	families map[ruleset.Family]*probed
	// asked says that somebody waits for a probe.
	asked bool
}

type probed struct {
	listener *listener
	// unserved is why there is no listener.
	unserved error
	target   Target
	state    State
}

// New makes a Prober that answers, and probes once it runs.
func New(o Options) *Prober {
	if o.Listen == nil {
		o.Listen = listenTCP
	}
	if o.Dial == nil {
		o.Dial = dialTCP
	}
	if o.Routed == nil {
		o.Routed = routed
	}
	return &Prober{
		options: o, nonce: rand.Text(), wake: make(chan struct{}, 1),
		families: map[ruleset.Family]*probed{ruleset.IPv4: {}, ruleset.IPv6: {}},
	}
}

func dialTCP(ctx context.Context, from netip.Addr, to netip.AddrPort) (net.Conn, error) {
	// The route may have another source address, such as that of an interface with all addresses of Services.
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
	return d.DialContext(ctx, "tcp", to.String())
}

// routed reports whether the node has a route. To connect a UDP socket looks up the route and
// sends nothing, so that no rule of the packet filter translates the address.
func routed(from, to netip.Addr) bool {
	const discard = 9 // any port that no Service has
	d := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
	conn, err := d.Dial("udp", netip.AddrPortFrom(to, discard).String())
	if err == nil {
		_ = conn.Close()
	}
	return !errors.Is(err, syscall.ENETUNREACH)
}

// Serve answers at one of the node's addresses, and returns where. It stays where it is if it can. The result is
// invalid if it can answer at none.
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

// answer answers until a listener is closed. If it fails before, another one is asked for.
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

// Aim sets what to probe, and nothing else is probed.
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
			p.rouse()
		}
	}
}

// Ask has the next probe come at once. Earlier ones are not recent any more.
func (p *Prober) Ask() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked {
		return
	}
	p.asked = true
	for _, f := range p.families {
		f.state.next = time.Time{}
	}
	p.rouse()
}

func (p *Prober) rouse() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// States are the states of the probed families.
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

// Verdict is the verdict at a time.
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

// round probes what is due, and returns the time until the next round.
func (p *Prober) round(ctx context.Context) time.Duration {
	p.mu.Lock()
	asked := p.asked
	p.asked = false
	p.mu.Unlock()
	wait, changed := p.options.Pace.Every, asked
	for _, family := range []ruleset.Family{ruleset.IPv4, ruleset.IPv6} {
		if p.due(family) {
			changed = p.probe(ctx, family) || changed
		}
		p.mu.Lock()
		if f := p.families[family]; f.probable() {
			wait = min(wait, max(0, time.Until(f.state.next)))
		}
		p.mu.Unlock()
	}
	if changed && ctx.Err() == nil {
		p.options.Changed()
	}
	return wait
}

// probable reports whether there is something to probe: a rule that leads here, or none since there is no
// listener.
func (f *probed) probable() bool {
	return f.target.Front.IsValid() && (f.listener == nil || f.target.Endpoint == f.listener.at)
}

func (p *Prober) due(family ruleset.Family) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.families[family]
	return f.probable() && !time.Now().Before(f.state.next)
}

// probe reports whether the outcome has changed.
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
		return false // it says nothing about what is to be probed now
	}
	before := f.state
	f.state.take(failure, began, time.Now(), p.options.Pace)
	if p.asked {
		f.state.next = time.Time{} // meanwhile, of what is to be seen after that
	}
	return f.state.Outcome != before.Outcome || f.state.Reason != before.Reason
}

// connect connects to a front, and checks who answers.
func (p *Prober) connect(ctx context.Context, target Target) error {
	failure := p.ask(ctx, target.Endpoint.Addr(), target.Front)
	switch {
	case failure == nil:
		return nil
	case errors.Is(failure, syscall.ENETUNREACH) && !p.options.Routed(target.Endpoint.Addr(), target.Front.Addr()):
		// With a route the error means that something else has translated the address.
		return impossibleError{fmt.Sprintf("the node has no route to %s", target.Front.Addr())}
	}
	if p.ask(ctx, target.Endpoint.Addr(), target.Endpoint) != nil {
		return fmt.Errorf("the node cannot reach its own address %s, where vicinity-proxy listens: a packet filter of the node may drop the packets", target.Endpoint)
	}
	return fmt.Errorf("a connection of the node to %s does not end at vicinity-proxy, where its rules lead it: %s", target.Front, reasonOf(failure))
}

var errStranger = errors.New("something else answers")

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
	// There may be an answer even if the request fails.
	_, _ = io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n")
	const most = 1 << 10
	answer, err := io.ReadAll(io.LimitReader(conn, most))
	if strings.Contains(string(answer), p.nonce) {
		return nil
	}
	if err == nil || len(answer) > 0 {
		return errStranger
	}
	return err
}

// reasonOf words a failure the same way each time.
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
