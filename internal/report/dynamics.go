package report

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/simulate"
)

// Dynamics writes the page about a Service that changes over time.
func Dynamics(w io.Writer, results simulate.DynamicsResults) error {
	body := newDynamics(results)
	p := page{
		Title:    "Vicinity: algorithms compared over time",
		Command:  "vicinity simulate dynamics",
		Headline: "No scenario was run",
		Lead:     "There was none, or the run was interrupted before the first was done.",
		Facts:    dynamicsFacts(results),
		Body:     body,
	}
	if len(body.Together) > 0 {
		p.Headline, p.Lead = dynamicsHeadline(body.Together)
	}
	if results.Partial {
		p.Notice = "The run was interrupted. Algorithms and scenarios that it did not come to are missing."
	}
	return p.write(w, "dynamics")
}

type dynamics struct {
	Threshold float64 // in percent
	Scenarios []scenario
	// Together has the totals of each variant over all scenarios, if there are several.
	Together []dynamicsRow
}

type scenario struct {
	ID, Name, About string
	Endpoints       figure
	Cards           []histories
	Rows            []dynamicsRow
}

type histories struct {
	Name             string
	Row              dynamicsRow
	InZone, Overload figure
}

// dynamicsRow is the result of one variant of an algorithm.
type dynamicsRow struct {
	Algorithm, Variant string
	// First marks the first variant of an algorithm, Full the one with all savings.
	First, Full            bool
	InZone, WorstOverload  float64 // in percent
	Reallocated, Written   int64
	PerEvent, WritesAEvent float64
	Rerouted               float64 // in percent, mean over events
	Above                  string  // as a sentence
	Flips                  int64

	events        int
	rerouted      float64 // in percent, over all events
	above, served time.Duration
}

func newDynamics(results simulate.DynamicsResults) dynamics {
	names := new(ids)
	body := dynamics{Threshold: 100 * results.Threshold}
	for i, s := range results.Scenarios {
		if len(s.Runs) == 0 {
			continue
		}
		body.Scenarios = append(body.Scenarios, newScenario(names, s, body.Threshold, i))
	}
	body.Together = together(body.Scenarios)
	return body
}

func together(scenarios []scenario) []dynamicsRow {
	type key struct{ algorithm, variant string }
	place := map[key]int{}
	var rows []dynamicsRow
	for _, s := range scenarios {
		for _, r := range s.Rows {
			k := key{r.Algorithm, r.Variant}
			i, found := place[k]
			if !found {
				i = len(rows)
				place[k] = i
				rows = append(rows, dynamicsRow{Algorithm: r.Algorithm, Variant: r.Variant, First: r.First, Full: r.Full})
			}
			sum := &rows[i]
			if served := sum.served + r.served; served > 0 {
				sum.InZone = (sum.InZone*sum.served.Seconds() + r.InZone*r.served.Seconds()) / served.Seconds()
			}
			sum.served += r.served
			sum.above += r.above
			sum.events += r.events
			sum.rerouted += r.rerouted
			sum.Reallocated += r.Reallocated
			sum.Written += r.Written
			sum.Flips += r.Flips
			sum.WorstOverload = max(sum.WorstOverload, r.WorstOverload)
		}
	}
	for i := range rows {
		rows[i].finish()
	}
	return rows
}

func (r *dynamicsRow) finish() {
	events := float64(max(r.events, 1))
	r.PerEvent, r.WritesAEvent = float64(r.Reallocated)/events, float64(r.Written)/events
	r.Rerouted = r.rerouted / events
	r.Above = span(r.above)
}

func newRows(s simulate.DynamicsScenario) []dynamicsRow {
	var rows []dynamicsRow
	for i, run := range s.Runs {
		row := dynamicsRow{
			Algorithm:     run.Algorithm,
			Variant:       strings.ReplaceAll(run.Variant, "-", " "),
			First:         i == 0 || s.Runs[i-1].Algorithm != run.Algorithm,
			Full:          run.Variant == simulate.Full,
			InZone:        100 * run.InZone,
			WorstOverload: 100 * run.WorstOverload,
			Reallocated:   int64(run.Reallocated),
			Written:       int64(run.SlicesWritten),
			Flips:         int64(run.Flips),
			events:        s.Events,
			rerouted:      100 * run.Rerouted,
			above:         run.AboveThreshold,
			served:        run.Served,
		}
		row.finish()
		rows = append(rows, row)
	}
	return rows
}

func newScenario(names *ids, s simulate.DynamicsScenario, threshold float64, number int) scenario {
	part := scenario{
		ID:   fmt.Sprintf("scenario-%d", number+1),
		Name: s.Scenario.Name,
		About: fmt.Sprintf("%s after the start, over %s of virtual time, in %s.", plural(s.Events, "event", "events"),
			span(s.Scenario.Length), plural(len(s.Scenario.ZoneNames()), "zone", "zones")),
		Rows: newRows(s),
	}
	part.Endpoints = endpointsFigure(names, s)
	part.Cards = newHistories(names, s, part.Rows, threshold)
	return part
}

