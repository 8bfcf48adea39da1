package routing

import (
	"slices"

	"vicinity.dev/vicinity/internal/allocate"
)

// renewed reports whether a plan takes the place of one that could be kept.
func (d *Decision) renewed() bool {
	return d != nil && (d.Meanwhile.renewed() ||
		slices.ContainsFunc(d.Families, func(f FamilyDecision) bool { return f.Outcome.Rule == allocate.RuleRenewed }))
}

// improves compares what is delivered of new plans with what is delivered of those that
// could be kept. A plan that is better by itself may be none for nodes that look for
// endpoints of their own, nor for hints, which cannot express every one.
func (d *Decision) improves(kept *Decision) bool {
	switch {
	case d.Undelivered && !kept.Undelivered:
		return false
	case d.Meanwhile.renewed() && !d.Meanwhile.improves(kept.Meanwhile):
		return false
	}
	for i := range d.Families {
		f := &d.Families[i]
		if f.Outcome.Rule != allocate.RuleRenewed {
			continue
		}
		if f.Outcome.Before = kept.family(f.Family).Outcome.Figures; !allocate.Renews(f.Outcome.Figures, f.Outcome.Before) {
			return false
		}
	}
	return true
}
