package accounting

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// numbered resolves the port of a front to a Service, and the last byte of a target to a zone. Port 9 has no Service.
func numbered(front ruleset.Front, target netip.Addr) (Flow, bool) {
	zone := target.As4()[3]
	return Flow{"shop", fmt.Sprint("service-", front.Port), fmt.Sprint("zone-", zone)}, front.Port != 9
}

func newTestLedger(services, connections int) *ledger {
	l := newLedger(&Options{SourceZone: func() string { return "zone-0" }, Resolve: numbered})
	l.most, l.book.most = connections, services
	return l
}

// to is a connection with a key to a Service and zone.
func to(key uint64, service uint16, zone byte) connection {
	return connection{
		key:    key,
		front:  ruleset.Front{Address: netip.AddrFrom4([4]byte{10, 96, 0, 1}), Protocol: ruleset.TCP, Port: service},
		target: netip.AddrFrom4([4]byte{10, 0, 0, zone}),
	}
}

// moving is a connection that has moved bytes.
func (c connection) moving(request, reply uint64) connection {
	c.moved = traffic{request, reply}
	return c
}

// reading is a complete one.
func (l *ledger) reading(open ...connection) {
	l.begin()
	for _, c := range open {
		l.recordOpen(c)
	}
	l.finish(true, noon)
}

// noon is the default time.
var noon = time.Unix(1_800_000_000, 0)

// based is a ledger that has had its first reading, of nothing.
func based(services, connections int) *ledger {
	l := newTestLedger(services, connections)
	l.reading()
	return l
}

