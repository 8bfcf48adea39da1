package inspect

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// TrafficKey is the key of proxies' counters: the Service, and the zones of client and endpoint. Unknown zones are
// empty.
type TrafficKey struct {
	Namespace, Service, From, To string
}

// TrafficCount is the value of counters, or a rate in a second.
type TrafficCount struct {
	Connections, Request, Reply float64
}

// Plus returns the sum.
func (c TrafficCount) Plus(other TrafficCount) TrafficCount {
	return TrafficCount{c.Connections + other.Connections, c.Request + other.Request, c.Reply + other.Reply}
}

func (c TrafficCount) bytes() float64 { return c.Request + c.Reply }

// since returns the growth of a counter in a second. A counter that fell was restarted.
func (c TrafficCount) since(earlier TrafficCount, seconds float64) TrafficCount {
	added := func(now, before float64) float64 {
		if now < before {
			before = 0
		}
		return (now - before) / seconds
	}
	return TrafficCount{
		added(c.Connections, earlier.Connections), added(c.Request, earlier.Request), added(c.Reply, earlier.Reply),
	}
}

// ProxyReading has the counters of one proxy at one time.
type ProxyReading struct {
	Pod, Node string
	At        time.Time
	Counts    map[TrafficKey]TrafficCount
	// WithoutBytes says that its node counts no bytes, LowerBound that it counts fewer bytes than its flowtables forward.
	WithoutBytes, LowerBound bool
}

// TrafficSince returns the rates of proxies between two readings. Proxies with only one reading are left out, and their
// nodes are named.
func TrafficSince(first, second []ProxyReading) (rates []ProxyReading, leftOut []string) {
	before := map[string]ProxyReading{}
	for _, r := range first {
		before[r.Pod] = r
	}
	for _, r := range second {
		earlier, found := before[r.Pod]
		seconds := r.At.Sub(earlier.At).Seconds()
		if !found || seconds <= 0 {
			leftOut = append(leftOut, r.Node)
			continue
		}
		delete(before, r.Pod)
		rate := r
		rate.Counts = map[TrafficKey]TrafficCount{}
		for key, count := range r.Counts {
			rate.Counts[key] = count.since(earlier.Counts[key], seconds)
		}
		rates = append(rates, rate)
	}
	for _, r := range before {
		leftOut = append(leftOut, r.Node)
	}
	slices.Sort(leftOut)
	return rates, slices.Compact(leftOut)
}

// Traffic sums up the counters of proxies. Percentages are from 0 to 100. If it was measured for some seconds, all
// numbers are rates in a second.
type Traffic struct {
	Proxies    int              `json:"proxies"`
	Seconds    float64          `json:"seconds,omitempty"`
	CostPerGiB float64          `json:"costPerGiB,omitempty"`
	Services   []ServiceTraffic `json:"services"`
	Total      ServiceTraffic   `json:"total"`
	NotKnown   []string         `json:"notKnown,omitempty"`
	// LowerBoundOn has the nodes whose bytes are lower bounds, so that all bytes and costs are.
	LowerBoundOn []string `json:"bytesAreLowerBoundOn,omitempty"`
}

// ServiceTraffic is the traffic of a Service, or of all.
type ServiceTraffic struct {
	Namespace string `json:"namespace,omitempty"`
	// Service is "other", in no namespace, for Services that proxies do not tell apart.
	Service     string  `json:"service,omitempty"`
	Connections float64 `json:"connections"`
	// InZoneConnections is the share among connections between known zones, nil if there are none, and so is
	// InZoneBytes.
	InZoneConnections *float64 `json:"inZoneConnectionsPercent,omitempty"`
	Bytes             float64  `json:"bytes"`
	InZoneBytes       *float64 `json:"inZoneBytesPercent,omitempty"`
	CrossingBytes     float64  `json:"crossingBytes"` // that leave their zone
	// CostPerMonth is nil if no price is known, or no byte was counted.
	CostPerMonth *float64 `json:"costPerMonth,omitempty"`
	Routes       []Route  `json:"routes"`

	// all is near, which stays in its zone, far, which leaves it, and the traffic of unknown zones.
	all, near, far TrafficCount
}

// Route is the traffic between two zones.
type Route struct {
	From         string  `json:"from"`
	To           string  `json:"to"`
	Connections  float64 `json:"connections"`
	RequestBytes float64 `json:"requestBytes"`
	ReplyBytes   float64 `json:"replyBytes"`
}

