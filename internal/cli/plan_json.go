package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"sigs.k8s.io/yaml"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/explain"
	"vicinity.dev/vicinity/internal/topology"
)

// planDocument is a section as JSON. Percentages are from 0 to 100.
type planDocument struct {
	Namespace  string          `json:"namespace"`
	Service    string          `json:"service"`
	Family     string          `json:"family,omitempty"`
	AsksFor    string          `json:"asksFor"`
	Source     string          `json:"source,omitempty"`
	Tiers      topology.Tiers  `json:"tiers,omitempty"`
	Upstream   bool            `json:"upstream,omitempty"`
	Warnings   []string        `json:"warnings,omitempty"`
	NoPlan     string          `json:"noPlan,omitempty"`
	Capacity   string          `json:"capacity,omitempty"`
	Delivery   string          `json:"delivery,omitempty"`
	Zones      []planZone      `json:"zones,omitempty"`
	Algorithms []planAlgorithm `json:"algorithms,omitempty"`
	Plan       *planGroups     `json:"plan,omitempty"`
	Advice     []planAdvice    `json:"advice,omitempty"`
}

type planZone struct {
	Zone      string  `json:"zone"`
	Region    string  `json:"region,omitempty"`
	Capacity  float64 `json:"capacity"`
	Traffic   float64 `json:"traffic"`
	Endpoints int     `json:"endpoints"`
	Expected  float64 `json:"expected"`
}

type planAlgorithm struct {
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

type planGroups struct {
	Algorithm string      `json:"algorithm"`
	Groups    []planGroup `json:"groups"`
	// Skipped are places whose nodes do not use their own endpoints before others.
	Skipped []planSkip `json:"skipped,omitempty"`
}

// planSkip is a place whose nodes would overload its endpoints.
type planSkip struct {
	Key       string  `json:"key"`
	Domain    string  `json:"domain"`
	Zone      string  `json:"zone,omitempty"` // none if its nodes are in several
	Endpoints int     `json:"endpoints"`
	Traffic   float64 `json:"traffic"` // in percent of all
	Load      float64 `json:"load"`    // that the busiest would get; 100 is the even share
	Why       string  `json:"why"`
}

type planGroup struct {
	Members   []planMember   `json:"members"`
	Consumers []planConsumer `json:"consumers"`
	Load      float64        `json:"load"` // of the busiest endpoint; 100 is the even share
}

type planMember struct {
	Zone      string `json:"zone"`
	Endpoints int    `json:"endpoints"`
}

type planConsumer struct {
	Zone   string  `json:"zone"`
	Weight float64 `json:"weight"`
}

type planAdvice struct {
	Advice      string     `json:"advice"`
	Moves       []planMove `json:"moves"`
	InZone      float64    `json:"inZone"`
	MaxOverload float64    `json:"maxOverload"`
	Total       float64    `json:"total"`
}

type planMove struct {
	New  bool   `json:"new,omitempty"`
	From string `json:"from,omitempty"`
	To   string `json:"to"`
	Pods int    `json:"pods"`
}

func writePlanJSON(w io.Writer, o planOutput) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(planDocuments(o))
}

func writePlanYAML(w io.Writer, o planOutput) error {
	text, err := yaml.Marshal(planDocuments(o))
	if err != nil {
		return fmt.Errorf("writing YAML: %w", err)
	}
	_, err = w.Write(text)
	return err
}

func planDocuments(o planOutput) []planDocument {
	documents := []planDocument{}
	for i := range o.sections {
		documents = append(documents, planDocumentOf(&o.sections[i]))
	}
	return documents
}

func planDocumentOf(s *planSection) planDocument {
	d := planDocument{
		Namespace: s.namespace, Service: s.name, Family: string(s.family),
		AsksFor: explain.Intent(s.request.Intent), Source: s.request.Source, Tiers: s.request.Intent.Tiers,
		Upstream: s.request.Upstream, NoPlan: s.noPlan,
		Warnings: slices.Concat(s.request.Warnings, s.warnings),
	}
	if s.noPlan != "" {
		return d
	}
	d.AsksFor = explain.Intent(s.question.Asked)
	d.Capacity, d.Delivery = string(s.capacity.Type), string(s.question.Delivery)
	d.Zones = planZones(s.question.Region)
	for i := range s.comparison.Options {
		option := &s.comparison.Options[i]
		d.Algorithms = append(d.Algorithms, planAlgorithm{
			Algorithm: optionName(option), Asked: i == s.comparison.Asked,
			InZone: rounded(100 * option.Figures.InZone), MaxOverload: rounded(100 * option.Figures.Overload),
			Slices: option.Slices, Total: rounded(option.Total),
			State: option.Outcome.State.String(), Rule: option.Outcome.Rule, DecidedBy: explain.Outcome(option.Outcome),
		})
	}
	d.Plan = planGroupsOf(s)
	for _, a := range s.advice {
		advice := planAdvice{
			Advice: a.String(), InZone: rounded(100 * a.After.Figures.InZone),
			MaxOverload: rounded(100 * a.After.Figures.Overload), Total: rounded(a.After.Total),
		}
		for _, m := range a.Moves {
			advice.Moves = append(advice.Moves, planMove(m))
		}
		d.Advice = append(d.Advice, advice)
	}
	return d
}

func planZones(region allocate.Region) []planZone {
	var names []string
	for _, z := range region.Zones {
		names = append(names, z.Name)
	}
	shares, endpoints := region.Shares(names), float64(region.Endpoints())
	var zones []planZone
	for i, z := range region.Zones {
		zones = append(zones, planZone{
			Zone: z.Name, Region: z.Region, Capacity: rounded(z.Capacity), Traffic: rounded(100 * shares[i]),
			Endpoints: z.Endpoints, Expected: rounded(shares[i] * endpoints),
		})
	}
	return zones
}

func planGroupsOf(s *planSection) *planGroups {
	shown := s.shown()
	plan := shown.Plan
	groups := &planGroups{Algorithm: optionName(shown), Groups: []planGroup{}}
	for i, g := range plan.Groups {
		group := planGroup{Members: []planMember{}, Consumers: []planConsumer{}, Load: rounded(100 * explain.MostLoad(s.question.Region, *shown, i))}
		for _, m := range g.Members {
			group.Members = append(group.Members, planMember{plan.Zones[m.Zone], m.Endpoints})
		}
		for _, c := range g.Consumers {
			group.Consumers = append(group.Consumers, planConsumer{plan.Zones[c.Zone], rounded(c.Weight)})
		}
		groups.Groups = append(groups.Groups, group)
	}
	if shown.Nodes != nil {
		for _, skip := range shown.Nodes.Skips {
			groups.Skipped = append(groups.Skipped, planSkip{
				skip.Key, skip.Domain, skip.Zone, skip.Endpoints, rounded(100 * skip.Share), rounded(100 * skip.Load), explain.Skip(skip, shown.Outcome),
			})
		}
	}
	return groups
}
