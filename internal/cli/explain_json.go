package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"sigs.k8s.io/yaml"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/explain"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/topology"
)

// explainDocument is an explanation as JSON. Percentages are from 0 to 100.
type explainDocument struct {
	Namespace     string           `json:"namespace"`
	Service       string           `json:"service"`
	AsksFor       string           `json:"asksFor"`
	Approach      string           `json:"approach"`
	Source        string           `json:"source,omitempty"`
	Policy        string           `json:"policy,omitempty"`
	ClusterPolicy string           `json:"clusterPolicy,omitempty"`
	Tiers         topology.Tiers   `json:"tiers,omitempty"`
	Upstream      bool             `json:"upstream,omitempty"`
	Delivery      routing.Delivery `json:"delivery"`
	Undelivered   bool             `json:"undelivered,omitempty"`
	LeftAlone     string           `json:"leftAlone,omitempty"` // why, if Vicinity does nothing whatever is asked for
	Groups        int              `json:"groups"`
	Meanwhile     *explainInterim  `json:"meanwhile,omitempty"` // what hints say until vicinity-proxy serves the Service
	Condition     *conditionOut    `json:"condition,omitempty"`
	NoPlan        string           `json:"noPlan,omitempty"`
	Families      []explainFamily  `json:"families"`
	NoProxy       string           `json:"noStockProxy,omitempty"`
	Written       *bool            `json:"written,omitempty"`
	Pending       []string         `json:"pending,omitempty"`
	// Held are the zones that endpoints keep for a moment, by address.
	Held     map[string][]string `json:"held,omitempty"`
	Warnings []string            `json:"warnings,omitempty"`
	Limits   []explainLimit      `json:"limits,omitempty"`
	NotKnown []string            `json:"notKnown,omitempty"`
}

// explainInterim is a decision that holds for a while.
type explainInterim struct {
	Undelivered bool                  `json:"undelivered,omitempty"`
	Notes       []string              `json:"notes,omitempty"`
	Families    []explainInterimShare `json:"families"`
}

// explainInterimShare is the part of it that is about an address family.
type explainInterimShare struct {
	Family    string              `json:"family"`
	State     string              `json:"state"`
	Rule      allocate.Rule       `json:"rule,omitempty"`
	Why       string              `json:"why,omitempty"`
	Expected  *explainFigures     `json:"expected,omitempty"`
	Endpoints map[string][]string `json:"endpoints,omitempty"`
}

type conditionOut struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Since   string `json:"since"`
}

type explainLimit struct {
	Name string `json:"name"`
	Text string `json:"text"`
	Link string `json:"link"`
}

type explainFamily struct {
	Family     string              `json:"family"`
	Decided    bool                `json:"decided"`
	State      string              `json:"state"`
	Rule       allocate.Rule       `json:"rule,omitempty"`
	Why        string              `json:"why,omitempty"`
	Capacity   string              `json:"capacity,omitempty"`
	Expected   *explainFigures     `json:"expected,omitempty"` // of the plan, delivered or not
	Zones      []planZone          `json:"zones,omitempty"`
	Plan       *planGroups         `json:"plan,omitempty"`
	Endpoints  map[string][]string `json:"endpoints,omitempty"` // the zones that use each address
	Algorithms []planAlgorithm     `json:"algorithms,omitempty"`
	Stock      []explainStock      `json:"stockProxies"`
}

type explainFigures struct {
	InZone      float64 `json:"inZone"`
	SameNode    float64 `json:"sameNode,omitempty"` // where nodes look for endpoints of their own
	MaxOverload float64 `json:"maxOverload"`
	Unreached   int     `json:"unreached,omitempty"`
}

type explainStock struct {
	Ports    []explainPort     `json:"ports"`
	Expected *explainFigures   `json:"expected,omitempty"`
	Zones    []explainStockRow `json:"zones"`
}

type explainPort struct {
	Name     string `json:"name"`
	Protocol string `json:"protocol"`
}

type explainStockRow struct {
	Zone  string            `json:"zone"`
	Nodes int               `json:"nodes,omitempty"` // none if that is unknown
	Mode  routing.StockMode `json:"mode"`
	Why   string            `json:"why,omitempty"`
	Uses  map[string]int    `json:"uses"` // by the zone of the endpoints
}