// Bytes are those of both directions.
func (r *Route) Bytes() float64 { return r.RequestBytes + r.ReplyBytes }

// Crosses reports whether it is known to leave its zone.
func (r *Route) Crosses() bool { return r.From != "" && r.To != "" && r.From != r.To }

// MonthlyCost returns the cost of a rate in bytes for a month of 730 hours, a twelfth of a year.
func MonthlyCost(bytesPerSecond, perGiB float64) float64 {
	const secondsPerMonth, gibibyte = 730 * 3600, 1 << 30
	return bytesPerSecond * secondsPerMonth / gibibyte * perGiB
}

// TrafficOf sums up readings for each Service of a namespace, or of all if it is empty. The Service that sends the most
// to other zones comes first. over is the time of readings from TrafficSince, or else 0. The price is 0 if it is
// unknown.
func TrafficOf(readings []ProxyReading, namespace string, over time.Duration, perGiB float64) Traffic {
	sums, zones := map[TrafficKey]TrafficCount{}, map[TrafficKey]TrafficCount{}
	for i := range readings {
		for key, count := range readings[i].Counts {
			if namespace == "" || key.Namespace == namespace {
				sums[key] = sums[key].Plus(count)
			}
		}
	}
	t := Traffic{Proxies: len(readings), Seconds: over.Seconds(), CostPerGiB: perGiB, Services: []ServiceTraffic{}, LowerBoundOn: LowerBoundOn(readings)}
	for _, key := range slices.SortedFunc(maps.Keys(sums), compareTraffic) {
		if sums[key] == (TrafficCount{}) {
			continue
		}
		// Keys of a Service follow each other.
		last := len(t.Services) - 1
		if last < 0 || t.Services[last].Namespace != key.Namespace || t.Services[last].Service != key.Service {
			t.Services = append(t.Services, ServiceTraffic{Namespace: key.Namespace, Service: key.Service})
			last++
		}
		t.Services[last].add(key, sums[key])
		route := TrafficKey{From: key.From, To: key.To}
		zones[route] = zones[route].Plus(sums[key])
	}
	for _, key := range slices.SortedFunc(maps.Keys(zones), compareTraffic) {
		t.Total.add(key, zones[key])
	}
	slices.SortStableFunc(t.Services, func(a, b ServiceTraffic) int {
		return cmp.Or(cmp.Compare(b.far.bytes(), a.far.bytes()), cmp.Compare(b.far.Connections, a.far.Connections))
	})
	for i := range t.Services {
		t.Services[i].total(perGiB)
	}
	t.Total.total(perGiB)
	return t
}

// LowerBoundOn returns the nodes that count bytes, but not all, in order.
func LowerBoundOn(readings []ProxyReading) (nodes []string) {
	for i := range readings {
		if r := &readings[i]; r.LowerBound && !r.WithoutBytes {
			nodes = append(nodes, r.Node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

func compareTraffic(a, b TrafficKey) int {
	return cmp.Or(
		strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Service, b.Service),
		strings.Compare(a.From, b.From), strings.Compare(a.To, b.To),
	)
}

// add adds the traffic between two zones.
func (s *ServiceTraffic) add(key TrafficKey, count TrafficCount) {
	route := Route{key.From, key.To, count.Connections, count.Request, count.Reply}
	s.Routes = append(s.Routes, route)
	s.all = s.all.Plus(count)
	switch {
	case route.Crosses():
		s.far = s.far.Plus(count)
	case route.From != "" && route.To != "":
		s.near = s.near.Plus(count)
	}
}

func (s *ServiceTraffic) total(perGiB float64) {
	share := func(near, far float64) *float64 {
		if near+far == 0 {
			return nil
		}
		percentage := near / (near + far) * 100
		return &percentage
	}
	s.Connections, s.InZoneConnections = s.all.Connections, share(s.near.Connections, s.far.Connections)
	s.Bytes, s.InZoneBytes, s.CrossingBytes = s.all.bytes(), share(s.near.bytes(), s.far.bytes()), s.far.bytes()
	if perGiB > 0 && s.Bytes > 0 {
		cost := MonthlyCost(s.CrossingBytes, perGiB)
		s.CostPerMonth = &cost
	}
	if s.Routes == nil {
		s.Routes = []Route{}
	}
}
