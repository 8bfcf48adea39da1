package accounting

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// rankEvery is how often Services are ranked. The weight of past connections halves each time.
const rankEvery = 5 * time.Minute

// keptPerShown is how many Services without series, for each with some, keep their counters for
// later.
const keptPerShown = 3

// book has the counters. Services with the most connections have series of their own, and all
// others one. Gaining or losing a series changes what comes, so no counter falls.
type book struct {
	most     int // Services that are shown
	shown    int
	services map[name]*service
	others   map[route]*totals
	ranked   time.Time
}

type name struct {
	namespace, service string
}

func (n name) compare(other name) int {
	return cmp.Or(strings.Compare(n.namespace, other.namespace), strings.Compare(n.service, other.service))
}

// route is from where to where.
type route struct {
	source, destination string
}

func (r route) compare(other route) int {
	return cmp.Or(strings.Compare(r.source, other.source), strings.Compare(r.destination, other.destination))
}

// totals are the counters of one route.
type totals struct {
	connections uint64
	moved       traffic
}

// service is what is known of a Service.
type service struct {
	name  name
	shown bool
	// open is how many open connections refer to it, which then stays.
	open int
	// recent weighs its connections of late.
	recent float64
	// hidden is when it lost its series.
	hidden time.Time
	lines  map[route]*line
}

type line struct {
	service *service
	own     totals
	others  *totals
}

func newBook(most int) book {
	return book{most: most, services: map[name]*service{}, others: map[route]*totals{}}
}

func (b *book) line(flow Flow, source string) *line {
	n := name{flow.Namespace, flow.Service}
	s := b.services[n]
	if s == nil {
		s = &service{name: n, lines: map[route]*line{}}
		b.services[n] = s
		if b.shown < b.most {
			s.shown = true
			b.shown++
		}
	}
	r := route{source, flow.DestinationZone}
	l := s.lines[r]
	if l == nil {
		others := b.others[r]
		if others == nil {
			others = &totals{}
			b.others[r] = others
		}
		l = &line{service: s, others: others}
		s.lines[r] = l
	}
	return l
}

func (l *line) add(connections uint64, moved traffic) {
	t := l.others
	if l.service.shown {
		t = &l.own
	}
	t.connections += connections
	t.moved.request += moved.request
	t.moved.reply += moved.reply
	l.service.recent += float64(connections)
}

// weight is what a Service is ranked by.
func (s *service) weight() float64 { return s.recent + float64(s.open) }

// rank gives series to the Services with the most connections. A Service loses its series only to
// one with twice as many, so that two alike do not take turns.
func (b *book) rank(now time.Time) {
	if now.Sub(b.ranked) < rankEvery {
		return
	}
	b.ranked = now
	all := slices.SortedFunc(maps.Values(b.services), func(a, other *service) int {
		return cmp.Or(cmp.Compare(other.weight(), a.weight()), a.name.compare(other.name))
	})
	var last []*service // of those that are shown, the one with the fewest first
	for _, s := range slices.Backward(all) {
		if s.shown {
			last = append(last, s)
		}
	}
	for _, s := range all {
		if s.shown {
			continue
		}
		if len(last) == 0 || s.weight() <= 2*last[0].weight() {
			break // nor does any that comes after it
		}
		s.shown, last[0].shown, last[0].hidden = true, false, now
		last = last[1:]
	}
	for _, s := range all {
		s.recent /= 2
	}
	b.clear()
}

// clear forgets Services without connections, and the oldest of those that had series.
func (b *book) clear() {
	var kept []*service
	for n, s := range b.services {
		switch {
		case s.shown || s.open > 0 || s.recent >= 0.5:
		case s.hidden.IsZero():
			delete(b.services, n)
		default:
			kept = append(kept, s)
		}
	}
	if over := len(kept) - keptPerShown*b.most; over > 0 {
		slices.SortFunc(kept, func(a, other *service) int {
			return cmp.Or(a.hidden.Compare(other.hidden), a.name.compare(other.name))
		})
		for _, s := range kept[:over] {
			delete(b.services, s.name)
		}
	}
}
