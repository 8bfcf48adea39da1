package load

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Result is what was measured. Every request that became due is in exactly one of Answered,
// Failures, Unsent and Abandoned, or still in flight.
type Result struct {
	// Start and End enclose what was measured. They are zero if nothing was.
	Start time.Time
	End   time.Time

	Due       int64
	Answered  int64
	Unsent    Unsent
	Abandoned int64 // when the run was stopped

	// Connections were opened. Replaced are idle ones that the other side closed in good
	// order, which is no failure. Resent are those that TCP had to ask for more than once, and
	// those on which it sent again what was answered after half of the timeout.
	Connections int64
	Resent      int64
	Replaced    int64

	// Flows, Latencies and Failures are sorted by their first fields.
	Flows     []Flow
	Latencies []Latency
	Failures  []FailureCount

	// Examples are the first failures.
	Examples []Failure
	// Lag is how long after their due time requests left.
	Lag Histogram
}

// Unsent are requests that never left.
type Unsent struct {
	Late  int64 `json:"late"`  // this machine was too late to send them
	Busy  int64 `json:"busy"`  // as many as allowed were under way
	Local int64 `json:"local"` // no port or file was left to open a connection
}

// Total is the sum.
func (u Unsent) Total() int64 { return u.Late + u.Busy + u.Local }

// Flow is how often an endpoint answered the sources of a node.
type Flow struct {
	Zone    string // of the source
	Node    string
	To      Endpoint
	Answers int64
}

// Latency is the time from the start of a request, including opening the connection, to the
// whole answer.
type Latency struct {
	From      string // zone of the source
	To        string // zone of the endpoint
	Histogram Histogram
}

// FailureCount is a number of failed requests.
type FailureCount struct {
	From  string `json:"from"` // zone of the source
	Kind  Kind   `json:"kind"`
	Count int64  `json:"count"`
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

// Latency is that of all answers.
func (r Result) Latency() Histogram {
	var all Histogram
	for _, l := range r.Latencies {
		all.Merge(l.Histogram)
	}
	return all
}

const maxExamples = 20

type tally struct {
	sum       Result // without its slices
	flows     map[Flow]int64
	latencies map[[2]string]*Histogram
	failures  map[FailureCount]int64
	examples  []Failure
}

// newTally returns an empty tally. In the keys of flows and failures the number is zero.
func newTally() *tally {
	return &tally{
		flows:     make(map[Flow]int64),
		latencies: make(map[[2]string]*Histogram),
		failures:  make(map[FailureCount]int64),
	}
}

func (t *tally) add(r Result) {
	s := &t.sum
	if !r.Start.IsZero() && (s.Start.IsZero() || r.Start.Before(s.Start)) {
		s.Start = r.Start
	}
	if r.End.After(s.End) {
		s.End = r.End
	}
	s.Due += r.Due
	s.Answered += r.Answered
	s.Resent += r.Resent
	s.Unsent.Late += r.Unsent.Late
	s.Unsent.Busy += r.Unsent.Busy
	s.Unsent.Local += r.Unsent.Local
	s.Abandoned += r.Abandoned
	s.Connections += r.Connections
	s.Replaced += r.Replaced
	s.Lag.Merge(r.Lag)
	for _, f := range r.Flows {
		t.addFlow(f, f.Answers)
	}
	for _, l := range r.Latencies {
		t.histogram(l.From, l.To).Merge(l.Histogram)
	}
	for _, f := range r.Failures {
		t.addFailure(f.From, f.Kind, f.Count)
	}
	t.examples = firstExamples(append(t.examples, r.Examples...))
}

func firstExamples(examples []Failure) []Failure {
	slices.SortStableFunc(examples, func(a, b Failure) int { return a.Time.Compare(b.Time) })
	return examples[:min(len(examples), maxExamples)]
}

func (t *tally) addFlow(f Flow, n int64) {
	f.Answers = 0
	t.flows[f] += n
}

func (t *tally) histogram(from, to string) *Histogram {
	key := [2]string{from, to}
	if t.latencies[key] == nil {
		t.latencies[key] = new(Histogram)
	}
	return t.latencies[key]
}

func (t *tally) addFailure(from string, kind Kind, n int64) {
	t.failures[FailureCount{From: from, Kind: kind}] += n
}

func (t *tally) result() Result {
	r := t.sum
	r.Lag = Histogram{}
	r.Lag.Merge(t.sum.Lag)
	r.Flows = make([]Flow, 0, len(t.flows))
	for f, n := range t.flows {
		f.Answers = n
		r.Flows = append(r.Flows, f)
	}
	slices.SortFunc(r.Flows, func(a, b Flow) int {
		return cmp.Or(cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.Node, b.Node), compareEndpoints(a.To, b.To))
	})
	r.Latencies = make([]Latency, 0, len(t.latencies))
	for key, h := range t.latencies {
		l := Latency{From: key[0], To: key[1]}
		l.Histogram.Merge(*h)
		r.Latencies = append(r.Latencies, l)
	}
	slices.SortFunc(r.Latencies, func(a, b Latency) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	r.Failures = make([]FailureCount, 0, len(t.failures))
	for f, n := range t.failures {
		f.Count = n
		r.Failures = append(r.Failures, f)
	}
	slices.SortFunc(r.Failures, func(a, b FailureCount) int {
		return cmp.Or(cmp.Compare(a.From, b.From), compareKinds(a.Kind, b.Kind))
	})
	r.Examples = append([]Failure{}, t.examples...)
	return r
}

func compareEndpoints(a, b Endpoint) int {
	return cmp.Or(cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Service, b.Service))
}

func compareKinds(a, b Kind) int {
	return cmp.Compare(slices.Index(kinds[:], a), slices.Index(kinds[:], b))
}

// recorder collects results of all sources until they are taken.
type recorder struct {
	mu    sync.Mutex
	tally *tally

	// Not a sync.Once, which would block the second failure until the first one was looked
	// at.
	reported atomic.Bool
	failure  func(Failure) // nil, or called once
}

func newRecorder(failure func(Failure)) *recorder {
	return &recorder{tally: newTally(), failure: failure}
}

// take returns what was collected and starts anew.
func (r *recorder) take() Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.tally
	r.tally = newTally()
	return taken.result()
}

// update changes the sums, and extends the time of the result to now.
func (r *recorder) update(now time.Time, change func(*Result)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.extend(now)
	change(&r.tally.sum)
}

// extend extends the time of the result; the caller holds the lock.
func (r *recorder) extend(now time.Time) {
	s := &r.tally.sum
	if s.Start.IsZero() {
		s.Start = now
	}
	if now.After(s.End) {
		s.End = now
	}
}

func (r *recorder) answered(now time.Time, from Place, to Endpoint, latency time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.extend(now)
	r.tally.sum.Answered++
	r.tally.addFlow(Flow{Zone: from.Zone, Node: from.Node, To: to}, 1)
	r.tally.histogram(from.Zone, to.Zone).Record(latency)
}

func (r *recorder) failed(f Failure) {
	r.mu.Lock()
	r.extend(f.Time)
	r.tally.addFailure(f.From.Zone, f.Kind, 1)
	if len(r.tally.examples) < maxExamples {
		r.tally.examples = append(r.tally.examples, f)
	}
	r.mu.Unlock()
	r.reportFirst(f)
}

func (r *recorder) reportFirst(f Failure) {
	if r.failure != nil && !r.reported.Swap(true) {
		r.failure(f)
	}
}
