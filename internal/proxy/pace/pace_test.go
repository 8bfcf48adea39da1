package pace

import (
	"testing"
	"time"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestPace(t *testing.T) {
	p := Pace{Period: 20 * time.Millisecond}
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	ready := func(now, want int) {
		t.Helper()
		if got := p.Ready(at(now)); !got.Equal(at(want)) {
			t.Errorf("at %d ready at %s, want %d", now, got.Sub(start), want)
		}
	}
	ready(0, 0)
	p.Ran(at(0), at(5), false)
	ready(6, 20) // a quick sync
	ready(25, 25)
	p.Ran(at(25), at(75), false)
	ready(76, 125) // a slow one is followed by a rest as long
	p.Ran(at(125), at(10125), false)
	ready(10126, 11125) // of a second at most
	p.Ran(at(12000), at(12001), true)
	ready(12001, 12002) // one that only looked holds up nothing
	p.Ran(at(13000), at(13050), true)
	ready(13050, 13100) // but is rested from
}

func TestBudget(t *testing.T) {
	b := Budget{Burst: 3, Every: time.Second}
	now := start
	take := func(want ...bool) {
		t.Helper()
		for i, one := range want {
			if got := b.Take(now); got != one {
				t.Errorf("at %s, %d: %t", now.Sub(start), i, got)
			}
		}
	}
	take(true, true, true, false)
	if got := b.Next(); !got.Equal(start.Add(time.Second)) {
		t.Errorf("next at %s", got.Sub(start))
	}
	now = start.Add(999 * time.Millisecond)
	take(false)
	now = start.Add(time.Second)
	take(true, false)
	now = start.Add(2500 * time.Millisecond)
	take(true, false)
	now = start.Add(3 * time.Second)
	take(true, false)
	now = start.Add(time.Hour)
	take(true, true, true, false)
}
