package cli

import (
	"strconv"

	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/internal/kit/plaintext"
)

type trafficTables struct{ *inspect.Traffic }

func (t trafficTables) per(title string) string {
	if t.Seconds > 0 {
		return title + "/s"
	}
	return title
}

// table has a column of costs if there is a price.
func (t trafficTables) table(titles ...string) plaintext.Table {
	if t.CostPerGiB > 0 {
		titles = append(titles, ">cost a month")
	}
	return plaintext.NewTable(titles...)
}

func (t trafficTables) services() plaintext.Table {
	table := t.table("namespace", "service", t.per(">connections"), ">in-zone %", t.per(">bytes"), ">in-zone %", t.per(">crossing"))
	for i := range t.Services {
		namespace, service := trafficTitle(&t.Services[i])
		table.Rows = append(table.Rows, append([]string{namespace, service}, t.cells(&t.Services[i])...))
	}
	table.Rows = append(table.Rows, append([]string{"-", "(total)"}, t.cells(&t.Total)...))
	return table
}

// trafficTitle names the row. Services that proxies count together have no namespace.
func trafficTitle(s *inspect.ServiceTraffic) (namespace, service string) {
	if s.Namespace == "" {
		return "-", "(" + s.Service + ")"
	}
	return s.Namespace, s.Service
}

func (t trafficTables) cells(s *inspect.ServiceTraffic) []string {
	cells := []string{t.number(s.Connections), share(s.InZoneConnections), "-", share(s.InZoneBytes), "-"}
	if s.Bytes > 0 {
		cells[2], cells[4] = command.ByteCount(s.Bytes), command.ByteCount(s.CrossingBytes)
	}
	switch {
	case s.CostPerMonth != nil:
		cells = append(cells, cost(*s.CostPerMonth))
	case t.CostPerGiB > 0:
		cells = append(cells, "-")
	}
	return cells
}

// routes has a row for each pair of zones.
func (t trafficTables) routes() plaintext.Table {
	table := t.table("namespace", "service", "from", "to", t.per(">connections"), t.per(">requests"), t.per(">replies"))
	add := func(namespace, service string, routes []inspect.Route) {
		for i := range routes {
			r := &routes[i]
			cells := []string{namespace, service, orDash(r.From), orDash(r.To), t.number(r.Connections), "-", "-"}
			if r.Bytes() > 0 {
				cells[5], cells[6] = command.ByteCount(r.RequestBytes), command.ByteCount(r.ReplyBytes)
			}
			switch {
			case t.CostPerGiB > 0 && r.Crosses() && r.Bytes() > 0:
				cells = append(cells, cost(inspect.MonthlyCost(r.Bytes(), t.CostPerGiB)))
			case t.CostPerGiB > 0:
				cells = append(cells, "-")
			}
			table.Rows = append(table.Rows, cells)
		}
	}
	for i := range t.Services {
		namespace, service := trafficTitle(&t.Services[i])
		add(namespace, service, t.Services[i].Routes)
	}
	add("-", "(total)", t.Total.Routes)
	return table
}

func (t trafficTables) number(n float64) string {
	if t.Seconds > 0 {
		return strconv.FormatFloat(n, 'f', 1, 64)
	}
	return strconv.FormatFloat(n, 'f', 0, 64)
}

func cost(money float64) string { return strconv.FormatFloat(money, 'f', 2, 64) }

// share formats a percentage, which may be unknown.
func share(percentage *float64) string {
	if percentage == nil {
		return "-"
	}
	return strconv.FormatFloat(*percentage, 'f', 1, 64)
}