func encodeJSON(w io.Writer, document any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(document)
}

func encodeYAML(w io.Writer, document any) error {
	text, err := yaml.Marshal(document)
	if err != nil {
		return fmt.Errorf("writing YAML: %w", err)
	}
	_, err = w.Write(text)
	return err
}

func explainDocumentOf(e *explanation) explainDocument {
	service, d := e.input.Service, &e.decision
	document := explainDocument{
		Namespace: service.Namespace, Service: service.Name,
		AsksFor: explain.Intent(d.Request.Intent), Approach: string(d.Request.Approach),
		Source: d.Request.Source, Policy: d.Request.Policy, ClusterPolicy: d.Request.ClusterPolicy, Tiers: d.Request.Intent.Tiers, Upstream: d.Request.Upstream,
		Delivery: d.Delivery, Undelivered: d.Undelivered, LeftAlone: e.input.alone, Groups: len(e.input.Groups),
		NoPlan: d.Request.NoPlan, NoProxy: e.noProxy, Pending: e.pending, Held: routing.Held(e.input.Slices), Meanwhile: interimOut(d.Meanwhile),
		Warnings: e.warnings(), NotKnown: e.missing, Families: []explainFamily{},
	}
	if c := routing.ConditionOf(service); c != nil {
		document.Condition = &conditionOut{c.Type, string(c.Status), c.Reason, c.Message, c.LastTransitionTime.UTC().Format(time.RFC3339)}
	}
	for _, limit := range e.limits() {
		document.Limits = append(document.Limits, explainLimit{limit.Name, limit.Text, limit.Link()})
	}
	if all, known := e.written(); known {
		document.Written = &all
	}
	for i := range e.families {
		family := e.families[i].document()
		if e.blind() {
			family = explainFamily{Family: family.Family, State: "unknown", Stock: family.Stock}
			for j := range family.Stock {
				stock := &family.Stock[j]
				stock.Expected = nil
				for k := range stock.Zones {
					stock.Zones[k].Nodes = 0
				}
			}
		}
		document.Families = append(document.Families, family)
	}
	return document
}

func (f *familyExplanation) document() explainFamily {
	asked, plan := f.asked(), planDocumentOf(&f.planSection)
	document := explainFamily{
		Family: string(f.ipFamily), Decided: f.decided,
		State: asked.Outcome.State.String(), Rule: asked.Outcome.Rule, Why: explain.Outcome(asked.Outcome),
		Capacity: string(f.capacity.Type), Expected: figuresOut(asked.Figures),
		Zones: plan.Zones, Plan: plan.Plan, Algorithms: plan.Algorithms, Stock: []explainStock{},
	}
	document.Endpoints = endpointsOut(f.assigned)
	for i := range f.stock {
		view := &f.stock[i]
		stock := explainStock{Expected: figuresOut(view.figures), Zones: []explainStockRow{}}
		for _, port := range view.ports {
			stock.Ports = append(stock.Ports, explainPort{port.name, string(port.protocol)})
		}
		for _, row := range view.rows {
			stock.Zones = append(stock.Zones, explainStockRow(row))
		}
		document.Stock = append(document.Stock, stock)
	}
	return document
}

// endpointsOut are the zones that use each endpoint, by address.
func endpointsOut(assigned map[string]allocate.ConsumerSet) map[string][]string {
	endpoints := make(map[string][]string, len(assigned))
	for address, set := range assigned {
		endpoints[address] = zonesOf(set.Zones())
	}
	return endpoints
}

func interimOut(d *routing.Decision) *explainInterim {
	if d == nil {
		return nil
	}
	interim := &explainInterim{Undelivered: d.Undelivered, Notes: d.Notes, Families: []explainInterimShare{}}
	for i := range d.Families {
		f := &d.Families[i]
		interim.Families = append(interim.Families, explainInterimShare{
			Family: string(f.Family), State: f.Outcome.State.String(), Rule: f.Outcome.Rule, Why: explain.Outcome(f.Outcome),
			Expected: figuresOut(f.Outcome.Figures), Endpoints: endpointsOut(f.Assigned),
		})
	}
	return interim
}

func figuresOut(f allocate.Figures) *explainFigures {
	return &explainFigures{rounded(100 * f.InZone), rounded(100 * f.SameNode), rounded(100 * f.Overload), f.Unreached}
}
