package routing

import (
	"slices"
	"strings"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/routing/hints"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// Hints returns the plans of the hints that deliver a decision, nil for other deliveries.
func (d *Decision) Hints() hints.Plans {
	if d.Delivery != allocate.DeliveryHints {
		return nil
	}
	plans := hints.Plans{}
	for i := range d.Families {
		plans[d.Families[i].Family] = &d.Families[i].hints
	}
	return plans
}

// HintKinds returns the kinds of hints that the decision writes.
func (d *Decision) HintKinds() hints.Kinds {
	var all hints.Kinds
	for i := range d.Families {
		f := &d.Families[i]
		kinds := f.hints.Kinds()
		homeless := slices.ContainsFunc(f.Endpoints, func(e intent.Endpoint) bool { return e.Zone == "" })
		all = hints.Kinds{Zones: all.Zones || kinds.Zones, Nodes: all.Nodes || kinds.Nodes, Homeless: all.Homeless || homeless}
	}
	return all
}

// planByHints makes plans and their hints. A plan that hints cannot express is not in force, so it is replaced by one without regard to
// the plan before: one that was kept, or a new one that leans on it.
func (d *Decision) planByHints(in Input) error {
	blank := *d
	for {
		if err := d.plan(in); err != nil {
			return err
		}
		d.planHints(in)
		known := len(in.discarded)
		for i := range d.Families {
			f := &d.Families[i]
			leans := f.Outcome.Rule == allocate.RuleKept || d.Undelivered && !f.Outcome.IsBalanced()
			if leans && !f.hints.Wanted && !slices.Contains(in.discarded, f.Family) {
				in.discarded = append(in.discarded, f.Family)
			}
		}
		if len(in.discarded) == known {
			break
		}
		*d = blank
	}
	for i := range d.Families {
		if f := &d.Families[i]; d.Shifting.Moves {
			f.hints.TakeOut(f.hintsInput(d, in), in.isOut)
		}
	}
	return nil
}

func (d *Decision) planHints(in Input) {
	instead := byGroups(in.Settings)
	if need := intent.NeedOfGroups(d.Request.Intent); need != "" {
		d.Undelivered = true
		written := "no hints are written"
		if d.Shifting.Moves {
			written = "hints only keep endpoints of a shifted domain out"
		}
		d.note("the Service %s; %s, use %s", need, written, instead)
		return
	}
	if _, lost := hints.NodeKey(d.Request.Intent.Tiers); len(lost) > 0 {
		d.note("hints express only one key finer than a zone, and only as the first; %s needs %s", strings.Join(lost, ", "), instead)
	}
	for i := range d.Families {
		d.planFamilyHints(&d.Families[i], in, instead)
	}
}

func (d *Decision) planFamilyHints(f *FamilyDecision, in Input, instead string) {
	of := f.hintsInput(d, in)
	of.Instead = instead
	var limits hints.Limits
	f.hints, limits = hints.ForZones(of)
	d.Undelivered = d.Undelivered || limits.Undelivered
	for _, note := range limits.Notes {
		d.note("%s", note)
	}
	if !f.hints.Wanted {
		return
	}
	bound, _ := d.boundRequest()
	tiers, fault := NodeTiers(in.Cluster, bound, allocate.DeliveryHints, f.Endpoints)
	if fault != "" {
		d.note("%s; use %s", fault, instead)
	}
	if tiers != nil {
		f.planNodes(in, tiers)
		f.hints.AddNodes(of, tiers, f.Nodes.Skips)
	}
}

func (f *FamilyDecision) hintsInput(d *Decision, in Input) hints.Input {
	return hints.Input{
		Family: f.Family, Slices: in.Slices, Cluster: in.Cluster, Intent: d.Request.Intent, OwnZone: d.Request.OwnZone,
		Region: f.Region, Plan: f.Plan, Outcome: f.Outcome, Endpoints: f.Endpoints, Assigned: f.Assigned,
	}
}

func byGroups(s Settings) string {
	if s.WithoutGroups {
		return "delivery by groups (switched off in this cluster)"
	}
	return "delivery by groups (annotation " + v1alpha1.AnnotationProxy + `: "true")`
}
