package explain

import (
	"slices"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/topology"
)

// Question asks for a comparison of plans for the endpoints of one Service.
type Question struct {
	// Region has the capacity that the Service asks for.
	Region allocate.Region
	// CPU is the same region with the capacity by CPU, which Auto needs.
	CPU allocate.Region
	// Asked is the intent of the Service.
	Asked allocate.Intent
	// Thresholds are for all algorithms except the one of Asked, which has its own.
	Thresholds allocate.Thresholds
	// Nodes are the tiers within zones, nil if there are none. They are for options with the same tiers.
	Nodes *allocate.NodeTiers
	// Algorithms are compared with Asked.
	Algorithms []allocate.Algorithm
	// Delivery decides how many slices a plan takes.
	Delivery allocate.Delivery
	// Pods names a pod of each zone, for advice.
	Pods map[string]string
}

// Comparison is the answer.
type Comparison struct {
	// Options are the asked option and one for each algorithm, in the order of the question.
	Options []Option
	// Asked and Shown are indexes in Options: the option of the Service, and the one to show in full. They differ if
	// the Service asks for nothing.
	Asked, Shown int
}

// Option is one way to divide the endpoints, with its results.
type Option struct {
	// Algorithm is empty for an intent of tiers alone.
	Algorithm allocate.Algorithm
	Intent    allocate.Intent
	Plan      allocate.Plan
	Outcome   allocate.Outcome
	// Figures are those of the plan for the traffic of the question's Region. They differ from the outcome's where Auto
	// plans by another capacity.
	Figures allocate.Figures
	// Nodes says which nodes prefer their own endpoints, nil without tiers within zones. Endpoints are those of its
	// loads, as the plan assigns them.
	Nodes     *allocate.NodePlan
	Endpoints []allocate.Endpoint
	Slices    int
	// Total is the score from 0 to 100, as in simulations. It is 0 if a zone with traffic reaches no endpoint.
	Total float64
}

// Compare makes the plans.
func Compare(q Question) (Comparison, error) {
	var c Comparison
	for i, intent := range q.intents() {
		option, err := q.option(new(allocate.Planner), q.Region, q.CPU, intent)
		if err != nil {
			return Comparison{}, err
		}
		if err := q.place(&option); err != nil {
			return Comparison{}, err
		}
		if q.isAsked(intent) {
			c.Asked = i
		}
		c.Options = append(c.Options, option)
	}
	c.Shown = c.Asked
	if len(q.Asked.Tiers) == 0 && q.Asked.Bound == nil {
		c.Shown = c.best()
		usual := allocate.Optimal
		if q.Delivery == allocate.DeliveryGroups {
			usual = allocate.Flow
		}
		for i := range c.Options {
			if c.Options[i].Algorithm == usual {
				c.Shown = i
			}
		}
	}
	return c, nil
}

// Best returns the option with the highest score. Among equal ones it prefers the asked one, then the first.
func (c Comparison) Best() Option { return c.Options[c.best()] }

func (c Comparison) best() int {
	best := c.Asked
	for i := range c.Options {
		if better(c.Options[i], c.Options[best], 1e-9) {
			best = i
		}
	}
	return best
}

// better reports whether a leaves fewer zones without an endpoint than b, or as many and has a score higher by more than
// points.
func better(a, b Option, points float64) bool {
	if a.Figures.Unreached != b.Figures.Unreached {
		return a.Figures.Unreached < b.Figures.Unreached
	}
	return a.Total > b.Total+points
}

// intents returns the intents of the options.
func (q Question) intents() []allocate.Intent {
	var intents []allocate.Intent
	for _, algorithm := range q.Algorithms {
		intents = append(intents, q.intentFor(algorithm))
	}
	if !slices.ContainsFunc(intents, q.isAsked) {
		asked := q.Asked
		if len(asked.Tiers) == 0 && asked.Bound == nil {
			asked = q.intentFor(allocate.Balanced)
		}
		intents = slices.Insert(intents, 0, asked)
	}
	return intents
}

