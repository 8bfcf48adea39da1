package groups

import (
	"slices"
	"time"

	"vicinity.dev/vicinity/api/v1alpha1"
)

type step struct {
	writes []write
	again  bool
	after  time.Duration
	// trigger is the value of the annotation with the time of the change that the step is for.
	trigger string
}

type draft struct {
	*group
	memberships []membership // of the members
	tiers       []string
	// narrowing is when the change to narrower tiers began, nil if none is under way.
	narrowing *time.Time
	// consumers are those of the share and extra zones, and leaving the consumers that the group loses.
	consumers []v1alpha1.GroupConsumer
	extra     []string
	leaving   []leaving
	// localOnly and hidden, the zones that do not see the group, are as in the object where that shows more and the
	// draft takes nothing. Then conceals is set.
	localOnly bool
	hidden    []string
	conceals  bool
	// frozen says that the object stays unchanged.
	frozen bool
	// grows says that zones gain endpoints.
	grows bool
}

// leaving is a consumer that a group loses, and since when.
type leaving struct {
	v1alpha1.GroupConsumer
	since time.Time
}

type membership uint8

const (
	removed membership = iota // the group loses it
	owned                     // it belongs to the group, in its state in the slices
	held                      // it belongs to another group, and zones keep it for a while
	stale                     // the group keeps it in its old state
)

// hold decides the content of each group in this step. A step either gives or takes:
//
//   - It gives while any zone gains an endpoint. Endpoints that zones lose stay, however long they are held already.
//     Removed endpoints leave the groups at once, unless a zone would have no ready endpoint before it gains others:
//     then groups keep them until the next step.
//   - Otherwise it takes endpoints that were held for the grace period.
//
// again asks for the next step after one that gives, and after is when the first held endpoint may go.
func hold(w *want, groups []*group) step {
	drafts := make([]*draft, len(groups))
	for i, g := range groups {
		drafts[i] = w.giveDraft(g)
	}
	s := step{trigger: triggerOf(w, groups)}
	overdue := slices.ContainsFunc(drafts, func(d *draft) bool { return d.conceals || w.isOverdue(d) })
	switch grows := slices.ContainsFunc(drafts, func(d *draft) bool { return d.grows }); {
	case grows:
		s.again = overdue
		// One write takes and gives at once.
		if losing := w.losingZones(groups); w.anyReady && len(losing) > 0 && len(w.writes(drafts, s.trigger)) > 1 {
			s.again = true
			for i, g := range groups {
				if g.isUsedBy(losing) && g.kept+len(g.arriving) <= MaxSize-len(g.members) {
					drafts[i] = w.keepDraft(g)
				}
			}
		}
	case overdue:
		for i, d := range drafts {
			drafts[i] = w.takeDraft(d)
		}
	}
	s.writes = w.writes(drafts, s.trigger)
	for _, d := range drafts {
		for _, since := range w.holdTimes(d) {
			if left := w.graceLeft(since); left > 0 && (s.after == 0 || left < s.after) {
				s.after = left
			}
		}
	}
	return s
}

// giveDraft returns the draft that gives zones all that they gain and takes only removed endpoints.
func (w *want) giveDraft(g *group) *draft {
	d := w.newDraft(g)
	if g.live > 0 {
		w.holdLosses(d)
	}
	w.setVisibility(d, g.live == 0)
	return d
}

// keepDraft returns the draft that gives and takes nothing, not even removed endpoints.
func (w *want) keepDraft(g *group) *draft {
	if g.share == nil {
		return &draft{group: g, frozen: true, memberships: slices.Repeat([]membership{stale}, len(g.members))}
	}
	d := w.newDraft(g)
	for i, p := range g.members {
		if d.memberships[i] == removed || d.memberships[i] == owned && p.NotReady && !g.object.Spec.Endpoints[i].NotReady {
			d.memberships[i] = stale
		}
	}
	w.holdLosses(d)
	w.setVisibility(d, false)
	return d
}

// takeDraft returns the draft without endpoints that were held for the grace period. A group without a ready endpoint
// holds none.
func (w *want) takeDraft(from *draft) *draft {
	d := *from
	d.memberships = slices.Clone(from.memberships)
	live := d.live
	for i, p := range d.members {
		if d.memberships[i] == held && w.graceLeft(w.arrivalOf(p)) <= 0 {
			d.memberships[i] = removed
			live--
		}
	}
	d.leaving = slices.DeleteFunc(slices.Clone(from.leaving), func(l leaving) bool { return live <= 0 || w.graceLeft(l.since) <= 0 })
	if d.narrowing != nil && (live <= 0 || w.graceLeft(*d.narrowing) <= 0) {
		d.tiers, d.narrowing = w.tiers, nil
	}
	d.conceals = false
	w.setVisibility(&d, true)
	return &d
}

// newDraft returns the draft that holds endpoints, but no consumers or tiers.
func (w *want) newDraft(g *group) *draft {
	d := &draft{group: g, memberships: make([]membership, len(g.members)), tiers: w.tiers}
	for i, p := range g.members {
		switch {
		case !g.keeps(i):
		case p.in != g:
			d.memberships[i] = held
		default:
			d.memberships[i] = owned
			d.grows = d.grows || g.object.Spec.Endpoints[i].NotReady && !p.NotReady
		}
	}
	d.grows = d.grows || slices.ContainsFunc(g.arriving, func(p *placement) bool { return !p.NotReady })
	if g.share == nil {
		return d
	}
	d.consumers = slices.Clone(g.share.consumers.list)
	extra := g.share.extra
	if !w.anyReady {
		extra = w.zones
	}
	for _, zone := range extra {
		if !hasZone(d.consumers, zone) {
			d.consumers = append(d.consumers, v1alpha1.GroupConsumer{Zone: zone, Weight: fullWeight})
			d.extra = append(d.extra, zone)
		}
	}
	slices.Sort(d.extra)
	d.grows = d.grows || g.object != nil && g.kept > 0 &&
		slices.ContainsFunc(d.consumers, func(c v1alpha1.GroupConsumer) bool { return !uses(g.object, c.Zone) })
	return d
}

