package load

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Result is a measurement. Every request that became due is in exactly one of Answered, Failures,
// Unsent and Abandoned, or still in flight.
type Result struct {
	// Start and End enclose the measured time. They are zero if nothing was measured.
	Start time.Time
	End   time.Time

	Due       int64
	Answered  int64
	Unsent    Unsent
	Abandoned int64 // when the run was stopped

	// Connections were opened. Resent are those whose SYN TCP repeated, and those on which TCP sent
	// data again and got an answer after half of the timeout.
	Connections int64
	Resent      int64

	// Flows, Latencies and Failures are sorted by their first fields.
	Flows     []Flow
	Latencies []Latency
	Failures  []FailureCount

	// Examples are the first failures.
	Examples []Failure
}

// Unsent counts the requests that were not sent.
type Unsent struct {
	Late  int64 // this machine was too late to send them
	Busy  int64 // too many were in flight
	Local int64 // no port or file was left to open a connection
}

// Total is the sum.
func (u Unsent) Total() int64 { return u.Late + u.Busy + u.Local }

// Flow is the number of answers of an endpoint to the sources of a node.
type Flow struct {
	Zone    string // of the source
	Node    string
	To      Endpoint
	Answers int64
}

// Latency has the times from the start of a request, including opening the connection, to the
// complete answer.
type Latency struct {
	From      string // zone of the source
	Histogram Histogram
}

// FailureCount is a number of failed requests.
type FailureCount struct {
	From  string // zone of the source
	Kind  Kind
	Count int64
}

// Failed is the number of failures.
func (r Result) Failed() int64 {
	var n int64
	for _, f := range r.Failures {
		n += f.Count
	}
	return n
}

// FailedAs is the number of failures of a kind.
func (r Result) FailedAs(kind Kind) int64 {
	var n int64
	for _, f := range r.Failures {
		if f.Kind == kind {
			n += f.Count
		}
	}
	return n
}

// InZone is the share of answers from the zone of their source; 0 without answers.
func (r Result) InZone() float64 {
	return r.share(func(f Flow) bool { return f.Zone != "" && f.Zone == f.To.Zone })
}

// InNode is the share of answers from the node of their source; 0 without answers.
func (r Result) InNode() float64 {
	return r.share(func(f Flow) bool { return f.Node != "" && f.Node == f.To.Node })
}

func (r Result) share(counts func(Flow) bool) float64 {
	var all, some int64
	for _, f := range r.Flows {
		all += f.Answers
		if counts(f) {
			some += f.Answers
		}
	}
	return fraction(some, all)
}

func fraction(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// Latency merges all latencies.
func (r Result) Latency() Histogram {
	var all Histogram
	for _, l := range r.Latencies {
		all.Merge(l.Histogram)
	}
	return all
}

func compareEndpoints(a, b Endpoint) int {
	return cmp.Or(cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Service, b.Service))
}

func compareKinds(a, b Kind) int {
	return cmp.Compare(slices.Index(kinds[:], a), slices.Index(kinds[:], b))
}

// maxExamples limits the kept failures.
const maxExamples = 20

type recorder struct {
	answers *atomic.Int64 // as in Watch

	mu  sync.Mutex
	sum Result // without its slices
	// The keys of flows and failures have zero for their counts.
	flows     map[Flow]int64
	latencies map[string]*Histogram // by the zone of the source
	failures  map[FailureCount]int64
	examples  []Failure
}

func newRecorder(answers *atomic.Int64) *recorder {
	return &recorder{
		answers:   answers,
		flows:     make(map[Flow]int64),
		latencies: make(map[string]*Histogram),
		failures:  make(map[FailureCount]int64),
	}
}

// update changes the sums, and extends the time range of the result to now.
func (r *recorder) update(now time.Time, change func(*Result)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.extend(now)
	change(&r.sum)
}

// extend extends the time range of the result. The caller holds the lock.
func (r *recorder) extend(now time.Time) {
	if r.sum.Start.IsZero() || now.Before(r.sum.Start) {
		r.sum.Start = now
	}
	if now.After(r.sum.End) {
		r.sum.End = now
	}
}

func (r *recorder) answered(now time.Time, from Place, to Endpoint, latency time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.extend(now)
	r.sum.Answered++
	r.flows[Flow{Zone: from.Zone, Node: from.Node, To: to}]++
	if r.latencies[from.Zone] == nil {
		r.latencies[from.Zone] = new(Histogram)
	}
	r.latencies[from.Zone].Record(latency)
	if r.answers != nil {
		r.answers.Add(1)
	}
}

func (r *recorder) failed(f Failure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.extend(f.Time)
	r.failures[FailureCount{From: f.From.Zone, Kind: f.Kind}]++
	if len(r.examples) < maxExamples {
		r.examples = append(r.examples, f)
	}
}

func (r *recorder) result() Result {
	result := r.sum
	for f, n := range r.flows {
		f.Answers = n
		result.Flows = append(result.Flows, f)
	}
	slices.SortFunc(result.Flows, func(a, b Flow) int {
		return cmp.Or(cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.Node, b.Node), compareEndpoints(a.To, b.To))
	})
	for zone, h := range r.latencies {
		result.Latencies = append(result.Latencies, Latency{From: zone, Histogram: *h})
	}
	slices.SortFunc(result.Latencies, func(a, b Latency) int { return cmp.Compare(a.From, b.From) })
	for f, n := range r.failures {
		f.Count = n
		result.Failures = append(result.Failures, f)
	}
	slices.SortFunc(result.Failures, func(a, b FailureCount) int {
		return cmp.Or(cmp.Compare(a.From, b.From), compareKinds(a.Kind, b.Kind))
	})
	result.Examples = r.examples
	slices.SortStableFunc(result.Examples, func(a, b Failure) int { return a.Time.Compare(b.Time) })
	return result
}
