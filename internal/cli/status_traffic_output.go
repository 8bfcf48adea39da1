package cli

import (
	"io"
	"strconv"

	"vicinity.dev/vicinity/internal/explain"
)

// trafficOutput is what to print about traffic.
type trafficOutput struct {
	rows    []trafficRow
	total   trafficRow
	proxies int
	// seconds is how long was measured; if it is not zero all counts are those of a
	// second.
	seconds float64
	// perGiB is what a gibibyte costs that leaves its zone, zero if nobody asks.
	perGiB  float64
	missing []string
}

func statusTrafficFormat(output string) (func(io.Writer, trafficOutput) error, error) {
	switch output {
	case "table":
		return func(w io.Writer, o trafficOutput) error { return o.text(w, o.table()) }, nil
	case "wide":
		return func(w io.Writer, o trafficOutput) error { return o.text(w, o.routes()) }, nil
	case "json":
		return func(w io.Writer, o trafficOutput) error { return encodeJSON(w, o.document()) }, nil
	case "yaml":
		return func(w io.Writer, o trafficOutput) error { return encodeYAML(w, o.document()) }, nil
	}
	return nil, unknownStatusFormat(output)
}

// text writes a table, unless there is nothing to write.
func (o *trafficOutput) text(w io.Writer, t explain.Table) error {
	if len(o.rows) == 0 {
		return nil
	}
	return t.Text(w, "")
}

// per ends the titles of columns.
func (o *trafficOutput) per(title string) string {
	if o.seconds > 0 {
		return title + "/s"
	}
	return title
}

// table has a row for each Service.
func (o *trafficOutput) table() explain.Table {
	t := explain.Table{Columns: []explain.Column{
		{Title: "namespace"},
		{Title: "service"},
		{Title: o.per("connections"), Right: true},
		{Title: "in-zone %", Right: true},
		{Title: o.per("bytes"), Right: true},
		{Title: "in-zone %", Right: true},
		{Title: o.per("crossing"), Right: true},
	}}
	if o.perGiB > 0 {
		t.Columns = append(t.Columns, explain.Column{Title: "cost a month", Right: true})
	}
	for i := range o.rows {
		namespace, service := o.rows[i].title()
		t.Rows = append(t.Rows, append([]string{namespace, service}, o.cells(&o.rows[i])...))
	}
	t.Rows = append(t.Rows, append([]string{"-", "(total)"}, o.cells(&o.total)...))
	return t
}

// title is what a row is about. Services that proxies do not tell apart are in no
// namespace.
func (r *trafficRow) title() (namespace, service string) {
	if r.namespace == "" {
		return "-", "(" + r.service + ")"
	}
	return r.namespace, r.service
}

// cells are the figures of a row.
func (o *trafficOutput) cells(r *trafficRow) []string {
	connections, bytes := r.inZone()
	cells := []string{o.number(r.all.connections), share(connections), "-", share(bytes), "-"}
	if r.all.bytes() > 0 {
		cells[2], cells[4] = byteCount(r.all.bytes()), byteCount(r.far.bytes())
	}
	if o.perGiB > 0 {
		cells = append(cells, "-")
		if r.all.bytes() > 0 {
			cells[5] = o.cost(r.far)
		}
	}
	return cells
}

// routes is a table with a row for each pair of zones.
func (o *trafficOutput) routes() explain.Table {
	t := explain.Table{Columns: []explain.Column{
		{Title: "namespace"},
		{Title: "service"},
		{Title: "from"},
		{Title: "to"},
		{Title: o.per("connections"), Right: true},
		{Title: o.per("requests"), Right: true},
		{Title: o.per("replies"), Right: true},
	}}
	if o.perGiB > 0 {
		t.Columns = append(t.Columns, explain.Column{Title: "cost a month", Right: true})
	}
	add := func(namespace, service string, routes []trafficRoute) {
		for i := range routes {
			r := &routes[i]
			cells := []string{namespace, service, orDash(r.from), orDash(r.to), o.number(r.connections), "-", "-"}
			if r.bytes() > 0 {
				cells[5], cells[6] = byteCount(r.request), byteCount(r.reply)
			}
			switch {
			case o.perGiB > 0 && r.crosses() && r.bytes() > 0:
				cells = append(cells, o.cost(r.trafficCount))
			case o.perGiB > 0:
				cells = append(cells, "-")
			}
			t.Rows = append(t.Rows, cells)
		}
	}
	for i := range o.rows {
		namespace, service := o.rows[i].title()
		add(namespace, service, o.rows[i].routes)
	}
	add("-", "(total)", o.total.routes)
	return t
}

