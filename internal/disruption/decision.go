package disruption

import "time"

// Rule names what decided.
type Rule string

// The rules.
const (
	RuleNotCovered  Rule = "NotCovered"  // the pod is not the budget's
	RuleGone        Rule = "Gone"        // the pod is pending, finished, terminating or on no node that is there: nothing is lost
	RuleReserved    Rule = "Reserved"    // admitted before
	RuleExpiring    Rule = "Expiring"    // admitted before, and the reservation ends too soon for another try
	RuleBreakGlass  Rule = "BreakGlass"  // everything is let through for a while
	RuleUnit        Rule = "Unit"        // the pod's unit is down already
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
	Pod     string // its name, empty if the budget does not know it
	Allowed bool
	// Reserve is set if the eviction may only be admitted once the reservation is stored that
	// Tally.Reserve makes of it.
	Reserve bool
	Rule    Rule
	// Exceeded is the limit that RuleUnhealthyNo is about: RuleDomain, RuleTotal or RuleDomains.
	Exceeded Rule
	// Limits are those of the budget as they are written.
	Limits *Budget
	// Domain has the numbers of the pod's domain, before the eviction. If the pod's unit
	// stands in several, it is the first that has no more to spare.
	Domain DomainMeasure
	// Total are the numbers of all domains of the pod's group; Desired and Allowed are what
	// MaxTotal leaves, 0 without it.
	Total DomainMeasure
	// Domains is how many there are.
	Domains int
	// Disturbed are the domains of the group that are disturbed, in their order.
	Disturbed []string
	// DisturbedAnywhere is how many more there are at most, since pods are missing that may be
	// of any.
	DisturbedAnywhere int
	// Down are pods of the pod's domain that are down, and why, in the order of their names.
	// For RuleTotal and RuleDomains they are those of all domains, one domain after the other,
	// for RuleDomains with those that are not settled. DownMore is how many are not listed.
	Down     []DownPod
	DownMore int
	// Limits in force, as numbers: MaxDown of the domain, MaxTotal and MaxDomains, -1 for none.
	MaxDown, MaxTotal, MaxDomains int
	// RetryAt, if not zero, is when time alone changes the answer: a domain settles, a
	// reservation expires, the break glass ends.
	RetryAt time.Time
	Reason  string // of the break glass, or why the budget is invalid
}

// maxListed is how many pods a Decision lists.
const maxListed = 20

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
	WhySettling    Why = "only just ready" // disturbs its domain, and is not down
)

// Decide says whether a pod may be evicted now. For many decisions about one State, make a
// Tally of it.
func Decide(s *State, uid string, now time.Time) Decision {
	return NewTally(s, now).Decide(uid)
}
