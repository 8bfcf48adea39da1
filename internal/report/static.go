package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/simulate"
)

// Static writes the page about algorithms that were scored on a data set.
func Static(w io.Writer, results simulate.Results) error {
	p := page{
		Title:    "Vicinity: algorithms compared on " + results.Dataset,
		Command:  "vicinity simulate",
		Facts:    staticFacts(results),
		Headline: "No case was scored",
		Lead:     "The data set has no case, or the run was interrupted before the first was done.",
		Body:     newStatic(results),
	}
	if best := best(results.Variants); best >= 0 {
		p.Headline, p.Lead = staticHeadline(results, best)
	}
	if results.Partial {
		p.Notice = "The run was interrupted. This page is about the cases scored until then, which are not the whole data set."
	}
	return p.write(w, "static")
}

type static struct {
	Rows    []staticRow
	Invalid bool // any case is invalid
	Parts   []partOfScore
	Cards   []distributions
	Worst   []worst
}

type staticRow struct {
	simulate.Result
	Best bool
}

// partOfScore is a part of the score with its weight in percent.
type partOfScore struct {
	Name, About string
	Weight      float64
}

type distributions struct {
	Name             string
	Mean             simulate.Parts
	InZone, Overload figure
}

type worst struct {
	Name  string
	Cases []worstCase
}

type worstCase struct {
	simulate.Scored
	Zones string
}

func newStatic(results simulate.Results) static {
	names := new(ids)
	best := best(results.Variants)
	body := static{Parts: partsOfScore(results.Weights)}
	for i, r := range results.Variants {
		body.Rows = append(body.Rows, staticRow{Result: r, Best: i == best && len(results.Variants) > 1})
		body.Invalid = body.Invalid || r.Invalid > 0
	}
	body.Cards = newDistributions(names, results.Variants)
	for _, r := range results.Variants {
		if len(r.Worst) > 0 {
			body.Worst = append(body.Worst, newWorst(r))
		}
	}
	return body
}

// best returns the variant with the greatest mean total, or -1.
func best(variants []simulate.Result) int {
	best := -1
	for i, r := range variants {
		if r.Cases > 0 && (best < 0 || r.Mean.Total > variants[best].Mean.Total) {
			best = i
		}
	}
	return best
}

func staticHeadline(results simulate.Results, best int) (headline, lead string) {
	winner := results.Variants[best]
	headline = fmt.Sprintf("%s keeps %s of traffic in its zone", winner.Name, percent(winner.Mean.InZone))
	lead = "That is the mean over " + plaintext.Plural(winner.Cases, "case")
	balanced := slices.IndexFunc(results.Variants, func(r simulate.Result) bool {
		return r.Bound.Algorithm == allocate.Balanced
	})
	if balanced >= 0 && balanced != best {
		lead += fmt.Sprintf(", against %s when all zones use all endpoints alike", percent(results.Variants[balanced].Mean.InZone))
	}
	lead += fmt.Sprintf(". In the worst of them the busiest endpoint carries %s more than its even share.", percent(winner.MaxOverload))
	return headline, lead
}

func staticFacts(results simulate.Results) []fact {
	delivery := "as hints, which take no further slices"
	if results.Delivery == allocate.DeliveryGroups {
		delivery = fmt.Sprintf("as groups, in slices of up to %s", plaintext.Plural(results.SliceSize, "endpoint"))
	}
	var thresholds, starts []named
	for _, r := range results.Variants {
		thresholds = append(thresholds, named{r.Name, shortPercent(100 * r.Bound.OverloadThreshold)})
		start := "none"
		if r.Bound.Start != (allocate.Start{}) {
			start = r.Bound.Start.String()
		}
		starts = append(starts, named{r.Name, start})
	}
	var weights []string
	for _, p := range partsOfScore(results.Weights) {
		weights = append(weights, p.Name+" "+shortPercent(p.Weight))
	}
	return []fact{
		{"Data set", results.Dataset},
		{"Cases", plaintext.Thousands(results.Cases)},
		{"Plans delivered", delivery},
		{"Overload threshold", summary(thresholds)},
		{"Starting threshold", summary(starts)},
		{"Weights of the score", strings.Join(weights, ", ")},
	}
}

type named struct{ name, value string }

// summary describes the common values once, then the differences.
func summary(values []named) string {
	counts := map[string]int{}
	common := ""
	for _, v := range values {
		counts[v.value]++
		if counts[v.value] > counts[common] {
			common = v.value
		}
	}
	words := []string{common}
	for _, v := range values {
		if v.value != common {
			words = append(words, v.name+" "+v.value)
		}
	}
	return strings.Join(words, ", ")
}

// partsOfScore returns the parts with weights that add up to 100.
func partsOfScore(w allocate.Weights) []partOfScore {
	sum := (w.InZone + w.Overload + w.Deviation + w.Slices) / 100
	if sum <= 0 {
		sum = 1
	}
	return []partOfScore{
		{"in-zone", "share of traffic that stays in its zone", w.InZone / sum},
		{"overload", "100 less the busiest endpoint’s load above the even share", w.Overload / sum},
		{"deviation", "100 less the mean distance of loads from the even share", w.Deviation / sum},
		{"slices", "fewest slices possible, as a share of the slices that the plan takes", w.Slices / sum},
	}
}

// newDistributions draws the charts of all algorithms to the same scales.
func newDistributions(names *ids, variants []simulate.Result) []distributions {
	most, tallestInZone, tallestOverload := 0.0, 0.0, 0.0
	for _, r := range variants {
		most = max(most, end(r.Overload), 100*r.Bound.OverloadThreshold)
		tallestInZone = max(tallestInZone, fullest(r.InZone))
		tallestOverload = max(tallestOverload, fullest(r.Overload))
	}
	most, ticks := upTo(most)
	var cards []distributions
	for _, r := range variants {
		limit := 100 * r.Bound.OverloadThreshold
		if r.Bound.Algorithm == allocate.Balanced {
			limit = 0
		}
		cards = append(cards, distributions{
			Name: r.Name,
			Mean: r.Mean,
			InZone: distribution{
				id: names.next(), title: "In-zone share with " + r.Name, unit: "traffic that stays in its zone", class: "fill-1",
				most: 100, ticks: percentTicks(0, 25, 50, 75, 100), tallest: tallestInZone, mean: r.Mean.InZone,
			}.draw(r.InZone),
			Overload: distribution{
				id: names.next(), title: "Overload with " + r.Name, unit: "busiest endpoint, above its even share", class: "fill-2",
				most: most, ticks: ticks, tallest: tallestOverload, mean: 100 - r.Mean.Overload, limit: limit, open: true,
			}.draw(r.Overload),
		})
	}
	return cards
}

func newWorst(r simulate.Result) worst {
	w := worst{Name: r.Name}
	for _, scored := range r.Worst {
		w.Cases = append(w.Cases, worstCase{scored, zonesInWords(scored.Case.Zones)})
	}
	return w
}

// zonesInWords lists nodes and endpoints of the first few zones.
func zonesInWords(zones []allocate.Zone) string {
	const most = 6
	var words []string
	for i, z := range zones {
		if i == most {
			words = append(words, fmt.Sprintf("and %d more", len(zones)-most))
			break
		}
		words = append(words, fmt.Sprintf("%.0f/%d", z.Capacity, z.Endpoints))
	}
	return strings.Join(words, "\u2002")
}
