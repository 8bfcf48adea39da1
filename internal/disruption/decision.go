package disruption

import "time"

// Rule names the reason of a decision.
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

// Decision is the answer about one pod, with the numbers behind it.
type Decision struct {
	Budget  string
	Pod     string // its name, empty if the budget does not know it
	Allowed bool
	// Reserve says that the eviction may be admitted only once the reservation that Tally.Reserve returns is stored.
	Reserve bool
	Rule    Rule
	// Exceeded is the limit behind RuleUnhealthyNo: RuleDomain, RuleTotal or RuleDomains.
	Exceeded Rule
	// Limits are the limits as written.
	Limits *Budget
	// Domain has the numbers of the pod's domain before the eviction. If the pod's unit is in several domains, it is
	// the first one without room.
	Domain DomainMeasure
	// Total has the numbers of all domains of the pod's group. Desired and Allowed follow from MaxTotal, 0 without it.
	Total DomainMeasure
	// Domains is how many there are.
	Domains int
	// Disturbed lists the disturbed domains of the group.
	Disturbed []string
	// DisturbedAnywhere is how many more domains may be disturbed, since missing pods may be of any.
	DisturbedAnywhere int
	// Down lists pods that are down in the pod's domain, by name, and why. For RuleTotal and RuleDomains it lists those
	// of all domains, one domain after the other, for RuleDomains with those that have not settled. DownMore counts
	// those that are not listed.
	Down     []DownPod
	DownMore int
	// The limits in force as numbers, -1 for none: MaxDown of the domain, MaxTotal, MaxDomains.
	MaxDown, MaxTotal, MaxDomains int
	// RetryAt, if not zero, is when time alone changes the answer: a domain settles, a reservation expires, or the
	// break glass ends.
	RetryAt time.Time
	Reason  string // of the break glass, or why the budget is invalid
}

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

// Decide says whether a pod may be evicted now. Make a Tally for many decisions about one State.
func Decide(s *State, uid string, now time.Time) Decision {
	return NewTally(s, now).Decide(uid)
}
