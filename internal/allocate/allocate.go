// Package allocate decides which endpoints each zone of a region may use, so that
// traffic stays near while no endpoint gets much more than its share.
//
// The input is a Region (zones with capacity and endpoints), an Intent (the requested routing) and
// the Previous allocation. The output is a Plan (groups of endpoints and the zones that consume
// them) and an Outcome: the rule that decided, as data, which routing/explain puts into words. Each
// algorithm has a file of its own; Planner.Allocate calls them.
//
// Plans have counts only; Assign maps a plan to individual endpoints. The order of zones
// in the input does not matter: ties go by zone name.
package allocate

import (
	"fmt"
	"math"

	"vicinity.dev/vicinity/internal/topology"
)

// Zone is one zone of a region.
type Zone struct {
	Name string
	// Region is the wider domain of the zone, needed by tiers with the region key only.
	Region string
	// Capacity is the zone's weight in the traffic, in any unit. Its share of the sum is the
	// share of traffic expected from the zone.
	Capacity float64
	// Endpoints is the number of ready endpoints.
	Endpoints int
}

// Region has all zones of a Service's clients and endpoints. Endpoints without a zone are
// in the zone named "", which has no capacity.
type Region struct {
	Zones []Zone
	// NodesWithoutZone and NodesWithoutCapacity count nodes that are in no zone's capacity,
	// though they should be. Only Auto uses them.
	NodesWithoutZone     int
	NodesWithoutCapacity int
}

// Endpoints is the number of ready endpoints in all zones.
func (r Region) Endpoints() int {
	sum := 0
	for i := range r.Zones {
		sum += r.Zones[i].Endpoints
	}
	return sum
}

// ActiveZones is the number of zones that have capacity or endpoints.
func (r Region) ActiveZones() int {
	active := 0
	for i := range r.Zones {
		if r.Zones[i].isActive() {
			active++
		}
	}
	return active
}

func (z *Zone) isActive() bool {
	return z.Capacity > 0 || z.Endpoints > 0
}

// Algorithm names a way to divide endpoints among zones.
type Algorithm string

// The algorithms. docs/concepts/algorithms.md describes each.
const (
	Balanced      Algorithm = "balanced"
	Local         Algorithm = "local"
	LocalShared   Algorithm = "local-shared"
	LocalWeighted Algorithm = "local-weighted"
	LocalOpt      Algorithm = "local-opt"
	Auto          Algorithm = "auto"
	Optimal       Algorithm = "optimal"
	Flow          Algorithm = "flow"
)

// Algorithms lists all algorithms, the simplest first.
func Algorithms() []Algorithm {
	return []Algorithm{Balanced, Local, LocalShared, LocalWeighted, LocalOpt, Auto, Optimal, Flow}
}

// Weighted reports whether the plans of the algorithm give consumers unequal
// weights, which hints cannot carry.
func (a Algorithm) Weighted() bool {
	return a == LocalWeighted || a == LocalOpt || a == Flow
}

// Defaults of a Bound.
const (
	DefaultOverloadThreshold     = 0.5
	DefaultAutoOverloadThreshold = 0.2
	DefaultStartPerZone          = 3
	DefaultPadding               = 3
)

// Start is the number of endpoints at which allocation of a Service begins: a fixed number, or a
// number for each zone of the region. The larger of the two counts.
type Start struct {
	Endpoints int
	PerZone   float64
}

// In returns the number of endpoints for a region of so many zones.
func (s Start) In(zones int) int {
	return max(s.Endpoints, int(math.Ceil(s.PerZone*float64(zones)-tolerance)))
}

// String is the form in which users write it: "12" or "3x".
func (s Start) String() string {
	if s.PerZone > 0 && s.Endpoints == 0 {
		return fmt.Sprintf("%gx", s.PerZone)
	}
	return fmt.Sprint(s.Endpoints)
}

