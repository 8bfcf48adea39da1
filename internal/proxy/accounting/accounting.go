// Package accounting counts the connections and bytes of Services from a node to each zone, by the kernel's connection
// tracking.
//
// The node of the client tracks a connection to a Service, or the node where it came in from outside. Only there its
// destination is translated. So each connection counts on one node, and the sum over all nodes counts each once. The caller
// resolves Services and zones.
//
// Connections are those of the kernel. For UDP that means packets between two ports without a pause longer than the
// kernel's timeout. Unanswered connections count. Bytes are those of packets with their IP headers, to the endpoint
// (request) and back (reply). The kernel must count them (net.netfilter.nf_conntrack_acct). Connections are counted
// anyway. Bytes are lower bounds while a flowtable forwards packets uncounted.
//
// The kernel reports connections when they end. Between reports, all open connections are read, so that long ones count
// early. Readings take at most a hundredth of a CPU, and are at least an interval apart. A connection that is older
// than the first reading counts with its later bytes. Reports can be lost if they come faster than they are read.
// Losses are counted: such connections lack the bytes since the last reading, and connections that no reading has seen
// are missing.
//
// There are at most 100 × zones × 3 series, and a few for the rest. The Services with the most connections have their own
// series: the first Services get some, and every five minutes a Service with more than twice as many connections replaces
// the one with the fewest. A Service that is deleted and created again continues its series. All others are counted
// together, with an empty namespace and the Service "other": no real Service has an empty namespace. Traffic of a Service
// without series stays with the others, so no counter decreases, and the sum of all rates is always the whole.
package accounting

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"vicinity.dev/vicinity/internal/proxy/netlink"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// DefaultInterval is the default of the flag for Options.Interval.
const DefaultInterval = 15 * time.Second

const (
	// maxServices bounds the Services with their own series.
	maxServices = 100
	// maxConnections bounds the remembered open connections, of about 100 bytes each. Others count when they end.
	maxConnections = 1 << 19
	// reportBuffer is the size of the buffer for waiting reports in bytes.
	reportBuffer = 8 << 20
)

// share is the part of a CPU for readings.
const share = 0.01

// Options configure an Accountant.
type Options struct {
	// SourceZone returns the zone of the node, which may change.
	SourceZone func() string
	// Resolve returns the destination of a connection to a front, after the rules sent it to a target. It returns false
	// for connections that do not count. It is called for each new connection, and in each reading for connections that did not
	// count, so it must be fast. It must not call the Accountant. A short TCP connection is reported minutes after its end,
	// so endpoints should be known for a while after their removal.
	Resolve func(ruleset.Front, netip.Addr) (Flow, bool)

	// Interval is the minimum time between two readings of all open connections.
	Interval time.Duration
	Log      logr.Logger
}

// Flow is the destination of a connection.
type Flow struct {
	Namespace, Service string
	// DestinationZone is the zone of the endpoint, empty if unknown.
	DestinationZone string
}

type tracking interface {
	// listen subscribes to reports of ended connections.
	listen() (reports, error)
	// read passes on all open connections, and returns the CPU time.
	read(ctx context.Context, use func(content []byte)) (time.Duration, error)
	// switches reports whether the kernel counts bytes, and whether it reports ended connections.
	switches() (bytes, ends bool, err error)
	// countBytes makes the kernel count bytes.
	countBytes() error
	// uncounted names a flowtable that forwards packets without counting all bytes, and says why. It is empty without one.
	uncounted() (string, error)
}

// reports are the kernel's reports of ended connections.
type reports interface {
	// receive waits for reports. It may return reports with an error. The error is errLost if the buffer was full, and
	// os.ErrClosed after close.
	receive(into []byte) (int, error)
	close() error
}

var errLost = errors.New("reports of connection tracking were lost")

// Accountant counts connections. It is a prometheus.Collector.
type Accountant struct {
	interval     time.Duration
	log          logr.Logger
	clock        clock.Clock
	kernel       tracking
	messages     reader
	descriptions descriptions

	mu     sync.Mutex // of all that follows
	ledger *ledger
	health health
}

// health is the state of accounting itself.
type health struct {
	bytes, ends  bool // the kernel's switches
	isLowerBound bool // bytes may be missing
	// flowtable is the first that forwarded bytes uncounted, which the counters lack from then on.
	flowtable    string
	lost         uint64
	done, failed uint64 // readings
	used         time.Duration
	pause        time.Duration
	reported     [3]string // the last logged problem of each kind
}

