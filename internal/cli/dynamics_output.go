package cli

import (
	"fmt"
	"io"
	"strconv"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/simulate"
)

func (f *dynamicsFlags) write(w io.Writer, r *simulate.DynamicsResults) error {
	groups := dynamicsGroups(r)
	return f.output.write(w, groups, func(p *page) {
		for i := range groups {
			p.heading(dynamicsTitle(&r.Scenarios[i]))
			p.table("", dynamicsTable(&groups[i]))
		}
		p.printf("\n%s", dynamicsLegend(r))
	})
}

// dynamicsRow is the result of a scenario for one variant. Percentages are from 0 to 100.
type dynamicsRow struct {
	Algorithm             string           `json:"algorithm"`
	Variant               string           `json:"variant"`
	InZone                float64          `json:"inZone"`
	Reallocated           int              `json:"reallocated"`
	ReallocatedPerEvent   float64          `json:"reallocatedPerEvent"`
	SlicesWritten         int              `json:"slicesWritten"`
	SlicesWrittenPerEvent float64          `json:"slicesWrittenPerEvent"`
	ReroutedPerEvent      float64          `json:"reroutedPerEvent"`
	SecondsAboveThreshold float64          `json:"secondsAboveThreshold"`
	WorstOverload         float64          `json:"worstOverload"`
	Flips                 int              `json:"flips"`
	Series                []dynamicsMoment `json:"series"`
}

type dynamicsMoment struct {
	Second        float64 `json:"second"`
	Endpoints     int     `json:"endpoints"`
	Allocated     bool    `json:"allocated"`
	InZone        float64 `json:"inZone"`
	Overload      float64 `json:"overload"`
	Reallocated   int     `json:"reallocated"`
	SlicesWritten int     `json:"slicesWritten"`
	Rerouted      float64 `json:"rerouted"`
}

type dynamicsGroup struct {
	Scenario string        `json:"scenario"`
	Events   int           `json:"events"`
	Seconds  float64       `json:"seconds"`
	Runs     []dynamicsRow `json:"runs"`
}

func dynamicsGroups(r *simulate.DynamicsResults) []dynamicsGroup {
	groups := []dynamicsGroup{} // JSON writes nil as null
	for _, s := range r.Scenarios {
		group := dynamicsGroup{Scenario: s.Scenario.Name, Events: s.Events, Seconds: s.Scenario.Length.Seconds(), Runs: []dynamicsRow{}}
		for i := range s.Runs {
			group.Runs = append(group.Runs, newDynamicsRow(&s.Runs[i], s.Events))
		}
		groups = append(groups, group)
	}
	return groups
}

func newDynamicsRow(run *simulate.DynamicsRun, events int) dynamicsRow {
	perEvent := func(n int) float64 { return plaintext.Rounded(float64(n) / float64(max(events, 1))) }
	row := dynamicsRow{
		Algorithm:             run.Algorithm,
		Variant:               run.Variant,
		InZone:                plaintext.Rounded(100 * run.InZone),
		Reallocated:           run.Reallocated,
		ReallocatedPerEvent:   perEvent(run.Reallocated),
		SlicesWritten:         run.SlicesWritten,
		SlicesWrittenPerEvent: perEvent(run.SlicesWritten),
		ReroutedPerEvent:      plaintext.Rounded(100 * run.Rerouted / float64(max(events, 1))),
		SecondsAboveThreshold: run.AboveThreshold.Seconds(),
		WorstOverload:         plaintext.Rounded(100 * run.WorstOverload),
		Flips:                 run.Flips,
	}
	for _, m := range run.Series {
		row.Series = append(row.Series, dynamicsMoment{
			Second:        m.At.Seconds(),
			Endpoints:     m.Endpoints,
			Allocated:     m.Allocated,
			InZone:        plaintext.Rounded(100 * m.InZone),
			Overload:      plaintext.Rounded(100 * m.Overload),
			Reallocated:   m.Reallocated,
			SlicesWritten: m.SlicesWritten,
			Rerouted:      plaintext.Rounded(100 * m.Rerouted),
		})
	}
	return row
}

func (r *dynamicsRow) cells() []string {
	fixed := func(x float64, digits int) string { return strconv.FormatFloat(x, 'f', digits, 64) }
	return []string{
		r.Algorithm,
		r.Variant,
		fixed(r.InZone, 2),
		plaintext.Thousands(int64(r.Reallocated)),
		fixed(r.ReallocatedPerEvent, 2),
		plaintext.Thousands(int64(r.SlicesWritten)),
		fixed(r.SlicesWrittenPerEvent, 2),
		fixed(r.ReroutedPerEvent, 2),
		fixed(r.SecondsAboveThreshold, 0),
		fixed(r.WorstOverload, 1),
		plaintext.Thousands(int64(r.Flips)),
	}
}

func dynamicsTitle(s *simulate.DynamicsScenario) string {
	return fmt.Sprintf("%s: %s in %s; %s", s.Scenario.Name, count(int64(s.Events), "event", "events"), s.Scenario.Length, simulate.DescribeScenario(s.Scenario.Name))
}

func dynamicsLegend(r *simulate.DynamicsResults) string {
	delivered := "hints on the slices of Kubernetes"
	if r.Delivery == allocate.DeliveryGroups {
		delivered = "groups; those of upstream-auto as hints"
	}
	return fmt.Sprintf(`in-zone: traffic that stays in its zone, mean over time. reallocated: endpoints that were there before and after an event
and got other consumers by it. slices written: EndpointSlices of up to %s that were created, changed or deleted,
with plans delivered as %s. rerouted: traffic that goes to another endpoint after an event than
before, mean over events; that of lost and new endpoints is part of it. above threshold: seconds with an endpoint %s or more
above the even share. worst overload: the greatest at any time. Both are by the traffic as it really is. flips: changes
between an allocated and a balanced Service.
`, count(int64(r.SliceSize), "endpoint", "endpoints"), delivered, percentage(r.Threshold))
}

func dynamicsTable(group *dynamicsGroup) plaintext.Table {
	t := plaintext.NewTable("algorithm", "variant", ">in-zone %", ">reallocated", ">per event", ">slices written", ">per event",
		">rerouted %", ">above threshold s", ">worst overload %", ">flips")
	for i := range group.Runs {
		t.Rows = append(t.Rows, group.Runs[i].cells())
	}
	return t
}
