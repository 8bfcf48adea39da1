package evictions

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// story is a handwritten history. Each step is a version, and takes a second.
type story struct {
	events []event
	limits budget
}

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func (s *story) add(e event) {
	e.version = uint64(len(s.events) + 1)
	e.seen = began.Add(time.Duration(e.version) * time.Second)
	s.events = append(s.events, e)
}

// runs makes a pod healthy. The first letter of its name is its domain.
func (s *story) runs(names ...string) {
	for _, name := range names {
		s.add(event{of: pods, uid: types.UID(name), pod: podNamed(name)})
	}
}

func podNamed(name string) pod {
	return pod{uid: types.UID(name), name: name, node: name[:1], ready: true, labels: map[string]string{"app": "x"}}
}

func (s *story) evicted(names ...string) {
	for _, name := range names {
		p := podNamed(name)
		p.evicted = true
		s.add(event{of: pods, uid: p.uid, pod: p})
		s.add(event{of: pods, uid: p.uid, pod: p, gone: true})
	}
}

// comes schedules a pod that is not ready yet.
func (s *story) comes(name string) {
	p := podNamed(name)
	p.ready = false
	s.add(event{of: pods, uid: p.uid, pod: p})
}

func (s *story) dies(name string) {
	s.add(event{of: pods, uid: types.UID(name), pod: podNamed(name), gone: true})
}

// reserves writes the budget with reservations, by a decider that has seen a version.
func (s *story) reserves(observed int, names ...string) {
	b := s.limits
	b.name, b.selector, b.observed, b.reserved = "x", map[string]string{"app": "x"}, uint64(observed), map[types.UID]time.Time{}
	for _, name := range names {
		b.reserved[types.UID(name)] = began.Add(time.Duration(len(s.events)+1)*time.Second + reservedFor)
	}
	s.add(event{of: budgets, uid: "x", budget: b})
}