// New returns an Accountant that does nothing until it runs.
func New(o Options) *Accountant {
	return &Accountant{
		interval:     o.Interval,
		log:          o.Log,
		clock:        clock.RealClock{},
		kernel:       conntrack{DefaultSwitches},
		messages:     newReader(),
		descriptions: describe(),
		ledger:       newLedger(&o),
		health:       health{pause: o.Interval},
	}
}

// Run counts until the context ends. It fails if the kernel stops reporting connections. A new Run continues the counters.
func (a *Accountant) Run(ctx context.Context) error {
	listening, err := a.kernel.listen()
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- a.follow(listening) }()
	for {
		a.readConnections(ctx)
		timer := a.clock.NewTimer(a.pause())
		select {
		case <-timer.C():
			continue
		case <-ctx.Done():
			err = listening.close()
			err = errors.Join(err, <-failed)
		case err = <-failed:
			err = errors.Join(err, listening.close())
		}
		timer.Stop()
		return err
	}
}

// follow takes the kernel's reports until they are closed.
func (a *Accountant) follow(listening reports) error {
	into := make([]byte, netlink.ReceiveBuffer)
	for {
		n, err := listening.receive(into)
		a.take(into[:n])
		switch {
		case errors.Is(err, errLost):
			a.mu.Lock()
			a.health.lost++
			a.mu.Unlock()
		case errors.Is(err, os.ErrClosed):
			return nil
		case err != nil:
			return err
		}
	}
}

// take passes ended connections to the ledger.
func (a *Accountant) take(read []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		m, rest, ok := netlink.NextMessage(read)
		if !ok {
			return
		}
		read = rest
		if m.Kind != netlink.TrackDelete || len(m.Content) < netlink.HeaderLength {
			continue
		}
		if c, counts := a.messages.connection(m.Content[netlink.HeaderLength:]); counts {
			a.ledger.recordEnd(c)
		}
	}
}

// takeOpen passes an open connection to the ledger.
func (a *Accountant) takeOpen(content []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c, counts := a.messages.connection(content); counts {
		a.ledger.recordOpen(c)
	}
}

// readConnections reads the switches, flowtables and all open connections, and sets the pause until the next reading.
func (a *Accountant) readConnections(ctx context.Context) {
	a.readSwitches()
	a.readFlowtables()
	a.mu.Lock()
	a.ledger.begin()
	a.mu.Unlock()
	used, err := a.kernel.read(ctx, a.takeOpen)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	a.ledger.finish(err == nil, now)
	if ctx.Err() != nil {
		return // an interrupted reading is no failure
	}
	a.ledger.book.rank(now)
	a.health.used += used
	a.health.pause = max(a.interval, time.Duration(float64(used)/share))
	if err != nil {
		a.health.failed++
		a.report(aboutReadings, err)
		return
	}
	a.health.done++
	a.report(aboutReadings, nil)
}

// pause returns the time until the next reading.
func (a *Accountant) pause() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.health.pause
}

// readSwitches reads the kernel's switches, and makes the kernel count bytes.
func (a *Accountant) readSwitches() {
	bytes, ends, err := a.kernel.switches()
	if err == nil && !bytes {
		if err = a.kernel.countBytes(); err != nil {
			err = fmt.Errorf("bytes are not counted: %w", err)
		}
		bytes = err == nil
	}
	if err == nil && !ends {
		err = errors.New("the kernel does not report ended connections, so short ones are missed; set the sysctl net.netfilter.nf_conntrack_events to 1 or 2")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.health.bytes, a.health.ends = bytes, ends
	a.report(aboutSwitches, err)
}

// readFlowtables reads whether a flowtable forwards uncounted bytes.
func (a *Accountant) readFlowtables() {
	flowtable, err := a.kernel.uncounted()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.health.flowtable = cmp.Or(a.health.flowtable, flowtable)
	if err == nil && a.health.flowtable != "" {
		err = fmt.Errorf("bytes are lower bounds until vicinity-proxy restarts, since %s; see docs/coexistence.md#flowtables", a.health.flowtable)
	}
	a.health.isLowerBound = err != nil
	a.report(aboutFlowtables, err)
}

// The kinds of problems.
const (
	aboutReadings = iota
	aboutSwitches
	aboutFlowtables
)

// report logs a new problem of a kind, and its end.
func (a *Accountant) report(about int, wrong error) {
	text := ""
	if wrong != nil {
		text = wrong.Error()
	}
	if a.health.reported[about] == text {
		return
	}
	a.health.reported[about] = text
	if wrong == nil {
		a.log.Info("accounting is complete again")
		return
	}
	a.log.Info("accounting is incomplete", "reason", text)
}
