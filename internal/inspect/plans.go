package inspect

import (
	"strings"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/routing/explain"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// Plans are plans for the endpoints of one address family of a Service: the asked one, with other algorithms. Tables
// for people are made of them.
type Plans struct {
	Request intent.Request
	// Unit is the unit of the zones' capacity.
	Unit       intent.CapacityType
	Question   explain.Question
	Comparison explain.Comparison
}

// Asked returns the option of the Service.
func (p *Plans) Asked() *explain.Option { return &p.Comparison.Options[p.Comparison.Asked] }

// Shown returns the option of the Service or, if it asks for nothing, a possible one.
func (p *Plans) Shown() *explain.Option { return &p.Comparison.Options[p.Comparison.Shown] }

// OptionName returns the name of an option's algorithm; tiers alone have none.
func OptionName(o *explain.Option) string {
	if o.Algorithm == "" {
		return "nearest"
	}
	return string(o.Algorithm)
}

// Zone is a zone of the region of a plan.
type Zone struct {
	Zone      string  `json:"zone"`
	Region    string  `json:"region,omitempty"`
	Capacity  float64 `json:"capacity"`
	Traffic   float64 `json:"traffic"` // in percent of all
	Endpoints int     `json:"endpoints"`
	Expected  float64 `json:"expected"` // endpoints, by the traffic
}

func (p *Plans) zones() []Zone {
	region := p.Question.Region
	var names []string
	for _, z := range region.Zones {
		names = append(names, z.Name)
	}
	shares, endpoints := region.Shares(names), float64(region.Endpoints())
	var zones []Zone
	for i, z := range region.Zones {
		zones = append(zones, Zone{
			Zone: z.Name, Region: z.Region, Capacity: plaintext.Rounded(z.Capacity), Traffic: percent(shares[i]),
			Endpoints: z.Endpoints, Expected: plaintext.Rounded(shares[i] * endpoints),
		})
	}
	return zones
}

// Algorithm is the result of one algorithm.
type Algorithm struct {
	Algorithm   string        `json:"algorithm"`
	Asked       bool          `json:"asked,omitempty"`
	InZone      float64       `json:"inZone"`
	MaxOverload float64       `json:"maxOverload"`
	Slices      int           `json:"slices"`
	Total       float64       `json:"total"`
	State       string        `json:"state"`
	Rule        allocate.Rule `json:"rule"`
	DecidedBy   string        `json:"decidedBy"`
}

func (p *Plans) algorithms() []Algorithm {
	var all []Algorithm
	for i := range p.Comparison.Options {
		o := &p.Comparison.Options[i]
		all = append(all, Algorithm{
			Algorithm: OptionName(o), Asked: i == p.Comparison.Asked,
			InZone: percent(o.Figures.InZone), MaxOverload: percent(o.Figures.Overload),
			Slices: o.Slices, Total: plaintext.Rounded(o.Total),
			State: o.Outcome.State.String(), Rule: o.Outcome.Rule, DecidedBy: explain.Outcome(o.Outcome),
		})
	}
	return all
}

// Groups are the groups of a plan.
type Groups struct {
	Algorithm string  `json:"algorithm"`
	Groups    []Group `json:"groups"`
	// Skipped are domains whose nodes do not prefer their own endpoints.
	Skipped []Skip `json:"skipped,omitempty"`
}

// Group is a set of endpoints with the zones that they serve.
type Group struct {
	Members   []Member   `json:"members"`
	Consumers []Consumer `json:"consumers"`
	Load      float64    `json:"load"` // of the busiest endpoint; 100 is the even share
}

// Member is the part of a group that is in one zone.
type Member struct {
	Zone      string `json:"zone"`
	Endpoints int    `json:"endpoints"`
}

// Consumer is a zone that uses a group.
type Consumer struct {
	Zone   string  `json:"zone"`
	Weight float64 `json:"weight"`
}

// Skip is a domain whose nodes would overload its endpoints.
type Skip struct {
	Key       string  `json:"key"`
	Domain    string  `json:"domain"`
	Zone      string  `json:"zone,omitempty"` // none if its nodes are in several
	Endpoints int     `json:"endpoints"`
	Traffic   float64 `json:"traffic"` // in percent of all
	Load      float64 `json:"load"`    // that the busiest would get; 100 is the even share
	Why       string  `json:"why"`
}

func (p *Plans) groups() *Groups {
	shown := p.Shown()
	plan := shown.Plan
	groups := &Groups{Algorithm: OptionName(shown), Groups: []Group{}}
	for i, g := range plan.Groups {
		group := Group{Members: []Member{}, Consumers: []Consumer{}, Load: percent(explain.MostLoad(p.Question.Region, *shown, i))}
		for _, m := range g.Members {
			group.Members = append(group.Members, Member{plan.Zones[m.Zone], m.Endpoints})
		}
		for _, c := range g.Consumers {
			group.Consumers = append(group.Consumers, Consumer{plan.Zones[c.Zone], plaintext.Rounded(c.Weight)})
		}
		groups.Groups = append(groups.Groups, group)
	}
	if shown.Nodes != nil {
		for _, skip := range shown.Nodes.Skips {
			groups.Skipped = append(groups.Skipped, Skip{
				skip.Key, skip.Domain, skip.Zone, skip.Endpoints, percent(skip.Share), percent(skip.Load), explain.Skip(skip, shown.Outcome),
			})
		}
	}
	return groups
}

// examples returns the name of the first pod in each zone.
func examples(endpoints []intent.Endpoint) map[string]string {
	pods := map[string]string{}
	for _, e := range endpoints {
		if first, found := pods[e.Zone]; e.Pod != "" && (!found || strings.Compare(e.Pod, first) < 0) {
			pods[e.Zone] = e.Pod
		}
	}
	return pods
}
