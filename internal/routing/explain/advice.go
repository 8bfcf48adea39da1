package explain

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/bools"
	"vicinity.dev/vicinity/internal/kit/plaintext"
)

// Advice is a change of pods' zones that improves a plan.
type Advice struct {
	Moves []Move
	// Before and After are the options without and with the change.
	Before, After Option
	// pods are those of the question.
	pods map[string]string
}

// Move is a number of pods that move between zones, or are new.
type Move struct {
	New  bool   `json:"new,omitempty"`
	From string `json:"from,omitempty"` // means nothing if New
	To   string `json:"to"`
	Pods int    `json:"pods"`
}

// Limits of the search, which bound its work for any number of zones.
const (
	// adviceZones is the number of zones to move pods from and to: those with the greatest surplus and the greatest
	// lack.
	adviceZones = 6
	// adviceAdded is the most pods to add to a zone.
	adviceAdded = 4
	// adviceGain is the least gain, in points of the score, that is worth a change.
	adviceGain = 1.0
	// mostTotal is the score of a perfect plan.
	mostTotal = 100.0
)

// Advise looks for changes that improve the option: one pod moved, a few added to one zone, or as many moved or added
// as give each zone the pods that its traffic expects. It returns the smallest worthwhile change and, if another gains
// more, the smallest of the best.
func Advise(q Question, option Option) ([]Advice, error) {
	zones, names := sorted(q.Region)
	if q.Region.Endpoints() == 0 {
		return nil, nil
	}
	cpu, _ := sorted(q.CPU)
	planner := new(allocate.Planner)
	// The nodes of moved pods are unknown: before and after are compared by zone.
	option.Nodes = nil
	q.rate(&option, q.Region)
	if option.Figures.Unreached == 0 && option.Total >= mostTotal-adviceGain {
		return nil, nil // nothing can gain enough
	}
	var found []Advice
	for _, moves := range candidates(q.Region, zones, names, option.Outcome) {
		after, err := q.option(planner, applyMoves(q.Region, zones, moves), applyMoves(q.CPU, cpu, moves), option.Intent)
		if err != nil {
			return nil, err
		}
		if better(after, option, adviceGain) {
			found = append(found, Advice{Moves: moves, Before: option, After: after, pods: q.Pods})
		}
	}
	// The order of candidates depends only on names, and sorting keeps it.
	slices.SortStableFunc(found, func(a, b Advice) int {
		return cmp.Or(
			cmp.Compare(a.size(), b.size()),
			cmp.Compare(a.After.Figures.Unreached, b.After.Figures.Unreached),
			// Rounding errors must not choose among equally good changes.
			cmp.Compare(math.Round(1e6*b.After.Total), math.Round(1e6*a.After.Total)),
		)
	})
	return worthwhile(found), nil
}

// worthwhile returns the smallest change and, if another is better by adviceGain, the smallest that is about as good as
// the best. The changes are sorted by size.
func worthwhile(found []Advice) []Advice {
	if len(found) == 0 {
		return nil
	}
	best := 0
	for i := range found {
		if better(found[i].After, found[best].After, adviceGain) {
			best = i
		}
	}
	if best == 0 {
		return found[:1]
	}
	return []Advice{found[0], found[best]}
}

func (a Advice) size() int {
	size := 0
	for _, m := range a.Moves {
		size += m.Pods
	}
	return size
}

// candidates returns the changes to try. Moves precede additions of as many pods.
func candidates(region allocate.Region, zones []allocate.Zone, names []string, outcome allocate.Outcome) [][]Move {
	shares := region.Shares(names)
	endpoints := region.Endpoints()
	lack := func(z int) float64 { return shares[z]*float64(endpoints) - float64(zones[z].Endpoints) }
	var givers, takers []int
	for z := range zones {
		if zones[z].Endpoints > 0 {
			givers = append(givers, z)
		}
		if shares[z] > 0 {
			takers = append(takers, z)
		}
	}
	slices.SortStableFunc(givers, func(a, b int) int { return cmp.Compare(lack(a), lack(b)) })
	slices.SortStableFunc(takers, func(a, b int) int { return cmp.Compare(lack(b), lack(a)) })
	givers, takers = givers[:min(len(givers), adviceZones)], takers[:min(len(takers), adviceZones)]

	var all [][]Move
	for _, from := range givers {
		for _, to := range takers {
			if from != to {
				all = append(all, []Move{{From: names[from], To: names[to], Pods: 1}})
			}
		}
	}
	if len(takers) == 0 {
		return nil
	}
	all = append(all, spread(zones, names, shares, 0))
	for _, to := range takers {
		for added := 1; added <= adviceAdded; added++ {
			all = append(all, []Move{{New: true, To: names[to], Pods: added}})
		}
	}
	for added := 1; added <= adviceAdded; added++ {
		all = append(all, spread(zones, names, shares, added))
	}
	if missing := outcome.Start + outcome.Padding - endpoints; missing > adviceAdded {
		all = append(all, spread(zones, names, shares, missing))
	}
	return slices.DeleteFunc(all, func(moves []Move) bool { return len(moves) == 0 })
}