// isAsked reports whether the Service has this intent. No intent is the same as the balanced algorithm.
func (q Question) isAsked(intent allocate.Intent) bool {
	if q.Asked.Bound != nil {
		return intent.Bound == q.Asked.Bound
	}
	if len(q.Asked.Tiers) == 0 {
		return intent.Bound != nil && intent.Bound.Algorithm == allocate.Balanced
	}
	return intent.Bound == nil
}

// intentFor returns the Service's intent with another algorithm.
func (q Question) intentFor(algorithm allocate.Algorithm) allocate.Intent {
	if q.Asked.Bound != nil && q.Asked.Bound.Algorithm == algorithm {
		return q.Asked
	}
	intent := allocate.Intent{Tiers: topology.Tiers{topology.Zone, topology.Anywhere}}
	if q.Asked.Bound != nil {
		intent.Tiers = q.Asked.Tiers
	}
	bound := q.Thresholds.Bound(algorithm)
	intent.Bound = &bound
	return intent
}

// option plans for a region. cpu is the same region with the capacity by CPU.
func (q Question) option(planner *allocate.Planner, region, cpu allocate.Region, intent allocate.Intent) (Option, error) {
	o := Option{Intent: intent}
	planned := region
	if intent.Bound != nil {
		o.Algorithm = intent.Bound.Algorithm
	}
	if o.Algorithm == allocate.Auto {
		planned = cpu
	}
	plan, outcome, err := planner.Allocate(planned, intent, allocate.Previous{})
	if err != nil {
		return Option{}, err
	}
	o.Plan, o.Outcome = plan.Clone(), outcome
	q.rate(&o, region)
	return o, nil
}

// place finds the nodes that prefer their own endpoints. With hints there are none if all zones share all endpoints.
func (q Question) place(o *Option) error {
	if q.Nodes == nil || !slices.Equal(o.Intent.Tiers, q.Asked.Tiers) || q.Delivery == allocate.DeliveryHints && o.Outcome.IsBalanced() {
		return nil
	}
	tiers := *q.Nodes
	tiers.Endpoints = slices.Clone(tiers.Endpoints)
	if _, err := allocate.Assign(o.Plan, tiers.Endpoints); err != nil {
		return err
	}
	tiers.Threshold = 0
	if o.Intent.Bound != nil {
		tiers.Threshold = o.Intent.Bound.OverloadThreshold
	}
	plan := tiers.Plan()
	o.Nodes, o.Endpoints = &plan, tiers.Endpoints
	q.rate(o, q.Region)
	return nil
}

// rate measures the plan of an option.
func (q Question) rate(o *Option, region allocate.Region) {
	o.Figures = new(allocate.Meter).Measure(o.Plan, region.Shares(o.Plan.Zones))
	if o.Nodes != nil {
		o.Figures, o.Outcome.Figures = o.Nodes.Figures, o.Nodes.Figures
	}
	needed := (o.Outcome.Endpoints + allocate.DefaultSliceSize - 1) / allocate.DefaultSliceSize
	o.Slices, o.Total = needed, 0
	if q.Delivery == allocate.DeliveryGroups {
		o.Slices = o.Plan.Slices(allocate.DefaultSliceSize)
	}
	if o.Figures.Unreached == 0 && o.Slices > 0 {
		o.Total = allocate.DefaultWeights().Score(o.Figures, float64(needed)/float64(o.Slices))
	}
}

// Decide replaces the asked option's plan by one that was decided elsewhere, perhaps from a previous plan. nodes and
// endpoints are as in Option.
func (c *Comparison) Decide(q Question, plan allocate.Plan, outcome allocate.Outcome, nodes *allocate.NodePlan, endpoints []allocate.Endpoint) {
	o := &c.Options[c.Asked]
	o.Plan, o.Outcome, o.Nodes, o.Endpoints = plan.Clone(), outcome, nodes, endpoints
	q.rate(o, q.Region)
}
