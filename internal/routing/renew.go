package routing

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/internal/allocate"
)

// renewed reports whether a plan takes the place of one that could be kept.
func (d *Decision) renewed() bool {
	return d != nil && (d.Meanwhile.renewed() ||
		slices.ContainsFunc(d.Families, func(f FamilyDecision) bool { return f.Outcome.Rule == allocate.RuleRenewed }))
}

// compare notes what the plans that could be kept would give beside the new ones, and returns
// the families of which the new one is not worth more, by what is delivered of both. A plan
// that is better by itself may be none for nodes that look for endpoints of their own, nor
// for hints, which cannot express every one.
func (d *Decision) compare(kept *Decision) (worse []corev1.IPFamily) {
	if d.Meanwhile.renewed() {
		worse = d.Meanwhile.compare(kept.Meanwhile)
	}
	for i := range d.Families {
		f := &d.Families[i]
		if f.Outcome.Rule != allocate.RuleRenewed {
			continue
		}
		before := kept.family(f.Family)
		f.Outcome.Before = before.Outcome.Figures
		if before.hints.Wanted && !f.hints.Wanted || !allocate.Renews(f.Outcome.Figures, f.Outcome.Before) {
			worse = append(worse, f.Family)
		}
	}
	return worse
}
