// Package probe checks whether packets of a node pass the rules of this proxy: it connects from the node to an address that
// only these rules translate, and checks that this process answers.
//
// The probe fails if another program translates the address first or answers instead, or if packets bypass a kernel hook. It
// does not cover packets of pods, which pass another hook.
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
	// Pending means that there were too few probes so far.
	Pending Outcome = iota
	Passed
	Failed
	// Impossible means that the node cannot be probed, for a reason that does not concern its rules.
	Impossible
)

// Pace decides how often to probe.
type Pace struct {
	// Every is the time between probes that pass or are impossible.
	Every time.Duration
	// Again is the time until the next probe after a failure. After Tries consecutive failures it is Retry.
	Again, Retry time.Duration
	Tries        int
	// Timeout is how long a probe waits for an answer.
	Timeout time.Duration
	// Fresh is how long a passed probe is recent.
	Fresh time.Duration
}

// DefaultPace tolerates the loss of one packet: the kernel repeats the first packet of a connection after a second.
var DefaultPace = Pace{Every: 30 * time.Second, Again: time.Second, Retry: 5 * time.Second, Tries: 3, Timeout: 2 * time.Second, Fresh: 10 * time.Second}

// impossibleError is a failure that does not concern the rules.
type impossibleError struct{ reason string }

func (e impossibleError) Error() string { return e.reason }

// State is the state of one address family.
type State struct {
	Outcome Outcome
	// Reason explains Failed and Impossible.
	Reason string
	// Proven is when the last passed probe began, zero for none.
	Proven time.Time
	// next is when to probe again, zero for now. missed counts consecutive failures.
	next   time.Time
	missed int
}

// take records a probe. Only several consecutive failures change the outcome: packets get lost, and changed rules are repaired
// within a second.
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
	// Holds means that all families that can be probed passed.
	Holds bool
	// Recent means that all passed recently, and that no probe has failed or was requested since.
	Recent bool
	// Due means that another probe follows soon, because one failed or was requested.
	Due bool
	// Failure is the reason of a failure, empty for none.
	Failure string
}

func verdict(states map[ruleset.Family]State, now time.Time, fresh time.Duration) Verdict {
	v := Verdict{Holds: true, Recent: true}
	for _, family := range ruleset.Families {
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

// Target is the target of a family's probes.
type Target struct {
	Family ruleset.Family
	// Front is the address that only the rules translate.
	Front netip.AddrPort
	// Endpoint is the target of the kernel's rules, invalid while there are none.
	Endpoint netip.AddrPort
}
