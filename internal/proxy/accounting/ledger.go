package accounting

import (
	"net/netip"
	"time"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// ledger counts connections. It gets open connections repeatedly, and each ended connection once.
type ledger struct {
	resolve func(ruleset.Front, netip.Addr) (Flow, bool)
	zone    func() string
	// most bounds the remembered open connections.
	most int
	book book

	open map[uint64]entry
	// round is the number of the current or the last reading.
	round uint32
	// cleared is when connections were last dropped, and clearedRound the reading then.
	cleared      time.Time
	clearedRound uint32
	// ended has the connections that ended during the reading, which may still list them. It is nil without a reading.
	ended map[uint64]struct{}
	// based is set after the first reading. An earlier process has counted the connections of that reading.
	based bool
}

type entry struct {
	// line is nil for a connection that is older than the first reading and has no known Service.
	line  *line
	moved traffic
	round uint32
}

func newLedger(o *Options) *ledger {
	return &ledger{
		resolve: o.Resolve, zone: o.SourceZone, most: maxConnections,
		book: newBook(maxServices), open: map[uint64]entry{},
	}
}

func (l *ledger) begin() {
	l.round++
	l.ended = map[uint64]struct{}{}
}

// recordOpen records an open connection.
func (l *ledger) recordOpen(c connection) {
	if c.dying {
		// The kernel reports an end before it removes the connection from its table, so this end may be counted.
		return
	}
	e, known := l.open[c.key]
	if known {
		l.advance(&e, c)
		e.round = l.round
		l.open[c.key] = e
		return
	}
	if _, gone := l.ended[c.key]; gone || len(l.open) >= l.most || len(l.ended) >= l.most {
		// Without room, the connection counts when it ends. If ended is full, it may have ended.
		return
	}
	line := l.line(c)
	switch {
	case !l.based:
		l.open[c.key] = entry{line, c.moved, l.round}
	case line != nil:
		l.open[c.key] = entry{line, c.moved, l.round}
		line.add(1, c.moved)
	default:
		// Its Service may become known later. Then the whole connection counts.
		return
	}
	if line != nil {
		line.service.open++
	}
}

// recordEnd records a connection that has ended.
func (l *ledger) recordEnd(c connection) {
	if l.ended != nil && len(l.ended) < l.most {
		l.ended[c.key] = struct{}{}
	}
	e, known := l.open[c.key]
	if known {
		l.advance(&e, c)
		l.forget(c.key, e)
		return
	}
	if !l.based {
		return // it is older than the first reading, or was short
	}
	if line := l.line(c); line != nil {
		line.add(1, c.moved)
	}
}

// advance counts the new bytes of a known connection.
func (l *ledger) advance(e *entry, c connection) {
	if e.line == nil {
		if e.line = l.line(c); e.line != nil {
			e.line.service.open++
		}
	}
	moved, grown := c.moved.since(e.moved)
	e.moved = c.moved
	switch {
	case e.line == nil:
	case grown:
		e.line.add(0, moved)
	default:
		// This is another connection between the same addresses, with reused memory and so the same id. The report of the
		// first one's end was lost.
		e.line.add(1, c.moved)
	}
}

func (l *ledger) forget(key uint64, e entry) {
	delete(l.open, key)
	if e.line != nil {
		e.line.service.open--
	}
}

// clearEvery is how long connections without news are remembered at least. Reports must not wait as
// long: a connection that is forgotten and then reported counts twice.
const clearEvery = time.Minute

// finish ends a reading. Connections that several readings did not list have ended without a
// report. One reading does not tell: it may miss some while the table is resized.
func (l *ledger) finish(complete bool, now time.Time) {
	l.ended = nil
	if !complete {
		return
	}
	l.based = true
	if now.Sub(l.cleared) < clearEvery {
		return
	}
	for key, e := range l.open {
		if e.round < l.clearedRound {
			l.forget(key, e)
		}
	}
	l.cleared, l.clearedRound = now, l.round
}

// line returns the counters of a connection, nil without a known Service.
func (l *ledger) line(c connection) *line {
	flow, known := l.resolve(c.front, c.target)
	if !known {
		return nil
	}
	return l.book.line(flow, l.zone())
}
