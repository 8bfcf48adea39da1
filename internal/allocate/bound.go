package allocate

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"vicinity.dev/vicinity/internal/topology"
)

// Validate returns an error that names an invalid field of the intent.
func (i Intent) Validate() error {
	if err := i.Tiers.Validate(); err != nil {
		return err
	}
	if i.Bound == nil {
		return nil
	}
	if i.Tiers.Hard() {
		switch last := i.Tiers[len(i.Tiers)-1]; last {
		case topology.Region:
		case topology.Zone, topology.Hostname:
			return fmt.Errorf("topology keys: %q as the last key allows no endpoint of another zone, so there is nothing for an algorithm to divide; add a wider key or %q, or leave out the algorithm",
				last, topology.Anywhere)
		default:
			return fmt.Errorf("topology keys: %q as the last key is a requirement that an algorithm, which divides endpoints among zones, cannot keep; add %q or %q, or leave out the algorithm",
				last, topology.Region, topology.Anywhere)
		}
	}
	return i.Bound.Validate()
}

// Validate returns an error that names an invalid field of the bound.
func (b *Bound) Validate() error {
	switch {
	case !slices.Contains(Algorithms(), b.Algorithm):
		return fmt.Errorf("algorithm: %q is unknown; allowed are %s", b.Algorithm, algorithmNames())
	case !(b.OverloadThreshold > 0) || math.IsInf(b.OverloadThreshold, 1):
		return fmt.Errorf("overload threshold: %g%% is not allowed; it must be a percentage above 0", 100*b.OverloadThreshold)
	case b.Start.Endpoints < 0 || b.Start.Endpoints > maxEndpoints:
		return fmt.Errorf("starting threshold: %d is not allowed; it must be 0 or more endpoints, and at most %d", b.Start.Endpoints, maxEndpoints)
	case !(b.Start.PerZone >= 0) || b.Start.PerZone > maxEndpoints:
		return fmt.Errorf("starting threshold: %gx is not allowed; it must be 0 or more endpoints for each zone, and at most %d", b.Start.PerZone, maxEndpoints)
	case b.Padding < 0 || b.Padding > maxEndpoints:
		return fmt.Errorf("padding: %d is not allowed; it must be 0 or more endpoints, and at most %d", b.Padding, maxEndpoints)
	}
	return nil
}

func algorithmNames() string {
	var names []string
	for _, a := range Algorithms() {
		names = append(names, string(a))
	}
	return strings.Join(names, ", ")
}

// Limits on a region, far beyond any cluster, that keep sums exact and loops short.
const (
	maxEndpoints = 1 << 24
	maxCapacity  = 1e15
)

// load takes the region and checks it.
func (p *Planner) load(region Region) error {
	p.take(region)
	for i := range p.zones {
		z := &p.zones[i]
		switch {
		case i > 0 && z.Name == p.zones[i-1].Name:
			return fmt.Errorf("zone %q is given twice", z.Name)
		case z.Endpoints < 0:
			return fmt.Errorf("zone %q: %d endpoints; there cannot be fewer than 0", z.Name, z.Endpoints)
		case z.Endpoints > maxEndpoints:
			return fmt.Errorf("zone %q: %d endpoints; at most %d are supported", z.Name, z.Endpoints, maxEndpoints)
		case !(z.Capacity >= 0) || z.Capacity > maxCapacity:
			return fmt.Errorf("zone %q: capacity %g; it must be from 0 to %g", z.Name, z.Capacity, maxCapacity)
		}
	}
	return nil
}

// take sorts the zones of the region, and computes shares and expected endpoints.
func (p *Planner) take(region Region) {
	p.zones = append(p.zones[:0], region.Zones...)
	slices.SortFunc(p.zones, func(a, b Zone) int { return strings.Compare(a.Name, b.Name) })
	p.region = region
	p.region.Zones = p.zones
	p.names = p.names[:0]
	p.endpoints, p.active = 0, 0
	capacity := 0.0
	for i := range p.zones {
		z := &p.zones[i]
		p.names = append(p.names, z.Name)
		p.endpoints += z.Endpoints
		capacity += z.Capacity
		if z.isActive() {
			p.active++
		}
	}
	p.shares = grow(p.shares, len(p.zones))
	p.expected = grow(p.expected, len(p.zones))
	if capacity == 0 {
		return
	}
	for i := range p.zones {
		p.shares[i] = p.zones[i].Capacity / capacity
		// One division, so that whole and half numbers come out exact.
		p.expected[i] = float64(p.endpoints) * p.zones[i].Capacity / capacity
	}
}

