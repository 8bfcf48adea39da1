package accounting

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// rankEvery is the time between rankings of Services. The weight of past connections halves each time.
const rankEvery = 5 * time.Minute

// keptPerShown is how many Services without series keep their counters, for each Service with series.
const keptPerShown = 3

// book has the counters. The Services with the most connections have their own series, and all others share one. Gaining or
// losing a series affects later traffic only, so no counter decreases.
type book struct {
	most     int // Services with series
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

// route is a pair of zones.
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

type service struct {
	name  name
	shown bool
	// open counts the open connections that refer to it. It is kept while there are any.
	open int
	// recent weighs its recent connections.
	recent float64
	// hidden is when it lost its series, zero if it never had any.
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

// weight decides the rank of a Service.
func (s *service) weight() float64 { return s.recent + float64(s.open) }

// rank gives series to the Services with the most connections. A Service loses its series only to one with more than twice
// as many, so that similar Services do not alternate.
func (b *book) rank(now time.Time) {
	if now.Sub(b.ranked) < rankEvery {
		return
	}
	b.ranked = now
	all := slices.SortedFunc(maps.Values(b.services), func(a, other *service) int {
		return cmp.Or(cmp.Compare(other.weight(), a.weight()), a.name.compare(other.name))
	})
	var last []*service // Services with series, the one with the fewest connections first
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
			break // later Services have even fewer connections
		}
		s.shown, last[0].shown, last[0].hidden = true, false, now
		last = last[1:]
	}
	for _, s := range all {
		s.recent /= 2
	}
	b.clear()
}

// clear deletes Services without connections, and the oldest Services that lost their series.
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