// holdLosses holds the tiers and the consumers that the group loses. Tiers change by way of tiers that are as wide as
// both.
func (w *want) holdLosses(d *draft) {
	spec := &d.object.Spec
	if !slices.Equal(spec.Tiers, w.tiers) {
		d.tiers = widerTiers(spec.Tiers, w.tiers)
		widened := slices.Equal(spec.Tiers, d.tiers)
		d.grows = d.grows || !widened
		switch {
		case slices.Equal(d.tiers, w.tiers):
		case widened && d.marks.Narrowing != nil:
			d.narrowing = d.marks.Narrowing
		default:
			d.narrowing = &w.Now
		}
	}
	for _, c := range spec.Consumers {
		if !w.plans(c.Zone) || hasZone(d.consumers, c.Zone) {
			continue
		}
		since, known := d.marks.Leaving[c.Zone]
		if !known {
			since = w.Now
		}
		d.leaving = append(d.leaving, leaving{c, since})
	}
}

// setVisibility decides which planned zones see the group: its consumers, and the zones of its endpoints, which makes
// the group local only. If the endpoints leave a domain, zones outside the plan count, too. Unless the group may be concealed,
// zones that see or use it now still do.
func (w *want) setVisibility(d *draft, conceal bool) {
	d.localOnly, d.hidden = false, nil
	homes, zones := d.homeZones(), w.zones
	if d.share != nil && d.share.leaves() {
		zones = w.Cluster.Zones()
	}
	for _, zone := range zones {
		switch {
		case d.consumes(zone):
		case slices.Contains(homes, zone):
			d.localOnly = true
		default:
			d.hidden = append(d.hidden, zone)
		}
	}
	if conceal {
		return
	}
	if d.localOnly && !d.object.Spec.LocalOnly {
		d.localOnly, d.conceals = false, true
	}
	all := len(d.hidden)
	d.hidden = slices.DeleteFunc(d.hidden, func(zone string) bool { return !isHidden(d.object, zone) })
	d.conceals = d.conceals || len(d.hidden) < all
}

func (d *draft) homeZones() []string {
	var zones []string
	add := func(zone string) {
		if len(zones) == 0 || zones[len(zones)-1] != zone && !slices.Contains(zones, zone) {
			zones = append(zones, zone)
		}
	}
	for i, p := range d.members {
		switch d.memberships[i] {
		case removed:
		case stale:
			add(d.object.Spec.Endpoints[i].Zone)
		default:
			add(p.Zone)
		}
	}
	for _, p := range d.arriving {
		add(p.Zone)
	}
	return zones
}

// consumes reports whether a zone is a consumer, even one that leaves.
func (d *draft) consumes(zone string) bool {
	return hasZone(d.consumers, zone) || slices.ContainsFunc(d.leaving, func(l leaving) bool { return l.Zone == zone })
}

func (w *want) graceLeft(since time.Time) time.Duration { return since.Add(w.Grace).Sub(w.Now) }

func (w *want) isOverdue(d *draft) bool {
	return slices.ContainsFunc(w.holdTimes(d), func(since time.Time) bool { return w.graceLeft(since) <= 0 })
}

func (w *want) holdTimes(d *draft) []time.Time {
	var times []time.Time
	if d.narrowing != nil {
		times = append(times, *d.narrowing)
	}
	for _, l := range d.leaving {
		times = append(times, l.since)
	}
	for i, p := range d.members {
		if d.memberships[i] == held {
			times = append(times, w.arrivalOf(p))
		}
	}
	return times
}

// arrivalOf returns when an endpoint that is in several groups entered its own.
func (w *want) arrivalOf(p *placement) time.Time {
	switch {
	case !p.arrives && p.in == p.readIn:
		return p.since
	case !w.Now.After(p.since):
		return p.since.Add(time.Microsecond) // the last one counts
	}
	return w.Now
}

// losingZones returns the zones whose groups say that endpoints are ready, although none of them still is. The empty
// zone stands for nodes of zones that the plan does not know, which see all groups, except of endpoints that leave a domain.
func (w *want) losingZones(groups []*group) []string {
	var zones []string
	for _, zone := range append(slices.Clone(w.zones), "") {
		usable, live := 0, 0
		for _, g := range groups {
			if g.object != nil && uses(g.object, zone) {
				usable += g.usable
				live += g.live
			}
		}
		if usable > 0 && live == 0 {
			zones = append(zones, zone)
		}
	}
	return zones
}

func (g *group) isUsedBy(zones []string) bool {
	return g.object != nil && slices.ContainsFunc(zones, func(zone string) bool { return uses(g.object, zone) })
}

// uses reports whether nodes of a zone use a group, as far as its tiers allow.
func uses(object *v1alpha1.EndpointGroup, zone string) bool {
	switch {
	case zone == "":
		return true
	case isHidden(object, zone):
		return false
	case !object.Spec.LocalOnly:
		return true
	}
	return hasZone(object.Spec.Consumers, zone) ||
		!slices.ContainsFunc(object.Spec.Endpoints, func(e v1alpha1.GroupEndpoint) bool { return e.Zone == zone })
}

func isHidden(object *v1alpha1.EndpointGroup, zone string) bool {
	return object.Labels[v1alpha1.LabelNotForPrefix+zone] != ""
}
