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
	// trigger is the value of the annotation that says for which change the step is.
	trigger string
}

type draft struct {
	*group
	fates []fate // of the members
	tiers []string
	// narrowing is since when the tiers are to become those that are wanted, which give
	// nodes less. It is nil if they are already.
	narrowing *time.Time
	// consumers are those of the share and extra zones, and leaving those that are to lose
	// the group.
	consumers []v1alpha1.GroupConsumer
	extra     []string
	leaving   []leaving
	// localOnly and hidden, the zones that do not see the group, are as in the object where
	// that shows more and the draft takes nothing. Then conceals is set.
	localOnly bool
	hidden    []string
	conceals  bool
	// frozen says that the group stays as the object is.
	frozen bool
	// grows says that zones gain endpoints.
	grows bool
}

// leaving is a consumer that is to lose a group, and since when.
type leaving struct {
	v1alpha1.GroupConsumer
	since time.Time
}

type fate uint8

const (
	goes    fate = iota // it is not in the group any more
	belongs             // it is the group's own, and said as slices have it
	held                // it belongs to another group, and zones keep it for a while
	stale               // it is said as the group has it, although it is not so any more
)

// hold decides what each group says in this step. A step either gives or takes:
//
//   - It gives while any zone gains an endpoint. What zones lose stays, however long it is
//     held already. Endpoints that have gone leave the groups at once, except where a zone
//     would see none that is ready before it is given others: there groups keep them until
//     the next step.
//   - It takes otherwise: what was held for the grace period goes.
//
// again is set where a step that gives leaves something for the next, after is when the
// first thing that is still held may go.
func hold(w *want, groups []*group) step {
	drafts := make([]*draft, len(groups))
	for i, g := range groups {
		drafts[i] = w.give(g)
	}
	s := step{trigger: triggerOf(w, groups)}
	overdue := slices.ContainsFunc(drafts, func(d *draft) bool { return d.conceals || w.overdue(d) })
	switch grows := slices.ContainsFunc(drafts, func(d *draft) bool { return d.grows }); {
	case grows:
		s.again = overdue
		// One write takes and gives at once.
		if losing := w.losing(groups); w.anyReady && len(losing) > 0 && len(w.writes(drafts, s.trigger)) > 1 {
			s.again = true
			for i, g := range groups {
				if g.isUsedBy(losing) && g.kept+len(g.arriving) <= MaxSize-len(g.members) {
					drafts[i] = w.keep(g)
				}
			}
		}
	case overdue:
		for i, d := range drafts {
			drafts[i] = w.take(d)
		}
	}
	s.writes = w.writes(drafts, s.trigger)
	for _, d := range drafts {
		for _, since := range w.holds(d) {
			if left := w.left(since); left > 0 && (s.after == 0 || left < s.after) {
				s.after = left
			}
		}
	}
	return s
}

// give is the draft that gives zones all that they gain and takes nothing from them but
// what has gone.
func (w *want) give(g *group) *draft {
	d := w.draft(g)
	if g.live > 0 {
		w.holdBack(d)
	}
	w.show(d, g.live == 0)
	return d
}

// keep is the draft that gives, and takes not even what has gone.
func (w *want) keep(g *group) *draft {
	if g.share == nil {
		return &draft{group: g, frozen: true, fates: slices.Repeat([]fate{stale}, len(g.members))}
	}
	d := w.draft(g)
	for i, p := range g.members {
		if d.fates[i] == goes || d.fates[i] == belongs && p.NotReady && !g.object.Spec.Endpoints[i].NotReady {
			d.fates[i] = stale
		}
	}
	w.holdBack(d)
	w.show(d, false)
	return d
}

// take is a draft without what was held for the grace period. A group that has no ready
// endpoint left holds nothing.
func (w *want) take(from *draft) *draft {
	d := *from
	d.fates = slices.Clone(from.fates)
	live := d.live
	for i, p := range d.members {
		if d.fates[i] == held && w.left(w.arrival(p)) <= 0 {
			d.fates[i] = goes
			live--
		}
	}
	d.leaving = slices.DeleteFunc(slices.Clone(from.leaving), func(l leaving) bool { return live <= 0 || w.left(l.since) <= 0 })
	if d.narrowing != nil && (live <= 0 || w.left(*d.narrowing) <= 0) {
		d.tiers, d.narrowing = w.tiers, nil
	}
	d.conceals = false
	w.show(&d, true)
	return &d
}

// draft is what a group says when nothing is held but endpoints.
func (w *want) draft(g *group) *draft {
	d := &draft{group: g, fates: make([]fate, len(g.members)), tiers: w.tiers}
	for i, p := range g.members {
		switch {
		case !g.keeps(i):
		case p.in != g:
			d.fates[i] = held
		default:
			d.fates[i] = belongs
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

// holdBack holds the tiers and the consumers that the group has and is to lose. From tiers
// to others the way goes by those that are as wide as both.
func (w *want) holdBack(d *draft) {
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

// show decides which planned zones see the group: consumers, and those where any of its
// endpoints is at home, which are not consumers if the group is local only. Unless the
// group may be concealed, zones that see it or use it now go on doing so.
func (w *want) show(d *draft, conceal bool) {
	d.localOnly, d.hidden = false, nil
	homes := d.homes()
	for _, zone := range w.zones {
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

func (d *draft) homes() []string {
	var zones []string
	add := func(zone string) {
		if len(zones) == 0 || zones[len(zones)-1] != zone && !slices.Contains(zones, zone) {
			zones = append(zones, zone)
		}
	}
	for i, p := range d.members {
		switch d.fates[i] {
		case goes:
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

// consumes reports whether a zone is among the consumers, maybe for a while only.
func (d *draft) consumes(zone string) bool {
	return hasZone(d.consumers, zone) || slices.ContainsFunc(d.leaving, func(l leaving) bool { return l.Zone == zone })
}

func (w *want) left(since time.Time) time.Duration { return since.Add(w.Grace).Sub(w.Now) }

func (w *want) overdue(d *draft) bool {
	return slices.ContainsFunc(w.holds(d), func(since time.Time) bool { return w.left(since) <= 0 })
}

func (w *want) holds(d *draft) []time.Time {
	var times []time.Time
	if d.narrowing != nil {
		times = append(times, *d.narrowing)
	}
	for _, l := range d.leaving {
		times = append(times, l.since)
	}
	for i, p := range d.members {
		if d.fates[i] == held {
			times = append(times, w.arrival(p))
		}
	}
	return times
}

// arrival is when an endpoint that is in several groups came into its own.
func (w *want) arrival(p *placement) time.Time {
	switch {
	case !p.arrives && p.in == p.readIn:
		return p.since
	case !w.Now.After(p.since):
		return p.since.Add(time.Microsecond) // the last one counts
	}
	return w.Now
}

// losing are the zones whose groups say that endpoints are ready while none of them is
// any more. The empty zone stands for nodes of all zones that the plan does not know,
// which see all groups.
func (w *want) losing(groups []*group) []string {
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