// withoutTraffic reports whether no zone has capacity, so that no share is known.
func (p *Planner) withoutTraffic() bool {
	for _, share := range p.shares {
		if share > 0 {
			return false
		}
	}
	return true
}

// bounded allocates by the bound, once there are enough endpoints to start.
func (p *Planner) bounded(outcome Outcome, intent Intent, previous Previous) (Plan, Outcome) {
	bound := intent.Bound
	outcome.Algorithm = bound.Algorithm
	outcome.Threshold = bound.OverloadThreshold
	if bound.Algorithm != Flow { // flow has no start
		outcome.Start = bound.Start.In(p.active)
		outcome.Padding = bound.Padding
	}
	if bound.Algorithm == Balanced && p.endpoints > 0 {
		return p.fallBack(outcome, RuleAsked, intent.Tiers)
	}
	above := p.endpoints >= outcome.Start+outcome.Padding
	below := !above && p.endpoints <= outcome.Start-outcome.Padding
	if previous.State != Waiting && !below {
		outcome.State = Downgraded // unless there is a plan
	}
	switch {
	case p.endpoints == 0:
		return p.fallBack(outcome, RuleNoEndpoints, intent.Tiers)
	case p.withoutTraffic():
		return p.fallBack(outcome, RuleNoCapacity, intent.Tiers)
	case p.active == 1 && bound.Algorithm != Auto: // Auto has a safeguard of its own
		if choosesInZone(intent.Tiers) {
			return p.nearest(outcome, intent.Tiers)
		}
		return p.fallBack(outcome, RuleOneZone, intent.Tiers)
	case below:
		return p.fallBack(outcome, RuleBelowStart, intent.Tiers)
	case !above && previous.State == Waiting:
		return p.fallBack(outcome, RuleInBand, intent.Tiers)
	}
	p.prior, p.renew = Plan{}, previous.Renew
	if previous.State == Allocated && (bound.Algorithm.Weighted() || !previous.Plan.hasWeights()) {
		p.remember(previous.Plan)
	}
	var decided verdict
	hardRegion := intent.Tiers.Hard() && intent.Tiers[len(intent.Tiers)-1] == topology.Region
	if slices.Contains(intent.Tiers, topology.Region) && (hardRegion || bound.Algorithm != Flow) {
		// Flow prefers the region by itself.
		decided = p.byRegion(bound, hardRegion)
	} else {
		decided = p.divide(bound)
	}
	if !decided.planned() {
		if decided.rule != RuleOneZone || previous.State != Waiting {
			outcome.State = Downgraded
		}
		outcome.Zone, outcome.Overload, outcome.Minimum = decided.zone, decided.overload, decided.minimum
		return p.fallBack(outcome, decided.rule, intent.Tiers)
	}
	outcome.State = Allocated
	outcome.Rule, outcome.Figures = decided.rule, decided.figures
	outcome.Before = decided.before
	outcome.Undivided = p.undivided(p.made)
	return p.made, outcome
}

// verdict is the result of an algorithm. The builder holds a plan only if it is planned.
type verdict struct {
	rule     Rule
	figures  Figures // of the plan
	before   Figures // of the plan that it replaces, where the rule is RuleRenewed
	zone     string
	overload float64
	minimum  int
}

func (v verdict) planned() bool {
	return v.rule == RulePlanned || v.rule == RuleKept || v.rule == RuleRenewed
}

// divide makes the plan of one region with endpoints and traffic. It keeps the prior plan, with as
// few changes as possible, while that is good, and else makes a new one.
func (p *Planner) divide(bound *Bound) verdict {
	if bound.Algorithm == Auto {
		if refused := p.autoMinimums(bound.OverloadThreshold); refused.rule != "" {
			return refused
		}
	}
	if bound.Algorithm == Flow {
		p.plan.reset()
		decided := p.flow(bound.OverloadThreshold)
		decided.figures = p.measured()
		return decided
	}
	if !p.Eager && p.carryOver() {
		if figures := p.measured(); bound.allows(figures) {
			if p.renew {
				return p.renewed(bound, figures)
			}
			return verdict{rule: RuleKept, figures: figures}
		}
	}
	return p.makePlan(bound)
}