// spread returns the change after which each zone has the number of pods that its traffic expects. It adds pods, or
// else moves some.
func spread(zones []allocate.Zone, names []string, shares []float64, added int) []Move {
	have := make([]int, len(zones))
	total := added
	for z := range zones {
		have[z] = zones[z].Endpoints
		total += have[z]
	}
	want := apportion(have, shares, total)
	if added > 0 {
		return placeAdded(names, have, shares, total, added)
	}
	var moves []Move
	to := 0
	for from := range have {
		for have[from] > want[from] {
			for have[to] >= want[to] {
				to++
			}
			pods := min(have[from]-want[from], want[to]-have[to])
			have[from] -= pods
			have[to] += pods
			moves = append(moves, Move{From: names[from], To: names[to], Pods: pods})
		}
	}
	return moves
}

// apportion divides the total by shares into whole numbers. Zones with more than the whole part of their share get the
// rest first.
func apportion(have []int, shares []float64, total int) []int {
	want, left := make([]int, len(have)), total
	order := make([]int, len(have))
	rest := make([]float64, len(have))
	for z, share := range shares {
		expected := share * float64(total)
		want[z] = int(math.Floor(expected + 1e-9))
		rest[z] = expected - float64(want[z])
		left -= want[z]
		order[z] = z
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(
			bools.Compare(have[b] > want[b] && shares[b] > 0, have[a] > want[a] && shares[a] > 0),
			cmp.Compare(rest[b], rest[a]),
		)
	})
	for _, z := range order {
		if left > 0 && shares[z] > 0 {
			want[z]++
			left--
		}
	}
	return want
}

// placeAdded adds pods one by one in the zone that lacks most.
func placeAdded(names []string, have []int, shares []float64, total, added int) []Move {
	extra := make([]int, len(have))
	for range added {
		most := -1
		lack := func(z int) float64 { return shares[z]*float64(total) - float64(have[z]+extra[z]) }
		for z := range have {
			if shares[z] > 0 && (most < 0 || lack(z) > lack(most)+1e-9) {
				most = z
			}
		}
		extra[most]++
	}
	var moves []Move
	for z, pods := range extra {
		if pods > 0 {
			moves = append(moves, Move{New: true, To: names[z], Pods: pods})
		}
	}
	return moves
}

// applyMoves returns the region after the moves.
func applyMoves(region allocate.Region, zones []allocate.Zone, moves []Move) allocate.Region {
	region.Zones = slices.Clone(zones)
	for i := range region.Zones {
		z := &region.Zones[i]
		for _, m := range moves {
			if m.To == z.Name {
				z.Endpoints += m.Pods
			}
			if !m.New && m.From == z.Name {
				z.Endpoints -= m.Pods
			}
		}
	}
	return region
}

// String returns a sentence as in "move 1 pod from zone-a to zone-c: in-zone 78 % -> 100 %".
func (a Advice) String() string {
	return a.Change() + ": " + a.Gain()
}

// Change returns the part of the sentence with the change.
func (a Advice) Change() string {
	var parts []string
	for _, m := range a.Moves {
		parts = append(parts, m.text(a.pods))
	}
	verb := "move "
	if a.Moves[0].New {
		verb = "add "
	}
	change := verb + plaintext.Plural(a.size(), "pod")
	if len(parts) > 1 {
		// Each part has its own number.
		for i, m := range a.Moves {
			parts[i] = fmt.Sprintf("%d %s", m.Pods, parts[i])
		}
		return change + ", " + strings.Join(parts, ", ")
	}
	return change + " " + parts[0]
}

func (m Move) text(pods map[string]string) string {
	if m.New {
		return "in " + ZoneName(m.To)
	}
	example := ""
	if pod := pods[m.From]; pod != "" {
		example = fmt.Sprintf(" (e.g. %s)", pod)
	}
	return fmt.Sprintf("from %s%s to %s", ZoneName(m.From), example, ZoneName(m.To))
}

// Gain returns the part of the sentence with the improvement.
func (a Advice) Gain() string {
	before, after := a.Before.Figures, a.After.Figures
	gains := []string{fmt.Sprintf("in-zone %s -> %s", plaintext.Percent(before.InZone), plaintext.Percent(after.InZone))}
	if b, f := plaintext.Percent(before.Overload), plaintext.Percent(after.Overload); b != f {
		gains = append(gains, fmt.Sprintf("overload %s -> %s", b, f))
	}
	if before.Unreached != after.Unreached {
		gains = append(gains, fmt.Sprintf("zones that reach nothing %d -> %d", before.Unreached, after.Unreached))
	}
	return strings.Join(gains, ", ")
}
