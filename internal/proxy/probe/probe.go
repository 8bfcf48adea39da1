// Package probe finds out whether packets of a node pass the rules of this proxy: it connects from the node to
// an address that only those rules lead anywhere, and checks that this process answers.
//
// The probe fails if another program translates the address first or answers in place of the rules, or if
// packets bypass a kernel hook. It says nothing about packets of pods, which pass another hook.
package probe

import (
	"errors"
	"net/netip"
	"time"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// Outcome is the result of probes.
type Outcome int

// The outcomes.
const (
	// Pending means that there were too few probes yet.
	Pending Outcome = iota
	Passed
	Failed
	// Impossible means that the node cannot be probed, for a reason that says nothing about its rules.
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

// impossibleError is a failure that says nothing about the rules.
type impossibleError struct{ reason string }

func (e impossibleError) Error() string { return e.reason }

// State is the state of one address family.
type State struct {
	Outcome Outcome
	// Reason explains Failed and Impossible.
	Reason string
	// Proven is when the last passed probe began, zero if none did.
	Proven time.Time
	// next is when to probe again, zero for at once. missed counts failures in a row.
	next   time.Time
	missed int
}

// take notes a probe. Only several failures in a row change the outcome: packets are lost now and then, and
// changed rules are repaired within a second.
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

// Verdict joins the states of all families.
type Verdict struct {
	// Holds says that each family that can be probed passed.
	Holds bool
	// Recent says that each passed a moment ago, and that no probe failed or was asked for since.
	Recent bool
	// Due says that another probe comes soon, since one failed or was asked for.
	Due bool
	// Failure says what failed, empty for nothing.
	Failure string
}

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
	// Endpoint is where the rules in the kernel lead it, invalid while there are none.
	Endpoint netip.AddrPort
}
