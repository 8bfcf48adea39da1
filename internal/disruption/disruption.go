// Package disruption decides whether a pod may be evicted now, by a budget for each
// failure domain. The webhook of evictions, the responder to eviction requests, explain and
// rollouts all ask Decide, so that these cannot disagree.
//
// The invariant: however many deciders there are, whatever order they act in and wherever
// one of them ends, no eviction is admitted after which the pods that are down in a domain,
// or in all of them, or the domains that are disturbed, exceed the budget. It holds
// if each decider
//
//   - decides by a State whose reservations are those of the stored budget,
//   - has seen the pods at least as new as the version that the budget names, since the
//     reservations of pods that had gone by then are not listed any more,
//   - stores what Decide says to reserve before it answers, with a write that fails if
//     the stored budget changed meanwhile.
//
// Pods that go down by themselves are counted as soon as they are seen.
package disruption

import "time"

// Amount is a number of pods, or a percentage of those that are expected.
type Amount struct {
	Value   int
	Percent bool
}

// Budget is what is allowed. Exactly one of MinAvailable and MaxUnavailable is given. Each
// group of pods has the budget for itself.
type Budget struct {
	Name string // namespace/name
	// MinAvailable and MaxUnavailable are for each domain.
	MinAvailable, MaxUnavailable *Amount
	MaxTotal                     *Amount // of pods that are down, in all domains
	MaxDomains                   *int    // that are disturbed
	// Settle is how long pods have to be ready for their domain not to be disturbed any more.
	Settle time.Duration
	// AlwaysAllowUnhealthy has pods that are not ready evicted at any time.
	AlwaysAllowUnhealthy bool
	// BreakGlass, until its time, lets everything through.
	BreakGlass BreakGlass
	// Invalid says why the budget makes no sense. All its pods are then kept.
	Invalid string
}

// BreakGlass lets every eviction through for a while.
type BreakGlass struct {
	Until  time.Time
	Reason string
}

// State is all that a decision depends on.
type State struct {
	Budget Budget
	// Domains are the values on nodes that can hold or do hold the pods, in their order. A
	// budget without keys has the one domain "".
	Domains []string
	Owners  []Owner
	// Pods are all that the selector matches, in the order of their names.
	Pods         []Pod
	Reservations []Reservation
}

// Owner asks for pods. A pod without an owner here is expected as it is.
type Owner struct {
	ID       string // kind/name, for people too
	Replicas int
	// Group is that of its pods. If ManyGroups is set they are in several, and it is not
	// known of which group a missing pod is.
	Group      string
	ManyGroups bool
}

// Place says what the budget makes of the node of a pod.
type Place int

// The places.
const (
	Unplaced  Place = iota // not scheduled yet
	Covered                // in a domain
	Uncovered              // on a node that the budget does not cover
)

// Pod is a pod that the selector of a budget matches.
type Pod struct {
	UID, Name string
	Owner     string // ID of the Owner, empty if none is known
	Group     string
	Place     Place
	Domain    string
	// Unit, if not empty, is a set of pods that can only be disrupted together, and counts as one pod.
	Unit string

	Pending     bool // not running yet
	Finished    bool // succeeded or failed
	Terminating bool
	Ready       bool
	ReadySince  time.Time
}

// Reservation is an eviction that was admitted.
type Reservation struct {
	UID, Pod string
	Expires  time.Time
}

// ReservationTime is how long an eviction that was admitted may take. It is longer than any
// API server works on a request.
const ReservationTime = 2 * time.Minute

// Rule names what decided.
type Rule string

// The rules.
const (
	RuleNotCovered  Rule = "NotCovered"  // the pod is not the budget's
	RuleGone        Rule = "Gone"        // the pod is pending, finished or terminating: nothing is lost
	RuleReserved    Rule = "Reserved"    // admitted before
	RuleBreakGlass  Rule = "BreakGlass"  // everything is let through for a while
	RuleUnhealthy   Rule = "Unhealthy"   // the pod is down already, and the budget is kept without it
	RuleWithin      Rule = "Within"      // the budget allows it
	RuleInvalid     Rule = "Invalid"     // the budget makes no sense
	RuleDomain      Rule = "Domain"      // the pod's domain has no more to spare
	RuleTotal       Rule = "Total"       // too many are down in all domains
	RuleDomains     Rule = "Domains"     // too many other domains are disturbed
	RuleUnhealthyNo Rule = "UnhealthyNo" // the pod is down already, and the budget is exceeded
)

// Decision is the answer about one pod, with what it follows from.
type Decision struct {
	Budget  string
	Allowed bool
	// Reserve is set if the eviction may only be admitted once a reservation is stored.
	Reserve bool
	Rule    Rule
	// Domain has the numbers of the pod's domain, before the eviction.
	Domain DomainMeasure
	// Total are the numbers of all domains of the pod's group; Desired is what MaxTotal leaves.
	Total DomainMeasure
	// Disturbed are the domains of the group that are disturbed, in their order.
	Disturbed []string
	// Down are the pods of the pod's domain that are down, and why, in the order of their names.
	// For RuleTotal and RuleDomains they are those of all domains.
	Down []DownPod
	// Limits in force, as numbers: MaxDown of the domain, MaxTotal and MaxDomains, -1 for none.
	MaxDown, MaxTotal, MaxDomains int
	// RetryAt, if not zero, is when time alone changes the answer: a domain settles, a
	// reservation expires, the break glass ends.
	RetryAt time.Time
	Reason  string // of the break glass, or why the budget is invalid
}

// DownPod is a pod that counts as down.
type DownPod struct {
	Name string
	Why  Why
}

// Why is why a pod counts as down.
type Why string

// The reasons.
const (
	WhyNotReady    Why = "not ready"
	WhyTerminating Why = "terminating"
	WhyReserved    Why = "about to be evicted"
	WhySettling    Why = "not ready for long enough" // disturbs its domain, and is not down
)

// DomainMeasure has the numbers of one domain of one group.
type DomainMeasure struct {
	Group, Domain string
	Expected      int // its share of all, rounded up
	Healthy       int // not reserved
	Desired       int
	Missing       int // attributed to it, of those that have no place yet
	Anywhere      int // missing ones that count against every domain
	Allowed       int
	Disturbed     bool
}

// Measures are the numbers of a budget.
type Measures struct {
	Domains  []DomainMeasure // by group, then by domain
	Expected int
	Healthy  int
	Desired  int
	// Allowed is how many could be evicted one after the other, in the order in which most can.
	Allowed   int
	Disturbed int // domains
	// Blocked are the domains that the numbers block for ever, even if all pods are healthy.
	Blocked []DomainMeasure
}
