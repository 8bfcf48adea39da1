package cli

import (
	"fmt"
	"io"
	"math"
	"strconv"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/report"
	"vicinity.dev/vicinity/internal/simulate"
)

func (f *simulateFlags) write(w io.Writer, r *simulate.Results) error {
	if f.output.form == "html" {
		return report.Static(w, *r)
	}
	return f.output.write(w, simulateRows(r), func(p *page) {
		p.printf("%s\n%s\n", simulateTitle(r), simulateHeadline(r))
		p.table("", simulateTable(r))
		p.printf("\n%s", simulateLegend(r))
	})
}

func simulateTable(results *simulate.Results) plaintext.Table {
	hundredths := func(x float64) string { return strconv.FormatFloat(x, 'f', 2, 64) }
	t := plaintext.NewTable("algorithm", ">total", ">in-zone", ">overload", ">slices", ">max overload", ">invalid", ">cases/s")
	for _, r := range results.Variants {
		t.Rows = append(t.Rows, []string{
			r.Name,
			hundredths(r.Mean.Total),
			hundredths(r.Mean.InZone),
			hundredths(r.Mean.Overload),
			hundredths(r.Mean.Slices),
			hundredths(r.MaxOverload),
			plaintext.Thousands(r.Invalid),
			plaintext.Thousands(int64(r.CasesPerSecond)),
		})
	}
	return t
}

func simulateTitle(r *simulate.Results) string {
	delivered := "delivered as hints"
	if r.Delivery == allocate.DeliveryGroups {
		delivered = fmt.Sprintf("delivered as groups in slices of up to %s", count(int64(r.SliceSize), "endpoint", "endpoints"))
	}
	return fmt.Sprintf("%s of the data set %q, %s", count(r.Cases, "case", "cases"), r.Dataset, delivered)
}

// simulateHeadline describes the algorithm with the best total in one sentence.
func simulateHeadline(r *simulate.Results) string {
	if len(r.Variants) == 0 || r.Cases == 0 {
		return ""
	}
	best, balanced := &r.Variants[0], ""
	for i := range r.Variants {
		v := &r.Variants[i]
		if v.Mean.Total > best.Mean.Total {
			best = v
		}
		if v.Bound.Algorithm == allocate.Balanced {
			balanced = fmt.Sprintf(", against %.1f %% when all zones use all endpoints alike", v.Mean.InZone)
		}
	}
	if best.Bound.Algorithm == allocate.Balanced {
		balanced = ""
	}
	return fmt.Sprintf("%s keeps %.1f %% of traffic in its zone%s.\n", best.Name, best.Mean.InZone, balanced)
}

func simulateLegend(r *simulate.Results) string {
	w := r.Weights
	sum := w.InZone + w.Overload + w.Deviation + w.Slices
	return fmt.Sprintf(`total: the score, 100 is best: %s in-zone, %s overload, %s evenness of loads, %s slices.
in-zone: percent of the traffic that stays in its zone. overload: 100 less the percent by which
the busiest endpoint gets more than an even share; max overload is that percent in the worst case.
slices: fewest EndpointSlices possible, in percent of the EndpointSlices of the plan.
invalid: plans that leave a zone with nothing.
`,
		percentage(w.InZone/sum), percentage(w.Overload/sum), percentage(w.Deviation/sum), percentage(w.Slices/sum))
}

// simulateRow is a row of JSON. Percentages are from 0 to 100.
type simulateRow struct {
	Algorithm         string  `json:"algorithm"`
	StartingThreshold string  `json:"startingThreshold,omitempty"`
	OverloadThreshold string  `json:"overloadThreshold,omitempty"`
	Cases             int64   `json:"cases"`
	Invalid           int64   `json:"invalid"`
	Total             float64 `json:"total"`
	InZone            float64 `json:"inZone"`
	Overload          float64 `json:"overload"`
	Slices            float64 `json:"slices"`
	MaxOverload       float64 `json:"maxOverload"`
	CasesPerSecond    float64 `json:"casesPerSecond"`
}

func simulateRows(results *simulate.Results) []simulateRow {
	rows := []simulateRow{} // JSON writes nil as null
	for _, r := range results.Variants {
		row := simulateRow{
			Algorithm:      string(r.Bound.Algorithm),
			Cases:          r.Cases,
			Invalid:        r.Invalid,
			Total:          plaintext.Rounded(r.Mean.Total),
			InZone:         plaintext.Rounded(r.Mean.InZone),
			Overload:       plaintext.Rounded(r.Mean.Overload),
			Slices:         plaintext.Rounded(r.Mean.Slices),
			MaxOverload:    plaintext.Rounded(r.MaxOverload),
			CasesPerSecond: math.Round(r.CasesPerSecond),
		}
		if r.Bound.Algorithm != allocate.Balanced { // balanced has no threshold
			row.StartingThreshold, row.OverloadThreshold = r.Bound.Start.String(), percentage(r.Bound.OverloadThreshold)
		}
		rows = append(rows, row)
	}
	return rows
}
