// Package accounting counts the connections and the bytes that Services send from a
// node to each zone, by what the kernel's connection tracking says of them.
//
// A connection to a Service is tracked by the node where its client is, or where it
// came in from outside, and only there is its destination translated. So each counts
// on one node, and the sum over all nodes counts each once. Which Service it is to and
// where the endpoint is it is told: the package knows neither Services nor zones, and
// changes nothing of what it counts.
//
// What is counted. Connections are what the kernel tracks as such: of UDP, packets
// between two ports without a pause as long as the kernel's timeout; also those that
// nobody answers. Bytes are those of packets with their IP headers, to the endpoint
// (request) and back (reply). They are there only if the kernel counts them
// (net.netfilter.nf_conntrack_acct); connections are counted anyway.
//
// When. The kernel reports connections as they end, and every so often all open ones
// are read, so that those that last are seen meanwhile. Readings are as far apart as it
// takes to spend no more than a hundredth of a processor on them, and never closer than
// an interval. What was open before the first one counts with what it moves afterwards.
// Reports that are lost, since they come faster than they are read, are counted: of
// such connections bytes since the last reading are missing, and all of those that no
// reading has seen.
//
// The counters have no more series than 100 × zones × 3, with a few for the
// rest. Services have their own as long as they are among those with the most
// connections: the first to come get some, and every five minutes one with more than
// twice as many takes the place of the one with the fewest. A Service that is deleted
// and made again continues where it was. All others are counted together, with an empty
// namespace and "other" as the Service, which cannot be mistaken since every Service
// has a namespace. What a Service does while it has no series of its own stays with the
// others for ever, so no counter falls, and the rates of all are always the whole.
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

// DefaultInterval is Options.Interval if that is zero.
const DefaultInterval = 15 * time.Second

const (
	// maxServices is how many Services have series of their own.
	maxServices = 100
	// maxConnections is how many open connections are remembered, each in about 100 bytes. One
	// beyond counts when it ends.
	maxConnections = 1 << 19
	// reportBuffer is how many bytes of reports wait to be read.
	reportBuffer = 8 << 20
)

const share = 0.01

// Options say what to count, and how much that may take.
type Options struct {
	// SourceZone is the zone of the node, which may change.
	SourceZone func() string
	// Resolve says what a connection to a front is to, after the rules sent it to a target. It is
	// false for connections that do not count. It is called for each new connection, and in each
	// reading for those that did not count, so it must be quick, and must not call the Accountant.
	// A short TCP connection is reported minutes after its end, so endpoints should be known for a
	// while after they are gone.
	Resolve func(ruleset.Front, netip.Addr) (Flow, bool)

	// Interval is the shortest time between two readings of all open connections.
	Interval time.Duration
	// CountBytes has the kernel count bytes if it does not.
	CountBytes bool
	// Log is told what goes wrong, and when that is over.
	Log logr.Logger
	// Clock is another than that of the system.
	Clock clock.Clock
}

// Flow is what a connection is to.
type Flow struct {
	Namespace, Service string
	// DestinationZone is where the endpoint is, empty if nobody knows.
	DestinationZone string
}

type tracking interface {
	// listen begins to receive reports of connections that end.
	listen() (reports, error)
	// read hands out all open connections, and says how much time of a processor that
	// took.
	read(ctx context.Context, use func(part []byte)) (time.Duration, error)
	// switches says whether the kernel counts bytes, and whether it reports what ends.
	switches() (bytes, ends bool, err error)
	// countBytes has the kernel count bytes.
	countBytes() error
}

// reports are what the kernel says of connections that end.
type reports interface {
	// receive waits for the next ones, which are there even with an error. The error is
	// errLost if some had no room in the buffer, and os.ErrClosed after close.
	receive(into []byte) (int, error)
	close() error
}

// errLost says that reports were lost.
var errLost = errors.New("reports of connection tracking were lost")

// Accountant counts. It is a prometheus.Collector.
type Accountant struct {
	interval     time.Duration
	withBytes    bool
	log          logr.Logger
	clock        clock.Clock
	kernel       tracking
	messages     reader
	descriptions descriptions

	mu     sync.Mutex // of all that follows
	ledger *ledger
	health health
}

