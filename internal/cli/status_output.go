package cli

import (
	"fmt"
	"io"
	"strconv"

	"vicinity.dev/vicinity/internal/explain"
	"vicinity.dev/vicinity/internal/routing"
)

// statusOutput is what to print.
type statusOutput struct {
	rows    []statusRow
	missing []string
}

func serviceListFormat(output string) (func(io.Writer, statusOutput) error, error) {
	switch output {
	case "table", "wide":
		return func(w io.Writer, o statusOutput) error {
			if len(o.rows) == 0 {
				return nil
			}
			return statusTable(o.rows, output == "wide").Text(w, "")
		}, nil
	case "json":
		return func(w io.Writer, o statusOutput) error { return encodeJSON(w, statusDocumentOf(o)) }, nil
	case "yaml":
		return func(w io.Writer, o statusOutput) error { return encodeYAML(w, statusDocumentOf(o)) }, nil
	}
	return nil, unknownStatusFormat(output)
}

func unknownStatusFormat(output string) error {
	return usageErrorf("--output %q is unknown; it must be table, wide, json or yaml", output)
}

func statusTable(rows []statusRow, wide bool) explain.Table {
	t := explain.Table{Columns: []explain.Column{
		{Title: "namespace"},
		{Title: "service"},
		{Title: "mode"},
		{Title: "asks for"},
		{Title: "state"},
		{Title: "endpoints", Right: true},
		{Title: "zones", Right: true},
		{Title: "in-zone %", Right: true},
		{Title: "overload %", Right: true},
		{Title: "delivery"},
	}}
	if wide {
		t.Columns = append(t.Columns, explain.Column{Title: "written as"}, explain.Column{Title: "decided by"})
	}
	t.Columns = append(t.Columns, explain.Column{Title: "note"})
	for i := range rows {
		r := &rows[i]
		cells := []string{r.namespace, r.title(), string(r.request.Approach), explain.ShortIntent(r.request.Intent), r.state}
		cells = append(cells, r.numbers()...)
		cells = append(cells, r.delivery.Title())
		if wide {
			cells = append(cells, orDash(r.request.Source), orDash(r.why))
		}
		t.Rows = append(t.Rows, append(cells, r.note(wide)))
	}
	return t
}

// numbers are the cells about the plan.
func (r *statusRow) numbers() []string {
	if !r.planned {
		return []string{"-", "-", "-", "-"}
	}
	cells := []string{strconv.Itoa(r.endpoints), strconv.Itoa(r.zones), "-", "-"}
	if r.capacity && r.endpoints > 0 {
		cells[2], cells[3] = oneDecimal(r.figures.InZone), oneDecimal(r.figures.Overload)
	}
	return cells
}

// note is the first of the notes, or all of them.
func (r *statusRow) note(all bool) string {
	if len(r.notes) == 0 {
		return "-"
	}
	note := r.notes[0]
	for _, other := range r.notes[1:] {
		if all {
			note += "; " + other
		}
	}
	if more := len(r.notes) - 1; more > 0 && !all {
		note += fmt.Sprintf(" (and %d more)", more)
	}
	return note
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// statusDocument is the status as JSON. Percentages are from 0 to 100.
type statusDocument struct {
	Services []statusService `json:"services"`
	NotKnown []string        `json:"notKnown,omitempty"`
}

type statusService struct {
	Namespace     string           `json:"namespace"`
	Service       string           `json:"service"`
	Family        string           `json:"family,omitempty"`
	Mode          string           `json:"mode"`
	AsksFor       string           `json:"asksFor"`
	Source        string           `json:"source,omitempty"`
	Policy        string           `json:"policy,omitempty"`
	ClusterPolicy string           `json:"clusterPolicy,omitempty"`
	State         string           `json:"state,omitempty"`
	Endpoints     *int             `json:"endpoints,omitempty"`
	Zones         *int             `json:"zones,omitempty"`
	Expected      *explainFigures  `json:"expected,omitempty"`
	Why           string           `json:"why,omitempty"`
	Delivery      routing.Delivery `json:"delivery"`
	Notes         []string         `json:"notes,omitempty"`
}

func statusDocumentOf(o statusOutput) statusDocument {
	document := statusDocument{Services: []statusService{}, NotKnown: o.missing}
	for i := range o.rows {
		r := &o.rows[i]
		service := statusService{
			Namespace: r.namespace, Service: r.name, Family: string(r.family), Mode: string(r.request.Approach),
			AsksFor: explain.Intent(r.request.Intent), Source: r.request.Source, Policy: r.request.Policy, ClusterPolicy: r.request.ClusterPolicy,
			Why: r.why, Delivery: r.delivery, Notes: r.notes,
		}
		if r.state != "-" {
			service.State = r.state
		}
		if r.planned {
			service.Endpoints, service.Zones = &r.endpoints, &r.zones
		}
		if r.planned && r.capacity && r.endpoints > 0 {
			service.Expected = figuresOut(r.figures)
		}
		document.Services = append(document.Services, service)
	}
	return document
}
