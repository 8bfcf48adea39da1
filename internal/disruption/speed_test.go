package disruption

import (
	"fmt"
	"testing"
	"time"
)

// large has 10,000 pods in 1,000 domains. Some pods are down, missing or reserved.
func large() *State {
	s := &State{
		Budget: Budget{MaxUnavailable: percent(50), MaxTotal: percent(20), MaxDomains: limit(500), Settle: time.Minute},
		Owners: []Owner{replicas(10_500)},
	}
	for i := range 1000 {
		s.Domains = append(s.Domains, fmt.Sprintf("node-%04d", i))
	}
	for i := range 10_000 {
		name := fmt.Sprintf("web-%05d", i)
		s.Pods = append(s.Pods, Pod{
			UID: "uid-of-" + name, Name: name, Owner: s.Owners[0].ID, Place: Covered, Domain: s.Domains[i%1000],
			Ready: i%1000%37 > 0, ReadySince: start.Add(-time.Hour),
		})
		if i%1000 == 50 {
			s.Reservations = append(s.Reservations, Reservation{UID: "uid-of-" + name, Pod: name, Expires: start.Add(time.Minute)})
		}
	}
	return s
}

// A batch must cost about as much as one decision. Otherwise the queue of a budget grows without end.
func TestABatchOfDecisionsCountsOnce(t *testing.T) {
	s := large()
	one := testing.AllocsPerRun(3, func() { Decide(s, s.Pods[1].UID, start) })
	batch := testing.AllocsPerRun(3, func() {
		tally := NewTally(s, start)
		for i := range 200 {
			if uid := s.Pods[i].UID; tally.Decide(uid).Allowed {
				tally.Reserve(uid, "holder")
			}
		}
	})
	if batch > 3*one+200*20 {
		t.Errorf("200 decisions allocate %.0f times, one %.0f times", batch, one)
	}
}

// The numbers of many groups take memory: the fifth budget waits for one of the first four, and a tally keeps none of them.
func TestMeasuresAreBounded(t *testing.T) {
	s := State{Domains: []string{"a", "b"}}
	for i := range 1000 {
		s.Pods = append(s.Pods, Pod{UID: fmt.Sprint(i), Name: fmt.Sprint(i), Group: fmt.Sprint(i), Domain: "a", Place: Covered, Ready: true})
	}
	for range cap(measuring) {
		measuring <- struct{}{}
	}
	tally, done := NewTally(&s, time.Time{}), make(chan Measures)
	go func() { done <- tally.Measures() }()
	select {
	case <-done:
		t.Error("it does not wait")
	case <-time.After(10 * time.Millisecond):
	}
	for range cap(measuring) {
		<-measuring
	}
	if m := <-done; len(m.Domains) != 2000 || len(tally.groups) != 0 {
		t.Errorf("%d domains, and %d groups are kept", len(m.Domains), len(tally.groups))
	}
}
