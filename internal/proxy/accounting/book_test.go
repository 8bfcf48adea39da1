package accounting

import (
	"fmt"
	"slices"
	"testing"
)

// shown are the Services with series, in order.
func (b *book) names() []string {
	var names []string
	for _, s := range b.services {
		if s.shown {
			names = append(names, s.name.service)
		}
	}
	slices.Sort(names)
	return names
}

// connect counts connections to a Service.
func (b *book) connect(service string, connections uint64) {
	b.line(Flow{Namespace: "shop", Service: service, DestinationZone: "zone-b"}, "zone-a").add(connections, traffic{connections, 1})
}

// connections returns the connections of a Service, zero if it has no series.
func (b *book) connections(service string) (n uint64) {
	for _, r := range b.rows() {
		if r.service == service {
			n += r.connections
		}
	}
	return n
}

func TestServicesWithTheMostConnectionsHaveSeries(t *testing.T) {
	b := newBook(2)
	now := noon
	rank := func(want ...string) {
		t.Helper()
		now = now.Add(rankEvery)
		b.rank(now)
		if got := b.names(); !slices.Equal(got, want) {
			t.Fatalf("%v have series, want %v", got, want)
		}
	}
	b.connect("first", 10)
	b.connect("second", 100)
	b.connect("third", 20)
	rank("first", "second") // 20 is not more than twice as many
	b.connect("third", 11)  // it has 10 left of the 20
	if got := b.connections(otherServices); got != 31 {
		t.Errorf("other Services have %d connections, want 31", got)
	}
	rank("second", "third")
	b.connect("third", 5)
	b.connect("first", 7)
	if got := b.connections("third"); got != 5 {
		t.Errorf("the series of third has %d connections, want the 5 since it has series", got)
	}
	if got := b.connections(otherServices); got != 38 {
		t.Errorf("other Services have %d connections, want 38", got)
	}
	// When the first is shown again, it continues from its earlier count.
	b.connect("first", 1000)
	rank("first", "second")
	b.connect("first", 1)
	if got := b.connections("first"); got != 11 {
		t.Errorf("the series of first has %d connections, want the 10 it had and one", got)
	}
	if got := sum(b.rows()).connections; got != 1018+100+36-5 {
		t.Errorf("series have %d connections, want all but the 5 of third", got)
	}
}

// Open connections weigh as much as new ones.
func TestOpenConnectionsKeepSeries(t *testing.T) {
	l := based(1, 100)
	now := noon
	lasting := make([]connection, 10)
	for i := range lasting {
		lasting[i] = to(uint64(i+1), 80, 1)
	}
	l.reading(lasting...)
	for i := range 20 {
		for range 8 {
			l.recordEnd(to(uint64(1000+i), 81, 1))
		}
		now = now.Add(rankEvery)
		l.book.rank(now)
		if got := l.book.names(); !slices.Equal(got, []string{"service-80"}) {
			t.Fatalf("%v have series after %d ranks", got, i)
		}
	}
}

func TestUnusedServicesAreDropped(t *testing.T) {
	b := newBook(1)
	now := noon
	rank := func() {
		now = now.Add(rankEvery)
		b.rank(now)
	}
	// One after the other has series, each with a few connections, then none.
	for i := range 20 {
		b.connect(fmt.Sprint("shown-", i), 3)
		b.connect(fmt.Sprint("never-", i), 1)
		for range 5 {
			rank()
		}
	}
	var kept []string
	for _, s := range b.services {
		kept = append(kept, s.name.service)
	}
	slices.Sort(kept)
	if want := []string{"shown-16", "shown-17", "shown-18", "shown-19"}; !slices.Equal(kept, want) {
		t.Errorf("the book remembers %v, want %v: the one with series, and three that had some", kept, want)
	}
	if got := b.connections("shown-19"); got != 0 {
		t.Errorf("the series of shown-19 has %d connections, want none: they came before it had series", got)
	}
}