// Bound asks for an algorithm that limits the overload of endpoints.
type Bound struct {
	Algorithm Algorithm
	// OverloadThreshold is the load above the even share that no endpoint may
	// reach: 0.5 means less than 1.5 times the even share.
	OverloadThreshold float64
	// Start is the number of endpoints below which the Service is balanced. Flow has neither
	// Start nor Padding: its plans are never worse than balanced.
	Start Start
	// Padding widens Start to a band in which the state stays, so that it does not flap.
	Padding int
}

// Intent is the request of a Service.
type Intent struct {
	// Tiers are the places to prefer. Without tiers and Bound the Service is
	// balanced; without tiers alone the bound may use all endpoints.
	Tiers topology.Tiers
	// Bound, if set, has an algorithm decide which endpoints each zone may use. Without it
	// each zone uses its nearest tier, at any load.
	Bound *Bound
}

// State is the part of an allocation that the EndpointSlices of a Service do not hold.
type State int

// The states of an allocation.
const (
	// Waiting is the state of a Service that has too few endpoints to start, or again too few.
	Waiting State = iota
	// Allocated is the state of a Service whose plan is in force.
	Allocated
	// Downgraded is the state of a Service that has started but is balanced: every plan would
	// overload an endpoint, or there is nothing to plan.
	Downgraded
)

// String is the word for the state in outcomes and logs.
func (s State) String() string {
	switch s {
	case Waiting:
		return "waiting"
	case Allocated:
		return "allocated"
	case Downgraded:
		return "downgraded"
	}
	return fmt.Sprintf("State(%d)", int(s))
}

// Previous is the allocation in force. The zero value means none.
type Previous struct {
	State State
	// Plan has the endpoints that are still ready, with their present assignment. It comes from
	// Survivors or from a Planner. All other endpoints of the region are new.
	Plan Plan
	// Renew asks for a new plan even if the present one could be kept. The new plan must score
	// better by RenewMargin.
	Renew bool
}

// RenewMargin is the number of points, of 100, by which a new plan must be better to justify moving
// endpoints. One point is about two percent of the traffic staying in its zone.
const RenewMargin = 1.0

// Rule names the rule that decided an outcome.
type Rule string

// The rules. Package explain has a sentence for each.
const (
	RuleAsked          Rule = "Asked"          // balanced, as requested
	RuleNoEndpoints    Rule = "NoEndpoints"    // nothing to allocate
	RuleNoCapacity     Rule = "NoCapacity"     // no zone has any capacity, so shares are unknown
	RuleOneZone        Rule = "OneZone"        // one zone has all capacity and endpoints; for Auto, all capacity
	RuleTiers          Rule = "Tiers"          // each zone uses its nearest tier, without a bound
	RuleBelowStart     Rule = "BelowStart"     // fewer endpoints than needed to start
	RuleInBand         Rule = "InBand"         // within the padding, not started: stays balanced
	RuleKept           Rule = "Kept"           // the previous plan, with changes, is still good
	RulePlanned        Rule = "Planned"        // a new plan
	RuleRenewed        Rule = "Renewed"        // a new plan, requested by Previous.Renew, that is better than the previous one
	RuleOverload       Rule = "Overload"       // no plan of the algorithm is below the threshold
	RuleNothingToSpare Rule = "NothingToSpare" // a zone needs endpoints of others, and none has any to spare
	RuleFewEndpoints   Rule = "FewEndpoints"   // fewer endpoints than zones
	RuleNodeNoZone     Rule = "NodeNoZone"     // Auto: a node has no zone
	RuleNodeNoCapacity Rule = "NodeNoCapacity" // Auto: a node has no allocatable CPU
	RuleEndpointNoZone Rule = "EndpointNoZone" // Auto: an endpoint has no zone
	RuleMinimums       Rule = "Minimums"       // Auto: the zones' minimums add up to more than there is
)

