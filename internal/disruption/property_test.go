package disruption

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDecideAgreesWithTheNaiveImplementation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawState(t, 12)
		second := naive{s, start}
		for i := range s.Pods {
			p := &s.Pods[i]
			d := Decide(s, p.UID, start)
			rule, allowed := second.decide(p.UID)
			if d.Rule != rule || d.Allowed != allowed {
				t.Fatalf("%+v: %s, allowed %t; want %s, %t", *p, d.Rule, d.Allowed, rule, allowed)
			}
			switch d.Rule {
			case RuleDomain, RuleTotal, RuleDomains, RuleUnhealthyNo:
				want := second.retryAt(p.UID)
				if second.reserved(*p) { // its own reservation is in the way, and what comes after it is not foretold
					want = time.Time{}
				}
				if !d.RetryAt.Equal(want) {
					t.Fatalf("%+v: %s, retry at %s, want %s", *p, d.Rule, d.RetryAt, want)
				}
			}
		}
	})
}

func TestMeasureAgreesWithTheNaiveImplementation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawState(t, 12)
		m := Measure(s, start)
		healthy, expected, disturbed := 0, 0, 0
		seen := map[string]bool{}
		for _, got := range m.Domains {
			c := (naive{s, start}).count(got.Group)
			if !seen[got.Group] {
				seen[got.Group] = true
				healthy, expected, disturbed = healthy+c.healthy, expected+c.expected, disturbed+len(c.disturbed)
				for _, name := range c.shifted {
					if !slices.Contains(c.disturbed, name) {
						disturbed++
					}
				}
			}
			want := *c.domains[got.Domain]
			want.Expected = (c.expected + len(c.domains) - 1) / len(c.domains)
			want.Allowed, want.Desired = got.Allowed, got.Desired
			if got != want {
				t.Fatalf("got %+v, want %+v\nof %+v", got, want, *s)
			}
		}
		if len(m.Domains) > 0 && (m.Healthy != healthy || m.Expected != expected || m.Disturbed != disturbed) {
			t.Fatalf("%+v: want %d healthy, %d expected, %d disturbed", m, healthy, expected, disturbed)
		}
	})
}

func TestAsManyAsMeasuredCanBeEvictedAndNotOneMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawState(t, 7)
		if got, want := Measure(s, start).Allowed, (naive{s, start}).most(map[string]int{}); got != want {
			t.Fatalf("%d allowed, and %d can be evicted in the best order of %+v", got, want, *s)
		}
	})
}

func TestATallyWithReservationsIsThatOfTheStateWithThem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawState(t, 12)
		tally, with := NewTally(s, start), *s
		for _, i := range rapid.SliceOfN(rapid.IntRange(0, 11), 0, 6).Draw(t, "evictions") {
			if i >= len(s.Pods) {
				continue
			}
			uid := s.Pods[i].UID
			before := tally.Measures()
			if d := tally.Decide(uid); !d.Allowed || !d.Reserve {
				continue
			}
			r, changed := tally.Reserve(uid, "holder")
			if changed {
				with.Reservations = stored(with.Reservations, r)
			}
			again := NewTally(&with, start)
			after := tally.Measures()
			if want := again.Measures(); !reflect.DeepEqual(after, want) {
				t.Fatalf("after %s: %+v\nwant %+v", uid, after, want)
			}
			for j := range s.Pods {
				if got, want := withoutLimits(tally.Decide(s.Pods[j].UID)), withoutLimits(again.Decide(s.Pods[j].UID)); !reflect.DeepEqual(got, want) {
					t.Fatalf("after %s, %s: %+v\nwant %+v", uid, s.Pods[j].UID, got, want)
				}
			}
			if after.Allowed > before.Allowed {
				t.Fatalf("the reservation of %s raises what is allowed from %d to %d", uid, before.Allowed, after.Allowed)
			}
			for j := range after.Domains {
				if after.Domains[j].Allowed > before.Domains[j].Allowed {
					t.Fatalf("the reservation of %s raises what is allowed from %+v to %+v", uid, before.Domains[j], after.Domains[j])
				}
			}
		}
	})
}

// stored adds a reservation to a list. It replaces that of the same pod.
func stored(list []Reservation, r Reservation) []Reservation {
	var others []Reservation
	for _, other := range list {
		if other.UID != r.UID {
			others = append(others, other)
		}
	}
	return append(others, r)
}

// withoutLimits drops the pointer to the budget of a decision.
func withoutLimits(d Decision) Decision {
	d.Limits = nil
	return d
}
