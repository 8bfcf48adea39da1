package load

import (
	"maps"
	"math"
	"slices"
	"time"
)

// Summary expresses a result in shares from 0 to 1 and latencies in milliseconds. Its JSON
// is the output of the command.
type Summary struct {
	Service   string   `json:"service,omitempty"`
	Targets   []string `json:"targets"`
	Protocol  Protocol `json:"protocol"`
	KeepAlive bool     `json:"keepAlive"`
	Sources   int      `json:"sources"` // pods

	RateAsked float64 `json:"rateAsked"` // per second
	Seconds   float64 `json:"seconds"`   // asked

	Due         int64  `json:"due"`
	Sent        int64  `json:"sent"`
	Answered    int64  `json:"answered"`
	Failed      int64  `json:"failed"`
	Unsent      Unsent `json:"unsent"`
	Abandoned   int64  `json:"abandoned"`
	Connections int64  `json:"connections"`
	Resent      int64  `json:"resent"`
	Replaced    int64  `json:"replaced"`

	InZone float64 `json:"inZone"`
	InNode float64 `json:"inNode"`

	Latency Percentiles `json:"latencyMilliseconds"`
	Lag     Percentiles `json:"lagMilliseconds"`

	// Zones are those of endpoints, the columns of Matrix.
	Zones     []string        `json:"zones"`
	Matrix    []ZoneRow       `json:"matrix"`
	Endpoints []EndpointShare `json:"endpoints"`
	Failures  []FailureCount  `json:"failures"`
	Examples  []Failure       `json:"examples"`
}

// Percentiles of durations are in milliseconds, within 0.4 percent.
type Percentiles struct {
	Min  float64 `json:"min"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// ZoneRow is what the sources of a zone measured.
type ZoneRow struct {
	From     string      `json:"from"`
	Answered int64       `json:"answered"`
	Failed   int64       `json:"failed"`
	InZone   float64     `json:"inZone"`
	Latency  Percentiles `json:"latencyMilliseconds"`
	To       []ZoneCell  `json:"to"` // one for each of the zones
}

// ZoneCell is what the sources of a zone measured of the endpoints of a zone.
type ZoneCell struct {
	Zone    string      `json:"zone"`
	Answers int64       `json:"answers"`
	Share   float64     `json:"share"` // of the row
	Latency Percentiles `json:"latencyMilliseconds"`
}

// EndpointShare is the share of an endpoint in all answers.
type EndpointShare struct {
	Endpoint
	Answers int64   `json:"answers"`
	Share   float64 `json:"share"`
}

// Summarize sums a result up. The number of sources is only passed on.
func Summarize(plan Plan, sources int, r Result) Summary {
	plan = plan.withDefaults()
	s := Summary{
		Service: plan.Service, Targets: []string{}, Protocol: plan.Protocol, KeepAlive: plan.KeepAlive, Sources: sources,
		RateAsked: plan.Rate, Seconds: plan.Duration.Seconds(),
		Due: r.Due, Sent: r.Due - r.Unsent.Total(), Answered: r.Answered, Failed: r.Failed(), Unsent: r.Unsent,
		Abandoned: r.Abandoned, Connections: r.Connections, Resent: r.Resent, Replaced: r.Replaced,
		InZone: round(r.InZone()), InNode: round(r.InNode()),
		Latency: percentiles(r.Latency()), Lag: percentiles(r.Lag),
		Failures: append([]FailureCount{}, r.Failures...), Examples: append([]Failure{}, r.Examples...),
	}
	for _, target := range plan.Targets {
		s.Targets = append(s.Targets, target.String())
	}
	s.Zones, s.Matrix = matrix(r)
	s.Endpoints = endpointShares(r)
	return s
}

// matrix has a row for each zone that sent and a column for each that answered.
func matrix(r Result) (columns []string, rows []ZoneRow) {
	from, to := make(map[string]bool), make(map[string]bool)
	answers := make(map[[2]string]int64)
	sums, failures := make(map[string]int64), make(map[string]int64)
	for _, f := range r.Flows {
		from[f.Zone], to[f.To.Zone] = true, true
		answers[[2]string{f.Zone, f.To.Zone}] += f.Answers
		sums[f.Zone] += f.Answers
	}
	for _, f := range r.Failures {
		from[f.From] = true
		failures[f.From] += f.Count
	}
	latencies := make(map[[2]string]Histogram)
	for _, l := range r.Latencies {
		latencies[[2]string{l.From, l.To}] = l.Histogram
	}
	columns = sortedKeys(to)
	rows = []ZoneRow{}
	for _, zone := range sortedKeys(from) {
		row := ZoneRow{From: zone, Answered: sums[zone], Failed: failures[zone], To: []ZoneCell{}}
		var all Histogram
		for _, column := range columns {
			pair := [2]string{zone, column}
			share := fraction(answers[pair], sums[zone])
			row.To = append(row.To, ZoneCell{Zone: column, Answers: answers[pair], Share: round(share), Latency: percentiles(latencies[pair])})
			if zone != "" && zone == column {
				row.InZone = round(share)
			}
			all.Merge(latencies[pair])
		}
		row.Latency = percentiles(all)
		rows = append(rows, row)
	}
	return columns, rows
}

// sortedKeys never returns nil, which would be null in JSON.
func sortedKeys(set map[string]bool) []string {
	keys := slices.AppendSeq([]string{}, maps.Keys(set))
	slices.Sort(keys)
	return keys
}

func endpointShares(r Result) []EndpointShare {
	answers := make(map[Endpoint]int64)
	for _, f := range r.Flows {
		answers[f.To] += f.Answers
	}
	shares := []EndpointShare{}
	for endpoint, n := range answers {
		shares = append(shares, EndpointShare{Endpoint: endpoint, Answers: n, Share: round(fraction(n, r.Answered))})
	}
	slices.SortFunc(shares, func(a, b EndpointShare) int { return compareEndpoints(a.Endpoint, b.Endpoint) })
	return shares
}

// round drops insignificant digits of shares and milliseconds.
func round(x float64) float64 { return math.Round(x*1e5) / 1e5 }

func percentiles(h Histogram) Percentiles {
	q := h.Quantiles(0.5, 0.9, 0.99, 0.999)
	ms := func(d time.Duration) float64 { return round(d.Seconds() * 1000) }
	return Percentiles{
		Min: ms(h.Min()), Mean: ms(h.Mean()), P50: ms(q[0]), P90: ms(q[1]), P99: ms(q[2]), P999: ms(q[3]), Max: ms(h.Max()),
	}
}