// health is what there is to say about counting itself.
type health struct {
	bytes, ends  bool // as the kernel's switches are
	lost         uint64
	done, failed uint64 // readings
	used         time.Duration
	pause        time.Duration
	told         [2]string // what was said last of readings, and of switches
}

// New makes an Accountant, which does nothing until it runs.
func New(o Options) (*Accountant, error) {
	if o.SourceZone == nil || o.Resolve == nil {
		return nil, errors.New("accounting needs SourceZone and Resolve")
	}
	a := &Accountant{
		interval:     cmp.Or(o.Interval, DefaultInterval),
		withBytes:    o.CountBytes,
		log:          o.Log,
		clock:        o.Clock,
		kernel:       conntrack{DefaultSwitches},
		messages:     newReader(),
		descriptions: describe(),
		ledger:       newLedger(&o),
	}
	if a.clock == nil {
		a.clock = clock.RealClock{}
	}
	return a, nil
}

// Run counts until the context ends. It fails if the kernel does not report connections. It may be
// run again then, and goes on where it was.
func (a *Accountant) Run(ctx context.Context) error {
	listening, err := a.kernel.listen()
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- a.follow(listening) }()
	for {
		a.look(ctx)
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

// follow takes what the kernel reports, until that is closed.
func (a *Accountant) follow(listening reports) error {
	into := make([]byte, netlink.ReceiveBuffer)
	for {
		n, err := listening.receive(into)
		a.take(into[:n], netlink.TrackDelete, a.ledger.gone)
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

// take hands the connections of messages of a kind to the ledger.
func (a *Accountant) take(read []byte, kind uint16, to func(connection)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		m, rest, ok := netlink.NextMessage(read)
		if !ok {
			return
		}
		read = rest
		if m.Kind != kind {
			continue
		}
		if c, counts := a.messages.connection(m.Content); counts {
			to(c)
		}
	}
}

// look reads the switches and all open connections, and decides when to do so again.
func (a *Accountant) look(ctx context.Context) {
	a.lookAtSwitches()
	a.mu.Lock()
	a.ledger.begin()
	a.mu.Unlock()
	used, err := a.kernel.read(ctx, func(part []byte) { a.take(part, netlink.TrackNew, a.ledger.found) })
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	a.ledger.finish(err == nil, now)
	if ctx.Err() != nil {
		return // that it was cut short is no failure
	}
	a.ledger.book.rank(now)
	a.health.used += used
	a.health.pause = max(a.interval, time.Duration(float64(used)/share))
	if err != nil {
		a.health.failed++
		a.say(aboutReadings, err)
		return
	}
	a.health.done++
	a.say(aboutReadings, nil)
}

// pause is how long to wait before the next reading.
func (a *Accountant) pause() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(a.health.pause, a.interval)
}

// lookAtSwitches reads the kernel's switches, and counts bytes if that is asked for.
func (a *Accountant) lookAtSwitches() {
	bytes, ends, err := a.kernel.switches()
	if err == nil && !bytes {
		err = errors.New("the kernel does not count bytes; set the sysctl net.netfilter.nf_conntrack_acct to 1, which new connections then have")
		if a.withBytes {
			if failed := a.kernel.countBytes(); failed != nil {
				err = fmt.Errorf("bytes are not counted: %w", failed)
			} else {
				bytes, err = true, nil
			}
		}
	}
	if err == nil && !ends {
		err = errors.New("the kernel does not report connections that end, so short ones are missed; set the sysctl net.netfilter.nf_conntrack_events to 1 or 2")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.health.bytes, a.health.ends = bytes, ends
	a.say(aboutSwitches, err)
}

// What there is to be said about.
const (
	aboutReadings = iota
	aboutSwitches
)

// say logs what is wrong, once, and that it no longer is.
func (a *Accountant) say(about int, wrong error) {
	text := ""
	if wrong != nil {
		text = wrong.Error()
	}
	if a.health.told[about] == text {
		return
	}
	a.health.told[about] = text
	if wrong == nil {
		a.log.Info("accounting is complete again")
		return
	}
	a.log.Info("accounting is incomplete", "reason", text)
}