func TestCheck(t *testing.T) {
	one, two, third := intstr.FromInt32(1), intstr.FromInt32(2), intstr.FromString("34%")
	oneDomain := int32(1)
	perDomain, total := budget{perDomain: &one}, budget{perDomain: &two, total: &two}
	for _, c := range []struct {
		name   string
		limits budget
		tell   func(*story)
		over   int
		says   string
	}{
		{"one in each domain", perDomain, func(s *story) {
			s.reserves(0, "a1", "b1")
			s.evicted("a1", "b1")
		}, 0, ""},
		{"two in a domain", perDomain, func(s *story) { s.reserves(0, "a1", "a2") }, 1, `lets 2 pods of "a" be down, more than 1`},
		{"a second before the first was replaced", perDomain, func(s *story) {
			s.reserves(0, "a1")
			s.evicted("a1")
			s.reserves(0, "a2")
		}, 1, "more than 1"},
		{"a second after the first was replaced", perDomain, func(s *story) {
			s.reserves(0, "a1")
			s.evicted("a1")
			s.runs("a4")
			s.reserves(0, "a2")
		}, 0, ""},
		{"a reservation that is kept", perDomain, func(s *story) {
			s.reserves(0, "a1")
			s.reserves(0, "a1", "b1")
		}, 0, ""},
		{"a death, unseen", perDomain, func(s *story) {
			s.dies("a1")
			s.reserves(0, "a2")
		}, 0, ""},
		{"a death elsewhere while a pod ends beside its replacement, unseen", budget{perDomain: &two}, func(s *story) {
			ending, starting := podNamed("a1"), podNamed("a4")
			ending.terminating, starting.ready = true, false
			s.add(event{of: pods, uid: "a4", pod: starting})
			s.add(event{of: pods, uid: "a1", pod: ending})
			seen := len(s.events)
			s.dies("b1")
			s.reserves(seen, "a2")
		}, 0, ""},
		{"the end of an evicted pod elsewhere while a pod ends beside its replacement", budget{perDomain: &two}, func(s *story) {
			s.reserves(0, "b1")
			ending, starting, evicted := podNamed("a1"), podNamed("a4"), podNamed("b1")
			ending.terminating, starting.ready, evicted.terminating, evicted.evicted = true, false, true, true
			s.add(event{of: pods, uid: "b1", pod: evicted})
			s.add(event{of: pods, uid: "a4", pod: starting})
			s.add(event{of: pods, uid: "a1", pod: ending})
			seen := len(s.events)
			s.add(event{of: pods, uid: "b1", pod: evicted, gone: true})
			s.reserves(seen, "a2")
		}, 0, ""},
		// Five of six pods run; the sixth is missing in b.
		{"a replacement in another domain, unseen", budget{perDomain: &two}, func(s *story) {
			s.dies("b1")
			seen := len(s.events)
			s.comes("a4")
			s.reserves(seen, "a1", "a2")
		}, 0, ""},
		{"an observed replacement in another domain", budget{perDomain: &two}, func(s *story) {
			s.dies("b1")
			s.comes("a4")
			s.reserves(len(s.events), "a1", "a2")
		}, 1, "more than 2"},
		{"a replacement in another domain long ago", budget{perDomain: &two}, func(s *story) {
			s.dies("b1")
			s.comes("a4")
			for range 10 {
				s.runs("b2")
			}
			s.reserves(0, "a1", "a2")
		}, 1, `a4 of "a" came at version 9`},
		{"an observed death", perDomain, func(s *story) {
			s.dies("a1")
			s.reserves(len(s.events), "a2")
		}, 1, "more than 1"},
		{"a death long ago", perDomain, func(s *story) {
			s.dies("a1")
			for range 10 {
				s.runs("b1")
			}
			s.reserves(0, "a2")
		}, 1, "more than 1"},
		{"a pod that became unready just now, beside an older one that is not covered, unseen", perDomain, func(s *story) {
			since := began.Add(time.Duration(len(s.events)) * time.Second)
			down := podNamed("a1")
			down.ready, down.changed = false, since
			s.add(event{of: pods, uid: "a1", pod: down})
			elsewhere := podNamed("c1")
			s.add(event{of: pods, uid: "c1", pod: elsewhere})
			elsewhere.ready, elsewhere.changed = false, began.Add(-time.Hour)
			s.add(event{of: pods, uid: "c1", pod: elsewhere})
			s.reserves(0, "a2")
		}, 0, ""},
		{"a pod that has been unready for long", perDomain, func(s *story) {
			down := podNamed("a1")
			down.ready, down.changed = false, began.Add(-time.Hour)
			s.add(event{of: pods, uid: "a1", pod: down})
			s.reserves(0, "a2")
		}, 1, `a1 of "a" fell at version 8, 3609.0 s before`},
		{"a percentage is rounded up", budget{perDomain: &third}, func(s *story) { s.reserves(0, "a1", "a2") }, 0, ""},
		{"a pod that ends beside its replacement", perDomain, func(s *story) {
			ending, starting := podNamed("a1"), podNamed("a4")
			ending.terminating, starting.ready = true, false
			s.add(event{of: pods, uid: "a1", pod: ending})
			s.add(event{of: pods, uid: "a4", pod: starting})
			s.reserves(len(s.events), "b1")
			s.reserves(len(s.events), "a2", "b1")
		}, 1, "more than 1"},
		{"an eviction with a replacement in another domain", perDomain, func(s *story) {
			s.reserves(0, "a1")
			s.evicted("a1")
			s.runs("b4")
			s.reserves(0, "a2")
		}, 0, ""},
		{"three in all", total, func(s *story) { s.reserves(0, "a1", "b1", "b2") }, 1, "lets 3 pods be down in all"},
		{"two domains at a time", budget{perDomain: &two, domains: &oneDomain}, func(s *story) { s.reserves(0, "a1", "b1") }, 2, "lets 2 domains be disturbed"},
	} {
		s := &story{limits: c.limits}
		s.runs("a1", "a2", "a3", "b1", "b2", "b3")
		s.reserves(0)
		c.tell(s)
		got := check(s.events, World{
			Domains: map[string]string{"a": "a", "b": "b"}, Expected: map[string]int{"x": 6}, Lag: 5 * time.Second,
		})
		if got.OverBudget != c.over || got.Unreserved != 0 || !strings.Contains(fmt.Sprint(got.Examples), c.says) {
			t.Errorf("%s: %d over budget, %d unreserved, %q; want %d and %q", c.name, got.OverBudget, got.Unreserved, got.Examples, c.over, c.says)
		}
		if unseen := strings.HasSuffix(c.name, "unseen"); unseen != (got.Unseen > 0) {
			t.Errorf("%s: %s went unseen", c.name, got.Unseen)
		}
		if err := got.Err(); (err != nil) != (c.over > 0) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestCheckFindsUnreservedEvictions(t *testing.T) {
	one := intstr.FromInt32(1)
	s := &story{limits: budget{perDomain: &one}}
	s.runs("a1", "a2")
	s.reserves(0)
	s.evicted("a1")
	got := check(s.events, World{Domains: map[string]string{"a": "a"}, Expected: map[string]int{"x": 2}})
	if got.Unreserved != 1 || got.Evictions != 1 || got.Err() == nil {
		t.Errorf("got %+v", got)
	}
	// From the last budget before a gap on, reservations are unknown.
	s = &story{limits: budget{perDomain: &one}}
	s.add(event{of: budgets, list: true})
	s.runs("a1", "a2", "a3")
	s.reserves(0)
	s.evicted("a1")
	s.reserves(0)
	s.evicted("a2")
	s.add(event{of: budgets, list: true})
	s.reserves(0)
	s.evicted("a3")
	got = check(s.events, World{Domains: map[string]string{"a": "a"}, Expected: map[string]int{"x": 3}})
	if got.Unreserved != 1 || got.Gaps != 1 || !strings.HasPrefix(fmt.Sprint(got.Examples), "[a1 ") {
		t.Errorf("with a gap: %+v", got)
	}
}
