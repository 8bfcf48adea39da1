package controller

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// namespaceShare bounds the writes for the budgets of a namespace to one in this number.
	namespaceShare = 4
	// burst is how far writes may be ahead of their rate.
	burst = time.Second
	// mostNamespaces is the number of lanes after which idle ones are dropped.
	mostNamespaces = 1000
)

// turns bounds the writes of status, for all budgets and more strictly for each namespace, so that one namespace does not delay the
// others. A waiting budget is synced again at its turn, and occupies no worker meanwhile.
type turns struct {
	mu    sync.Mutex
	all   lane
	of    map[string]*lane              // by namespace
	given map[types.NamespacedName]turn // of waiting budgets
}

type turn struct {
	at   time.Time
	lane *lane
}

// lane hands out turns at an interval.
type lane struct {
	interval time.Duration
	// spent is when the rate would have allowed all writes so far. last is the last given turn.
	spent, last time.Time
}

func newTurns(rate float32) *turns {
	return &turns{
		all: lane{interval: time.Duration(float32(time.Second) / rate)},
		of:  map[string]*lane{}, given: map[types.NamespacedName]turn{},
	}
}

// wait returns the time until the turn of a budget, zero if it may write now.
func (t *turns) wait(budget types.NamespacedName, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	lanes := []*lane{t.of[budget.Namespace], &t.all}
	if due, waits := t.given[budget]; waits {
		if due.at.After(now) {
			return due.at.Sub(now)
		}
		delete(t.given, budget)
		if due.lane == &t.all {
			return 0
		}
		lanes = lanes[1:]
	}
	for _, l := range lanes {
		if l != nil && l.spent.Sub(now) > burst {
			l.last = latest(l.last, now).Add(l.interval)
			t.given[budget] = turn{l.last, l}
			return l.last.Sub(now)
		}
	}
	return 0
}

// wrote records a write.
func (t *turns) wrote(namespace string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.of) >= mostNamespaces {
		maps.DeleteFunc(t.of, func(_ string, l *lane) bool { return l.spent.Before(now) && l.last.Before(now) })
	}
	if t.of[namespace] == nil {
		t.of[namespace] = &lane{interval: namespaceShare * t.all.interval}
	}
	for _, l := range []*lane{t.of[namespace], &t.all} {
		l.spent = latest(l.spent, now).Add(l.interval)
	}
}

// forget drops the turn of a deleted budget.
func (t *turns) forget(budget types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.given, budget)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
