package console

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/inspect"
)

type servicesView struct {
	Services []serviceRow `json:"services"`
	Paging   paging       `json:"paging"`
	All      int          `json:"allServices"`
	Measured measuredOver `json:"measured"`

	Query serviceQuery `json:"-"`
}

// serviceRow is a Service, or one family of it, with its measured traffic.
type serviceRow struct {
	inspect.ServiceStatus
	// Measured is the share of connections that stayed in their zone, or nil.
	Measured *float64 `json:"measuredInZone,omitempty"`
	// Connections is the number of counted connections per second.
	Connections *float64              `json:"connectionsPerSecond,omitempty"`
	HandOver    inspect.HandOverState `json:"handOver"`
}

// measuredOver says how long traffic was measured, and what is not known of it.
type measuredOver struct {
	Seconds float64 `json:"seconds,omitempty"`
	Proxies int     `json:"proxies,omitempty"`
	Off     string  `json:"off,omitempty"`
	// LowerBoundOn has the nodes whose bytes are lower bounds.
	LowerBoundOn []string `json:"bytesAreLowerBoundOn,omitempty"`
}

func (m *measured) over() measuredOver {
	return measuredOver{m.Seconds, m.Proxies, m.Off, m.LowerBoundOn}
}

// deliveries are the choices of the filter.
var deliveries = append(allocate.Deliveries(), allocate.DeliveryNone)

// serviceQuery filters and sorts the list of Services.
type serviceQuery struct {
	Text, Namespace, State string
	Delivery               allocate.Delivery
	HandOver               inspect.HandOverState
	Notes                  bool
	Sort, Order            string

	values url.Values
}

var orders = map[string]func(a, b *serviceRow) int{
	"name":      func(_, _ *serviceRow) int { return 0 }, // they are sorted already
	"state":     func(a, b *serviceRow) int { return strings.Compare(a.State, b.State) },
	"endpoints": func(a, b *serviceRow) int { return comparePointers(a.Endpoints, b.Endpoints) },
	"planned":   func(a, b *serviceRow) int { return comparePointers(a.planned(), b.planned()) },
	"measured":  func(a, b *serviceRow) int { return comparePointers(a.Measured, b.Measured) },
	"overload":  func(a, b *serviceRow) int { return comparePointers(a.overload(), b.overload()) },
	"delivery":  func(a, b *serviceRow) int { return cmp.Compare(a.Delivery, b.Delivery) },
	"handover":  func(a, b *serviceRow) int { return cmp.Compare(a.HandOver, b.HandOver) },
	"notes":     func(a, b *serviceRow) int { return cmp.Compare(len(a.Notes), len(b.Notes)) },
}

func (r *serviceRow) planned() *float64 {
	if r.Expected == nil {
		return nil
	}
	return &r.Expected.InZone
}

func (r *serviceRow) overload() *float64 {
	if r.Expected == nil {
		return nil
	}
	return &r.Expected.MaxOverload
}

// comparePointers sorts nil first.
func comparePointers[T cmp.Ordered](a, b *T) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	return cmp.Compare(*a, *b)
}

func (*servicesView) title() string { return "Services" }

func (*servicesView) parts() []part { return []part{partServices, partTraffic} }

func readServiceQuery(query url.Values) (q serviceQuery, err error) {
	q = serviceQuery{Text: query.Get("q"), Namespace: query.Get("namespace"), State: query.Get("state"), Notes: query.Get("notes") != "", values: query}
	var titles []string
	for _, delivery := range deliveries {
		titles = append(titles, delivery.Title())
	}
	title, err := oneOf(query, "delivery", titles...)
	if err != nil {
		return q, err
	}
	if err := q.Delivery.UnmarshalText([]byte(title)); err != nil {
		return q, err
	}
	if q.HandOver, err = oneOf(query, "handover", inspect.HandOverNone, inspect.HandOverWriting, inspect.HandOverWaiting, inspect.HandOverDone, inspect.HandOverReturning, inspect.HandOverOther); err != nil {
		return q, err
	}
	names := make([]string, 0, len(orders))
	for name := range orders {
		names = append(names, name)
	}
	slices.Sort(names)
	if q.Sort, err = oneOf(query, "sort", names...); err != nil {
		return q, err
	}
	q.Order, err = oneOf(query, "order", "ascending", "descending")
	q.Sort, q.Order = cmp.Or(q.Sort, "name"), cmp.Or(q.Order, "ascending")
	return q, err
}

func (c *console) servicesView(_ context.Context, r *http.Request, s *snapshot) (view, *about, error) {
	q, err := readServiceQuery(r.URL.Query())
	if err != nil {
		return nil, nil, err
	}
	a := c.about(s)
	m := c.traffic.newest()
	a.NotKnown = append(a.NotKnown, m.NotKnown...)
	v := &servicesView{Measured: m.over(), Query: q, Services: []serviceRow{}}
	var rows []serviceRow
	for _, service := range s.services {
		name := keyOf(service)
		for _, status := range s.statuses[name] {
			v.All++
			row := serviceRow{ServiceStatus: status, HandOver: inspect.HandOverStateOf(service, status.Delivery, len(s.groups[name]))}
			if counted := m.of(name.Namespace, name.Name); counted != nil {
				row.Measured, row.Connections = counted.InZoneConnections, &counted.Connections
			}
			if q.wants(&row) {
				rows = append(rows, row)
			}
		}
	}
	compare := orders[q.Sort]
	slices.SortStableFunc(rows, func(a, b serviceRow) int { return compare(&a, &b) })
	if q.Order == "descending" {
		slices.Reverse(rows)
	}
	if v.Paging, err = pageOf(r, len(rows)); err != nil {
		return nil, nil, err
	}
	v.Services = append(v.Services, window(rows, v.Paging)...)
	return v, &a, nil
}

func (q *serviceQuery) wants(r *serviceRow) bool {
	return strings.Contains(r.Namespace+"/"+r.Service, q.Text) &&
		(q.Namespace == "" || r.Namespace == q.Namespace) &&
		(q.State == "" || r.State == q.State) &&
		(q.Delivery == "" || r.Delivery == q.Delivery) &&
		(q.HandOver == "" || r.HandOver == q.HandOver) &&
		(!q.Notes || len(r.Notes) > 0)
}

// column is the head of a sortable column.
type column struct {
	Name, Title string
	To          string // address of the list sorted by this column
	Sorted      string // value of aria-sort, or empty
}

// Columns are the heads of the table.
func (v *servicesView) Columns() []column {
	var columns []column
	for _, one := range []column{
		{Name: "name", Title: "Service"},
		{Name: "state", Title: "Outcome"},
		{Name: "endpoints", Title: "Endpoints"},
		{Name: "planned", Title: "In-zone planned"},
		{Name: "measured", Title: "In-zone measured"},
		{Name: "overload", Title: "Overload"},
		{Name: "delivery", Title: "Delivery"},
		{Name: "handover", Title: "Served by"},
		{Name: "notes", Title: "Worth a look"},
	} {
		order := "ascending"
		if v.Query.Sort == one.Name {
			one.Sorted = v.Query.Order
			if one.Sorted == "ascending" {
				order = "descending"
			}
		}
		query := url.Values{}
		for name, values := range v.Query.values {
			if name != "page" {
				query[name] = values
			}
		}
		query.Set("order", order)
		one.To = withQuery(pathServices, query, "sort", one.Name)
		columns = append(columns, one)
	}
	return columns
}
