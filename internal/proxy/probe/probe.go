// Package probe finds out whether packets of a node come through the rules that this proxy
// writes: it connects from the node to an address that only those rules lead anywhere, and
// looks whether this very process answers.
//
// Another program that translates the address first, one that answers in place of the rules,
// and a kernel hook that packets do not pass all make it fail. It shows how packets of the
// node itself go. Those of pods pass another hook, of which it says nothing.
//
// The package does not write rules and does not say what becomes of the result.
package probe

import (
	"errors"
	"net/netip"
	"time"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// Outcome is what probes have shown.
type Outcome int

// The outcomes.
const (
	// Pending is that there were not enough probes yet.
	Pending Outcome = iota
	Passed
	Failed
	// Impossible is that the node cannot be probed, for a reason that says nothing about its
	// rules.
	Impossible
)

// Pace is how often to probe.
type Pace struct {
	// Every is the time between probes while they pass, or are impossible.
	Every time.Duration
	// Again is the time until the next probe after a failure, until Tries in a row failed, and Retry
	// the time after that.
	Again, Retry time.Duration
	Tries        int
	// Timeout is how long a probe waits for an answer.
	Timeout time.Duration
	// Fresh is how long a passed probe counts as recent.
	Fresh time.Duration
}

// DefaultPace survives the loss of one packet: the kernel sends the first packet of a connection again after a second.
var DefaultPace = Pace{Every: 30 * time.Second, Again: time.Second, Retry: 5 * time.Second, Tries: 3, Timeout: 2 * time.Second, Fresh: 10 * time.Second}

// impossibleError is a probe that says nothing about the rules.
type impossibleError struct{ reason string }

func (e impossibleError) Error() string { return e.reason }

// State is what the probes of one address family have shown so far.
type State struct {
	Outcome Outcome
	// Reason says why the outcome is Failed or Impossible.
	Reason string
	// Proven is when the last probe that passed began, zero if none did.
	Proven time.Time
	// next is when to probe again, zero if one was requested, and missed how many in a row
	// did not pass.
	next   time.Time
	missed int
}

// take notes how a probe ended. One that does not pass changes the outcome only when those
// before it did not pass either: packets are lost now and then, and rules that somebody has
// changed are put right within a second.
func (s *State) take(failure error, began, ended time.Time, pace Pace) {
	if failure == nil {
		*s = State{Outcome: Passed, Proven: began, next: ended.Add(pace.Every)}
		return
	}
	s.missed++
	if s.missed < pace.Tries {
		s.next = ended.Add(pace.Again)
		return
	}
	s.Outcome, s.Reason, s.next = Failed, failure.Error(), ended.Add(pace.Retry)
	var impossible impossibleError
	if errors.As(failure, &impossible) {
		s.Outcome, s.next = Impossible, ended.Add(pace.Every)
	}
}

// Verdict is what the probes of all families say together.
type Verdict struct {
	// Holds says that each family that can be probed passed the last time.
	Holds bool
	// Recent says that each of them passed a moment ago, that none has failed since, and that
	// no new probe was requested since.
	Recent bool
	// Due says that another probe comes soon anyway: one has failed, or one was requested.
	Due bool
	// Failure says what failed, empty if nothing did.
	Failure string
}

// verdict joins the states of families.
func verdict(states map[ruleset.Family]State, now time.Time, fresh time.Duration) Verdict {
	v := Verdict{Holds: true, Recent: true}
	for _, family := range []ruleset.Family{ruleset.IPv4, ruleset.IPv6} {
		s, probed := states[family]
		if !probed || s.Outcome == Impossible {
			continue
		}
		v.Holds = v.Holds && s.Outcome == Passed
		v.Recent = v.Recent && s.Outcome == Passed && s.missed == 0 && !s.next.IsZero() && now.Sub(s.Proven) <= fresh
		v.Due = v.Due || s.missed > 0 || s.next.IsZero()
		if s.Outcome == Failed && v.Failure == "" {
			v.Failure = s.Reason
		}
	}
	return v
}

// Target is what to probe of a family.
type Target struct {
	Family ruleset.Family
	// Front is the address that only the rules lead anywhere.
	Front netip.AddrPort
	// Endpoint is where the rules in the kernel lead connections to it, invalid as long as
	// there are none.
	Endpoint netip.AddrPort
}
