package inspect

import (
	"slices"
	"strings"

	"vicinity.dev/vicinity/internal/allocate"
)

// Flow is the traffic of a Service between two zones, in percent of all. From is empty for nodes without a zone, and To
// for endpoints without one.
type Flow struct {
	From    string  `json:"from"`
	To      string  `json:"to"`
	Percent float64 `json:"percent"`
}

// Flows predicts the traffic of a family, in the order of zones: by the stored hints where stock proxies serve the
// Service, and by the plan where vicinity-proxy does, as in Served. It is empty for another proxy, or if the plan is
// unknown.
func (e *Explanation) Flows(f *Family) []Flow {
	switch {
	case e.LacksNodes:
		return nil
	case len(f.Stock) > 0:
		return stockFlows(f.Question.Region, &f.Stock[0])
	case e.Delivery == allocate.DeliveryGroups:
		return planFlows(f.Question.Region, f.Asked().Plan)
	}
	return nil
}

func planFlows(region allocate.Region, plan allocate.Plan) []Flow {
	shares := region.Shares(plan.Zones)
	uses := make([][]float64, len(plan.Zones)) // of each zone, by the zone of the endpoints
	for i := range uses {
		uses[i] = make([]float64, len(plan.Zones))
	}
	for _, g := range plan.Groups {
		for _, c := range g.Consumers {
			for _, m := range g.Members {
				uses[c.Zone][m.Zone] += c.Weight * float64(m.Endpoints)
			}
		}
	}
	flows := flowList{}
	for from, of := range uses {
		flows.add(plan.Zones[from], shares[from], plan.Zones, of)
	}
	return flows.sorted()
}

// stockFlows returns the flows of stock proxies. The nodes of a zone share its traffic equally.
func stockFlows(region allocate.Region, s *Stock) []Flow {
	var names []string
	for _, zone := range region.Zones {
		names = append(names, zone.Name)
	}
	shares := map[string]float64{}
	for i, share := range region.Shares(names) {
		shares[names[i]] = share
	}
	nodes := map[string]int{}
	for _, row := range s.Zones {
		nodes[row.Zone] += row.Nodes
	}
	flows := flowList{}
	for _, row := range s.Zones {
		if row.Nodes == 0 {
			continue
		}
		share := shares[row.Zone] * float64(row.Nodes) / float64(nodes[row.Zone])
		var zones []string
		var uses []float64
		for zone, endpoints := range row.Uses {
			zones, uses = append(zones, zone), append(uses, float64(endpoints))
		}
		flows.add(row.Zone, share, zones, uses)
	}
	return flows.sorted()
}

type flowList map[[2]string]float64

// add divides the traffic of a zone among the zones that it uses.
func (l flowList) add(from string, share float64, zones []string, uses []float64) {
	all := 0.0
	for _, use := range uses {
		all += use
	}
	for i, use := range uses {
		if use > 0 && share > 0 {
			l[[2]string{from, zones[i]}] += share * use / all
		}
	}
}

func (l flowList) sorted() []Flow {
	flows := make([]Flow, 0, len(l))
	for way, share := range l {
		flows = append(flows, Flow{strings.TrimSpace(way[0]), strings.TrimSpace(way[1]), percent(share)})
	}
	slices.SortFunc(flows, func(a, b Flow) int {
		if a.From != b.From {
			return strings.Compare(a.From, b.From)
		}
		return strings.Compare(a.To, b.To)
	})
	return flows
}