// Outcome is the decision and its reason, as data.
type Outcome struct {
	State State
	Rule  Rule
	// Algorithm is the requested algorithm.
	Algorithm Algorithm
	// Endpoints and Zones are the size of the region: ready endpoints, and zones
	// with capacity or endpoints.
	Endpoints, Zones int
	// Start and Padding are the bound's, in endpoints.
	Start, Padding int
	// Threshold is the overload threshold in effect.
	Threshold float64
	// Zone is the zone that the rule is about, if it is about one.
	Zone string
	// Overload is, where Rule is RuleOverload, the least overload that the algorithm could reach.
	// It is infinite if a zone would reach no endpoint.
	Overload float64
	// Minimum is, where Rule is RuleMinimums, the sum of the zones' minimums.
	Minimum int
	// Figures predict the traffic under the plan.
	Figures Figures
	// Before are, where Rule is RuleRenewed, the figures of the plan that was replaced.
	Before Figures
	// Undivided reports that the plan in force has all zones use all endpoints.
	Undivided bool
}

// IsBalanced reports whether all zones use all endpoints.
func (o Outcome) IsBalanced() bool {
	return o.State != Allocated
}

// tolerance absorbs rounding. A load this close to a threshold is at it.
const tolerance = 1e-9

// Planner allocates. It owns the memory of the plans that it returns and reuses it. It is not safe
// for concurrent use. The zero value is ready.
type Planner struct {
	// Eager makes a new plan at every change, even if the previous plan is still good.
	Eager bool
	// Forgetful ignores the previous plan when it chooses among equally good ones.
	Forgetful bool

	region    Region    // with zones in the order of their names
	zones     []Zone    // of region
	names     []string  // of zones
	shares    []float64 // of traffic, by zone
	expected  []float64 // endpoints, by zone
	endpoints int       // in all
	active    int       // zones with capacity or endpoints
	renew     bool      // of the previous allocation
	prior     Plan      // the previous plan, in the numbering of zones
	strays    regionKey // the region that counts endpoints without a zone as its own
	memory    builder   // of prior
	plan      builder
	made      Plan // the plan that was measured last
	measure   Meter
	child     *Planner // for the parts of a region of regions

	// Scratch memory of each algorithm, of carryOver and of settle.
	exchange        exchange // of local and local-shared
	weightedScratch weightedScratch
	optScratch      optScratch
	autoScratch     autoScratch
	search          search // of optimal
	flows           flows  // of flow
	carryScratch    carryScratch
	settleScratch   settleScratch
}

// Allocate calls Planner.Allocate with a new Planner.
func Allocate(region Region, intent Intent, previous Previous) (Plan, Outcome, error) {
	return new(Planner).Allocate(region, intent, previous)
}

// Allocate decides the plan for a region. The plan is valid until the next call. The error names
// the invalid field of region or intent.
func (p *Planner) Allocate(region Region, intent Intent, previous Previous) (Plan, Outcome, error) {
	if err := intent.Validate(); err != nil {
		return Plan{}, Outcome{}, err
	}
	if err := p.load(region); err != nil {
		return Plan{}, Outcome{}, err
	}
	plan, outcome := p.decide(intent, previous)
	return plan, outcome, nil
}

// decide decides the plan for the loaded region.
func (p *Planner) decide(intent Intent, previous Previous) (Plan, Outcome) {
	outcome := Outcome{Endpoints: p.endpoints, Zones: p.active}
	switch {
	case intent.Bound != nil:
		return p.bounded(outcome, intent, previous)
	case p.endpoints == 0:
		return p.balanced(outcome, RuleNoEndpoints)
	case len(intent.Tiers) == 0:
		return p.balanced(outcome, RuleAsked)
	case p.active == 1 && !intent.Tiers.Hard() && !choosesInZone(intent.Tiers):
		return p.balanced(outcome, RuleOneZone)
	}
	return p.nearest(outcome, intent.Tiers)
}