// renewed makes a new plan if that is better than the plan in the builder, which has the given
// figures and could be kept.
func (p *Planner) renewed(bound *Bound, kept Figures) verdict {
	prior := p.prior
	decided := p.makePlan(bound)
	if decided.planned() && Renews(decided.figures, kept) {
		decided.rule, decided.before = RuleRenewed, kept
		return decided
	}
	p.prior = prior
	p.carryOver()
	return verdict{rule: RuleKept, figures: p.measured()}
}

// Renews reports whether a new plan justifies moving endpoints. It must not take traffic from its
// own node.
func Renews(fresh, kept Figures) bool {
	weights := DefaultWeights()
	return fresh.SameNode >= kept.SameNode-tolerance && weights.Score(fresh, 1) >= weights.Score(kept, 1)+RenewMargin
}

// makePlan makes a new plan. Among equally good ones it takes the one nearest to the prior plan.
func (p *Planner) makePlan(bound *Bound) verdict {
	if p.Forgetful {
		p.prior = Plan{}
	}
	p.plan.reset()
	var decided verdict
	switch bound.Algorithm {
	case Local:
		decided = p.local(bound.OverloadThreshold)
	case LocalShared:
		decided = p.localShared(bound.OverloadThreshold)
	case LocalWeighted:
		decided = p.localWeighted()
	case LocalOpt:
		decided = p.localOpt()
	case Auto:
		decided = p.auto()
	case Optimal:
		decided = p.optimal(bound.OverloadThreshold)
	}
	if !decided.planned() {
		return decided
	}
	p.settle()
	decided.figures = p.measured()
	switch {
	case decided.figures.Unreached > 0:
		return verdict{rule: RuleOverload, zone: p.unreached(), overload: math.Inf(1)}
	case !bound.allows(decided.figures):
		return verdict{rule: RuleOverload, overload: decided.figures.Overload}
	}
	return decided
}

// allows reports whether a plan with such figures may be used. Upstream's Auto
// lets a load be at the threshold.
func (b *Bound) allows(f Figures) bool {
	if b.Algorithm == Auto {
		return f.Unreached == 0 && f.Overload <= b.OverloadThreshold+tolerance
	}
	return f.Unreached == 0 && f.Overload < b.OverloadThreshold-tolerance
}

// unreached returns the first zone with traffic that the plan in the builder leaves without an
// endpoint.
func (p *Planner) unreached() string {
	for z, share := range p.shares {
		if share > 0 && p.measure.width[z] == 0 {
			return p.names[z]
		}
	}
	return ""
}

// measured computes the figures of the plan in the builder.
func (p *Planner) measured() Figures {
	p.made = p.plan.plan(p.names)
	return p.measure.Measure(p.made, p.shares)
}

// undivided reports whether all zones with traffic use all endpoints alike.
func (p *Planner) undivided(plan Plan) bool {
	for z, share := range p.shares {
		for g := range plan.Groups {
			at := slices.IndexFunc(plan.Groups[g].Consumers, func(c Consumer) bool { return c.Zone == z })
			if share > 0 && (at < 0 || plan.Groups[g].Consumers[at].Weight != 1) {
				return false
			}
		}
	}
	return true
}

// balanced returns the plan in which all zones use all endpoints.
func (p *Planner) balanced(outcome Outcome, rule Rule) (Plan, Outcome) {
	p.plan.reset()
	p.addAll()
	return p.finish(outcome, rule)
}

// addAll adds a group of all endpoints for all zones.
func (p *Planner) addAll() {
	for z := range p.zones {
		p.plan.member(z, p.zones[z].Endpoints)
		p.plan.consumer(z, 1)
	}
	p.plan.close()
}

func (p *Planner) finish(outcome Outcome, rule Rule) (Plan, Outcome) {
	outcome.Rule = rule
	outcome.Figures = p.measured()
	return p.made, outcome
}