func expect(t *testing.T, l *ledger, connections, request, reply uint64) {
	t.Helper()
	if got, want := sum(l.book.rows()), (totals{connections, traffic{request, reply}}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

// Connections that are older than the first reading were counted by an earlier process. Only their later bytes count.
func TestOlderConnectionsCountLaterBytes(t *testing.T) {
	l := newTestLedger(5, 10)
	l.begin()
	l.recordOpen(to(1, 80, 1).moving(1000, 1000))
	l.recordOpen(to(2, 80, 1).moving(1000, 1000))
	l.recordEnd(to(2, 80, 1).moving(1001, 1000))
	l.recordEnd(to(3, 80, 1).moving(1000, 1000)) // before it was read
	l.finish(true, noon)
	expect(t, l, 0, 1, 0)
	l.reading(to(1, 80, 1).moving(1010, 1020))
	expect(t, l, 0, 11, 20)
}

func TestLostReportsLoseBytesOnly(t *testing.T) {
	l := based(5, 10)
	now := noon
	reading := func(open ...connection) {
		now = now.Add(clearEvery)
		l.begin()
		for _, c := range open {
			l.recordOpen(c)
		}
		l.finish(true, now)
	}
	reading(to(1, 80, 1).moving(10, 10))
	reading()
	if len(l.open) != 1 {
		t.Error("a connection is forgotten after one reading without it")
	}
	reading(to(1, 80, 1).moving(11, 11))
	expect(t, l, 1, 11, 11)
	reading()
	now = now.Add(-1)
	if reading(); len(l.open) != 1 {
		t.Error("it is forgotten too early")
	}
	if reading(); len(l.open) != 0 {
		t.Error("a connection is remembered after many readings without it")
	}
	expect(t, l, 1, 11, 11)
}

// A connection beyond the bound counts when it ends.
func TestMemoryIsBounded(t *testing.T) {
	l := based(5, 2)
	connections := []connection{to(1, 80, 1).moving(1, 1), to(2, 80, 1).moving(1, 1), to(3, 80, 1).moving(1, 1)}
	l.reading(connections...)
	if len(l.open) != 2 {
		t.Fatalf("%d connections are remembered, want 2", len(l.open))
	}
	expect(t, l, 2, 2, 2)
	for _, c := range connections {
		l.recordEnd(c)
	}
	expect(t, l, 3, 3, 3)

	// It remembers no more connections that ended during a reading, and leaves unknown ones to the reports.
	l.begin()
	for key := range uint64(4) {
		l.recordEnd(to(10+key, 80, 1))
	}
	if len(l.ended) != 2 {
		t.Errorf("%d ended connections are remembered, want 2", len(l.ended))
	}
	l.recordOpen(to(13, 80, 1))
	l.finish(true, noon)
	expect(t, l, 7, 3, 3)
}

// all returns the totals of all connections, including series that are not shown.
func (b *book) all() totals {
	rows := b.rows()
	for _, s := range b.services {
		if !s.shown {
			for r, l := range s.lines {
				rows = append(rows, row{s.name, r, l.own})
			}
		}
	}
	return sum(rows)
}

// Connections open, move bytes and end in random order, with stale readings. The counters match a plain count. There
// are so few Services that none is dropped.
func TestLedgerMatchesPlainCount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		services := rapid.IntRange(1, 4).Draw(t, "services with series")
		l := based(services, 1000)
		open := map[uint64]connection{}
		var want totals
		var stale []connection   // what the reading under way has still to bring
		var reports []connection // of ended connections
		reading := false
		var next uint64
		now := time.Unix(0, 0)
		before := map[name]map[route]totals{}

		report := func() {
			for _, c := range reports {
				l.recordEnd(c)
			}
			reports = nil
		}
		pick := func(t *rapid.T) connection {
			if len(open) == 0 {
				t.Skip("none is open")
			}
			return open[rapid.SampledFrom(slices.Sorted(maps.Keys(open))).Draw(t, "connection")]
		}
		t.Repeat(map[string]func(*rapid.T){
			"open": func(t *rapid.T) {
				next++
				c := to(next, uint16(rapid.IntRange(80, 83).Draw(t, "service")), byte(rapid.IntRange(1, 2).Draw(t, "zone")))
				open[next] = c
				want.connections++
			},
			"move": func(t *rapid.T) {
				c := pick(t)
				request, reply := uint64(rapid.IntRange(0, 9).Draw(t, "request")), uint64(rapid.IntRange(0, 9).Draw(t, "reply"))
				open[c.key] = c.moving(c.moved.request+request, c.moved.reply+reply)
				want.moved.request += request
				want.moved.reply += reply
			},
			"end": func(t *rapid.T) {
				c := pick(t)
				delete(open, c.key)
				reports = append(reports, c)
			},
			"report": func(t *rapid.T) {
				if len(reports) == 0 {
					t.Skip("there is nothing to report")
				}
				l.recordEnd(reports[0])
				reports = reports[1:]
			},
			"begin to read": func(t *rapid.T) {
				if reading {
					t.Skip("a reading is under way")
				}
				reading = true
				l.begin()
				stale = slices.SortedFunc(maps.Values(open), func(a, b connection) int { return cmp.Compare(a.key, b.key) })
			},
			"read a part": func(t *rapid.T) {
				if len(stale) == 0 {
					t.Skip("nothing is left to read")
				}
				l.recordOpen(stale[0])
				stale = stale[1:]
			},
			"rank": func(*rapid.T) {
				now = now.Add(rankEvery)
				l.book.rank(now)
			},
			"": func(t *rapid.T) {
				if reading && len(stale) == 0 {
					reading = false
					l.finish(true, noon)
				}
				shown := map[name]bool{}
				for _, r := range l.book.rows() {
					shown[r.name] = true
					old := before[r.name][r.route]
					if _, grown := r.moved.since(old.moved); !grown || r.connections < old.connections {
						t.Fatalf("%v decreased from %+v", r, old)
					}
					if before[r.name] == nil {
						before[r.name] = map[route]totals{}
					}
					before[r.name][r.route] = r.totals
				}
				if delete(shown, name{service: otherServices}); len(shown) > services {
					t.Fatalf("%d Services have series, want at most %d", len(shown), services)
				}
			},
		})
		// In the end all is known.
		report()
		for reading && len(stale) > 0 {
			l.recordOpen(stale[0])
			stale = stale[1:]
		}
		if reading {
			l.finish(true, noon)
		}
		l.reading(slices.Collect(maps.Values(open))...)
		if got := l.book.all(); got != want {
			t.Fatalf("counted %+v, want %+v", got, want)
		}
		for _, s := range l.book.services {
			n := 0
			for _, e := range l.open {
				if e.line != nil && e.line.service == s {
					n++
				}
			}
			if s.open != n {
				t.Fatalf("%d open connections refer to %v, it says %d", n, s.name, s.open)
			}
		}
	})
}