// number writes a number of connections.
func (o *trafficOutput) number(n float64) string {
	if o.seconds > 0 {
		return strconv.FormatFloat(n, 'f', 1, 64)
	}
	return strconv.FormatFloat(n, 'f', 0, 64)
}

// cost is what bytes a second cost in a month.
func (o *trafficOutput) cost(c trafficCount) string {
	return strconv.FormatFloat(monthly(c.bytes(), o.perGiB), 'f', 2, 64)
}

func share(of float64) string {
	if !isShare(of) {
		return "-"
	}
	return oneDecimal(of)
}

// trafficDocument is the traffic as JSON. Percentages are from 0 to 100. If it was
// measured for some seconds all numbers are those of a second.
type trafficDocument struct {
	Proxies    int              `json:"proxies"`
	Seconds    float64          `json:"seconds,omitempty"`
	CostPerGiB float64          `json:"costPerGiB,omitempty"`
	Services   []trafficService `json:"services"`
	Total      trafficService   `json:"total"`
	NotKnown   []string         `json:"notKnown,omitempty"`
}

type trafficService struct {
	Namespace string `json:"namespace,omitempty"`
	// Service is "other", in no namespace, for those that proxies do not tell apart.
	Service            string              `json:"service,omitempty"`
	Connections        float64             `json:"connections"`
	InZoneConnections  *float64            `json:"inZoneConnectionsPercent,omitempty"`
	Bytes              float64             `json:"bytes"`
	InZoneBytes        *float64            `json:"inZoneBytesPercent,omitempty"`
	CrossingBytes      float64             `json:"crossingBytes"`
	CrossingMonthsCost *float64            `json:"costPerMonth,omitempty"`
	Routes             []trafficRouteEntry `json:"routes"`
}

type trafficRouteEntry struct {
	From         string  `json:"from"`
	To           string  `json:"to"`
	Connections  float64 `json:"connections"`
	RequestBytes float64 `json:"requestBytes"`
	ReplyBytes   float64 `json:"replyBytes"`
}

func (o *trafficOutput) document() trafficDocument {
	document := trafficDocument{
		Proxies: o.proxies, Seconds: o.seconds, CostPerGiB: o.perGiB,
		Services: []trafficService{}, Total: o.entry(&o.total), NotKnown: o.missing,
	}
	for i := range o.rows {
		document.Services = append(document.Services, o.entry(&o.rows[i]))
	}
	return document
}

func (o *trafficOutput) entry(r *trafficRow) trafficService {
	connections, bytes := r.inZone()
	entry := trafficService{
		Namespace: r.namespace, Service: r.service,
		Connections: r.all.connections, InZoneConnections: percentOf(connections),
		Bytes: r.all.bytes(), InZoneBytes: percentOf(bytes), CrossingBytes: r.far.bytes(),
		Routes: []trafficRouteEntry{},
	}
	if o.perGiB > 0 && r.all.bytes() > 0 {
		cost := monthly(r.far.bytes(), o.perGiB)
		entry.CrossingMonthsCost = &cost
	}
	for _, route := range r.routes {
		entry.Routes = append(entry.Routes, trafficRouteEntry{route.from, route.to, route.connections, route.request, route.reply})
	}
	return entry
}

// percentOf is a share as JSON has it, nil if it is none.
func percentOf(share float64) *float64 {
	if !isShare(share) {
		return nil
	}
	share *= 100
	return &share
}