// endpointsFigure shows the number of endpoints over time.
func endpointsFigure(names *ids, s simulate.DynamicsScenario) figure {
	var t track
	for _, m := range s.Runs[0].Series {
		t.at, t.values = append(t.at, m.At), append(t.values, float64(m.Endpoints))
	}
	step := max(1, nice(t.greatest()/3))
	var ticks []tick
	most := 0.0
	for n := 0.0; n == 0 || most < t.greatest(); n += step {
		ticks, most = append(ticks, tick{n, points(n, 0)}), n
	}
	return history{
		id: names.next(), title: "Ready endpoints in " + s.Scenario.Name, class: "line-3", head: "ready endpoints",
		end: s.Scenario.Length, most: most, ticks: ticks, timed: true,
	}.draw(t)
}

// newHistories draws the full variants of all algorithms to the same scales.
func newHistories(names *ids, s simulate.DynamicsScenario, rows []dynamicsRow, threshold float64) []histories {
	var inZone, overload []track
	most := threshold
	for _, run := range s.Runs {
		if run.Variant != simulate.Full {
			continue
		}
		var shares, loads track
		for _, m := range run.Series {
			share, load := 100*m.InZone, 100*m.Overload
			if m.Endpoints == 0 {
				share, load = math.NaN(), math.NaN()
			}
			shares.at, shares.values = append(shares.at, m.At), append(shares.values, share)
			loads.at, loads.values = append(loads.at, m.At), append(loads.values, load)
		}
		inZone, overload = append(inZone, shares), append(overload, loads)
		most = max(most, loads.greatest())
	}
	most, ticks := upTo(most)
	var cards []histories
	inZoneID, overloadID := names.next(), names.next()
	for _, row := range rows {
		if !row.Full {
			continue
		}
		n := len(cards)
		upper := history{
			id: names.next(), title: fmt.Sprintf("In-zone share over time with %s, %s in the mean", row.Algorithm, percent(row.InZone)), class: "line-1", head: "traffic that stays in its zone",
			end: s.Scenario.Length, most: 100, ticks: percentTicks(0, 50, 100), aroundID: inZoneID,
		}
		lower := history{
			id: names.next(), title: fmt.Sprintf("Worst overload over time with %s, %s at most", row.Algorithm, percent(row.WorstOverload)), class: "line-2", head: "busiest endpoint, above its even share",
			end: s.Scenario.Length, most: most, ticks: ticks, limit: threshold, timed: true, aroundID: overloadID,
		}
		if n == 0 {
			upper.around, lower.around = inZone, overload
		}
		cards = append(cards, histories{Name: row.Algorithm, Row: row, InZone: upper.draw(inZone[n]), Overload: lower.draw(overload[n])})
	}
	return cards
}

// dynamicsHeadline names the algorithm that keeps most traffic in its zone.
func dynamicsHeadline(rows []dynamicsRow) (headline, lead string) {
	best, upstream := -1, -1
	for i, r := range rows {
		switch {
		case !r.Full:
		case r.Algorithm == simulate.UpstreamAuto:
			upstream = i
		case best < 0 || r.InZone > rows[best].InZone || r.InZone == rows[best].InZone && r.Reallocated < rows[best].Reallocated:
			best = i
		}
	}
	if best < 0 {
		best, upstream = max(upstream, 0), -1
	}
	r := rows[best]
	headline = fmt.Sprintf("%s keeps %s of traffic in its zone while everything moves", r.Algorithm, percent(r.InZone))
	lead = fmt.Sprintf("That takes %s reallocated and %s written.",
		plural(r.Reallocated, "endpoint", "endpoints"), plural(r.Written, "slice", "slices"))
	if r.above > 0 {
		lead += fmt.Sprintf(" For %s an endpoint is at or above the overload threshold.", r.Above)
	} else {
		lead += " No endpoint ever reaches the overload threshold."
	}
	if upstream >= 0 {
		u := rows[upstream]
		lead += fmt.Sprintf(" Kubernetes’ own heuristic keeps %s, with %s reallocated and %s written.",
			percent(u.InZone), count(u.Reallocated), count(u.Written))
	}
	return headline, lead
}

func dynamicsFacts(results simulate.DynamicsResults) []fact {
	events, length := 0, time.Duration(0)
	for _, s := range results.Scenarios {
		events += s.Events
		length += s.Scenario.Length
	}
	delivery := "as hints, in slices of up to "
	if results.Delivery == allocate.DeliveryGroups {
		delivery = "as groups, in slices of up to "
	}
	return []fact{
		{"Scenarios", count(len(results.Scenarios))},
		{"Events after the start", count(events)},
		{"Virtual time", span(length)},
		{"Plans delivered", delivery + plural(results.SliceSize, "endpoint", "endpoints")},
		{"Overload threshold", shortPercent(100 * results.Threshold)},
	}
}
