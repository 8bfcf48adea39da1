package routing

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// groupWrite is a group as it is and as it is to be.
type groupWrite struct {
	group *v1alpha1.EndpointGroup // nil for a new one
	next  *v1alpha1.EndpointGroup // nil for one that goes
	// grows says that zones gain endpoints by it, opens that they gain no more than a
	// group to see.
	grows, opens bool
}

// draft is what a group is to say.
type draft struct {
	s *standing
	v1alpha1.EndpointGroupSpec
	labels  map[string]string
	marks   marks
	arrived map[string]time.Time
	// stays says that zones which have the group now must not lose it by this step.
	stays bool
	// changed says that the group does not say so yet.
	changed, grows, opens bool
}

// compose lists the groups that have to be written.
func (p *groupPlanner) compose() []*groupWrite {
	p.due, p.after = false, 0
	var drafts, empty []*draft
	for _, s := range slices.Concat(p.standing, p.created) {
		d := p.draft(s)
		if len(d.Endpoints) == 0 {
			empty = append(empty, d)
		} else {
			drafts = append(drafts, d)
		}
	}
	var writes []*groupWrite
	if blind := p.blind(drafts); len(blind) > 0 || len(drafts) == 0 {
		if len(empty) == 0 {
			empty = append(empty, p.draft(&standing{}))
		}
		p.openFor(empty[0], blind)
		drafts, empty = append(drafts, empty[0]), empty[1:]
	}
	for _, d := range drafts {
		if d.s.group == nil || d.changed {
			writes = append(writes, &groupWrite{d.s.group, p.object(d), d.grows, d.opens})
		}
	}
	for _, d := range empty {
		writes = append(writes, &groupWrite{group: d.s.group})
	}
	return writes
}

// blind are the planned zones that see none of the groups.
func (p *groupPlanner) blind(drafts []*draft) []string {
	var zones []string
	for _, zone := range p.zones {
		if !slices.ContainsFunc(drafts, func(d *draft) bool { return d.labels[v1alpha1.LabelNotForPrefix+zone] == "" }) {
			zones = append(zones, zone)
		}
	}
	return zones
}

// openFor makes of an empty group the one that tells zones that there is nothing for
// them, or no endpoint at all if there are no zones given.
func (p *groupPlanner) openFor(d *draft, zones []string) {
	d.Ports, d.Tiers, d.LocalOnly, d.marks, d.arrived = nil, p.tiers, false, marks{}, nil
	d.Consumers = nil
	for _, zone := range zones {
		d.Consumers = append(d.Consumers, v1alpha1.GroupConsumer{Zone: zone, Weight: fullWeight})
	}
	d.labels = p.labels(d, func(zone string) bool { return len(zones) > 0 && !slices.Contains(zones, zone) })
	d.opens = true
	d.changed = d.s.group == nil || !p.says(d.s.group, d) || len(d.s.group.Spec.Endpoints) > 0
}

// draft decides what a group is to say.
func (p *groupPlanner) draft(s *standing) *draft {
	d := &draft{s: s}
	d.Service, d.AddressType, d.AnyReady = p.in.Service.Name, p.family, p.anyReady
	deferring := p.defers(s) && s.kept+len(s.arriving) <= MaxGroupSize-len(s.members)
	d.stays = deferring || s.live > p.expired(s)
	if deferring && s.target == nil {
		d.EndpointGroupSpec, d.labels, d.marks, d.arrived = s.group.Spec, s.group.Labels, s.marks, s.at
		return d
	}
	p.draftTiers(d)
	p.draftEndpoints(d, deferring)
	p.draftConsumers(d)
	if s.part != nil && len(d.Endpoints) > 0 {
		d.Ports = s.part.ports
	}
	if s.target != nil {
		d.marks.Home, d.marks.Nowhere = s.target.key.home, s.target.consumers.nowhere
	}
	homes := map[string]bool{}
	for i := range d.Endpoints {
		if zone := d.Endpoints[i].Zone; i == 0 || zone != d.Endpoints[i-1].Zone {
			homes[zone] = true
			d.LocalOnly = d.LocalOnly || p.plans(zone) && !d.consumes(zone)
		}
	}
	if d.LocalOnly && d.stays && !s.group.Spec.LocalOnly && !p.shrinking {
		d.LocalOnly, p.due = false, true
	}
	d.labels = p.labels(d, func(zone string) bool {
		if d.consumes(zone) || homes[zone] {
			return false
		}
		// A zone that the plan did not know sees the group. It goes on to see it until
		// it has been given others.
		if d.stays && !p.shrinking && s.group.Labels[v1alpha1.LabelNotForPrefix+zone] == "" {
			p.due = true
			return false
		}
		return true
	})
	d.changed = d.changed || s.group != nil && !p.says(s.group, d)
	return d
}

func (d *draft) consumes(zone string) bool {
	return slices.ContainsFunc(d.Consumers, func(c v1alpha1.GroupConsumer) bool { return c.Zone == zone })
}

// held reports whether something that is to go is held still: since when it is, and
// for how long.
func (p *groupPlanner) held(since time.Time) bool {
	left := since.Add(p.in.Settings.ShrinkGrace).Sub(p.at.Now)
	if left > 0 {
		if p.after == 0 || left < p.after {
			p.after = left
		}
		return true
	}
	p.due = true
	return !p.shrinking
}

// draftTiers goes from tiers to others by those that are as wide as both.
func (p *groupPlanner) draftTiers(d *draft) {
	d.Tiers = p.tiers
	s := d.s
	if !d.stays || slices.Equal(s.group.Spec.Tiers, p.tiers) {
		return
	}
	wider := widerTiers(s.group.Spec.Tiers, p.tiers)
	d.grows = d.grows || !slices.Equal(s.group.Spec.Tiers, wider)
	if slices.Equal(wider, p.tiers) {
		return
	}
	since := p.at.Now
	if s.marks.Narrowing != nil && slices.Equal(s.group.Spec.Tiers, wider) {
		since = *s.marks.Narrowing
	}
	if p.held(since) {
		d.Tiers, d.marks.Narrowing = wider, &since
	}
}

// draftEndpoints lists the endpoints in the order of addresses.
func (p *groupPlanner) draftEndpoints(d *draft, deferring bool) {
	s := d.s
	list, unchanged := p.listed[:0], 0
	for i, c := range s.members {
		e := &s.group.Spec.Endpoints[i]
		next, keep := *e, deferring
		switch {
		case s.keeps(c, e) && (c.in == s || p.holds(c)) && (!deferring || !c.NotReady || e.NotReady):
			next, keep = p.endpoint(c, d.Tiers), true
			d.grows = d.grows || e.NotReady && !c.NotReady
			if c.in == s {
				p.mark(d, c, s.at[c.Address])
			}
		case s.keeps(c, e) && c.in != s:
			keep = false // held long enough
		}
		if !keep {
			continue
		}
		if sameEndpoint(e, &next) {
			unchanged++
		}
		list = append(list, next)
	}
	d.changed = d.changed || unchanged != len(s.members)
	for _, c := range s.arriving {
		p.mark(d, c, time.Time{})
		list = append(list, p.endpoint(c, d.Tiers))
		d.changed, d.grows = true, d.grows || !c.NotReady
	}
	if len(s.arriving) > 0 {
		slices.SortFunc(list, func(a, b v1alpha1.GroupEndpoint) int { return cmp.Compare(a.Address, b.Address) })
	}
	p.listed = list
	if len(list) == unchanged && s.group != nil && len(list) == len(s.members) {
		d.Endpoints = s.group.Spec.Endpoints
	} else {
		d.Endpoints = slices.Clone(list)
	}
}

// holds reports whether zones keep an endpoint that is another group's by now.
func (p *groupPlanner) holds(c *carried) bool {
	return p.held(p.arrival(c))
}

// arrival is when an endpoint that is in several groups came into the one that counts.
func (p *groupPlanner) arrival(c *carried) time.Time {
	switch {
	case !c.arrives && c.in == c.readIn:
		return c.since
	case !p.at.Now.After(c.since):
		return c.since.Add(time.Microsecond) // the last one counts
	}
	return p.at.Now
}

// expired counts the endpoints that the group has held long enough, if this is the
// step that takes them.
func (p *groupPlanner) expired(s *standing) int {
	n := 0
	if !p.shrinking || s.kept == s.settled {
		return n
	}
	for i, c := range s.members {
		if s.keeps(c, &s.group.Spec.Endpoints[i]) && c.in != s && !p.arrival(c).Add(p.in.Settings.ShrinkGrace).After(p.at.Now) {
			n++
		}
	}
	return n
}

// mark notes what is to be known of an endpoint of the group beside what it says.
func (p *groupPlanner) mark(d *draft, c *carried, at time.Time) {
	if c.arrives {
		at, d.changed = p.arrival(c), true
	}
	if c.arrives || !at.IsZero() && len(c.also) > 0 {
		if d.arrived == nil {
			d.arrived = map[string]time.Time{}
		}
		d.arrived[c.Address] = at
	}
	if c.wants == nil && (c.readIn == nil || slices.Contains(c.readIn.marks.Waiting, c.Address)) {
		d.marks.Waiting = append(d.marks.Waiting, c.Address)
	}
}

func (p *groupPlanner) endpoint(c *carried, tiers []string) v1alpha1.GroupEndpoint {
	e := c.GroupEndpoint
	e.Domains = p.domainsOf(c.Node, c.Zone, tiers)
	return e
}

func sameEndpoint(a, b *v1alpha1.GroupEndpoint) bool {
	return a.Address == b.Address && a.Zone == b.Zone && a.Node == b.Node && a.NotReady == b.NotReady &&
		a.NotServing == b.NotServing && a.Terminating == b.Terminating && sameDomains(a.Domains, b.Domains)
}

// draftConsumers lists the zones that use the group: those of the plan, those that
// have no other, and those that are leaving it.
func (p *groupPlanner) draftConsumers(d *draft) {
	s := d.s
	if s.target != nil {
		d.Consumers = slices.Clone(s.target.consumers.list)
		extra := s.target.extra
		if !p.anyReady {
			extra = p.zones
		}
		for _, zone := range extra {
			if !d.consumes(zone) {
				d.Consumers = append(d.Consumers, v1alpha1.GroupConsumer{Zone: zone, Weight: fullWeight})
				d.marks.Extra = append(d.marks.Extra, zone)
			}
		}
	}
	if s.group != nil {
		for _, c := range d.Consumers {
			d.grows = d.grows || s.kept > 0 && !uses(s.group, c.Zone)
		}
		for _, c := range s.group.Spec.Consumers {
			p.draftLeaving(d, c)
		}
	}
	slices.SortFunc(d.Consumers, func(a, b v1alpha1.GroupConsumer) int { return cmp.Compare(a.Zone, b.Zone) })
	slices.Sort(d.marks.Extra)
}

func (p *groupPlanner) draftLeaving(d *draft, c v1alpha1.GroupConsumer) {
	if !d.stays || !p.plans(c.Zone) || d.consumes(c.Zone) {
		return
	}
	since, leaving := d.s.marks.Leaving[c.Zone]
	if !leaving {
		since = p.at.Now
	}
	if !p.held(since) {
		return
	}
	d.Consumers = append(d.Consumers, c)
	if d.marks.Leaving == nil {
		d.marks.Leaving = map[string]time.Time{}
	}
	d.marks.Leaving[c.Zone] = since
}

// labels are those of a group that some planned zones are kept from. Labels of others
// stay.
func (p *groupPlanner) labels(d *draft, keptFrom func(zone string) bool) map[string]string {
	labels := map[string]string{}
	if d.s.group != nil {
		maps.Copy(labels, d.s.group.Labels)
		maps.DeleteFunc(labels, func(key, _ string) bool { return strings.HasPrefix(key, v1alpha1.LabelNotForPrefix) })
	}
	labels[v1alpha1.LabelService] = p.in.Service.Name
	delete(labels, v1alpha1.LabelHandOver)
	if p.at.HandOver {
		labels[v1alpha1.LabelHandOver] = "true"
	}
	for _, zone := range p.zones {
		if keptFrom(zone) {
			labels[v1alpha1.LabelNotForPrefix+zone] = "true"
		}
	}
	return labels
}

// says reports whether a group says all that the draft does, but for its endpoints.
func (p *groupPlanner) says(group *v1alpha1.EndpointGroup, d *draft) bool {
	spec := &group.Spec
	was := readMarks(group)
	return spec.Service == d.Service && spec.AnyReady == d.AnyReady && spec.LocalOnly == d.LocalOnly &&
		slices.Equal(spec.Tiers, d.Tiers) && slices.Equal(spec.Consumers, d.Consumers) && slices.Equal(spec.Ports, d.Ports) &&
		maps.Equal(group.Labels, d.labels) && p.owned(group) &&
		was.Home == d.marks.Home && was.Nowhere == d.marks.Nowhere && slices.Equal(was.Extra, d.marks.Extra) &&
		sameTime(was.Narrowing, d.marks.Narrowing) && maps.EqualFunc(was.Leaving, d.marks.Leaving, time.Time.Equal)
}

func sameTime(a, b *time.Time) bool {
	return a == nil && b == nil || a != nil && b != nil && a.Equal(*b)
}

// owned reports whether the group goes when its Service does.
func (p *groupPlanner) owned(group *v1alpha1.EndpointGroup) bool {
	owner := metav1.GetControllerOf(group)
	return owner != nil && owner.UID == p.in.Service.UID
}

// object is the group that says what the draft does.
func (p *groupPlanner) object(d *draft) *v1alpha1.EndpointGroup {
	group := &v1alpha1.EndpointGroup{}
	if d.s.group != nil {
		d.s.group.ObjectMeta.DeepCopyInto(&group.ObjectMeta)
	} else {
		group.Namespace = p.in.Service.Namespace
		group.GenerateName = p.in.Service.Name + "-"
	}
	group.Labels = d.labels
	group.Spec = d.EndpointGroupSpec
	d.marks.setArrivals(d.arrived)
	if group.Annotations == nil {
		group.Annotations = map[string]string{}
	}
	if text := d.marks.text(); text != "" {
		group.Annotations[v1alpha1.AnnotationGroupMarks] = text
	} else {
		delete(group.Annotations, v1alpha1.AnnotationGroupMarks)
	}
	if p.trigger != "" {
		group.Annotations[corev1.EndpointsLastChangeTriggerTime] = p.trigger
	}
	if !p.owned(group) {
		group.OwnerReferences = slices.DeleteFunc(group.OwnerReferences, func(r metav1.OwnerReference) bool {
			return r.Controller != nil && *r.Controller
		})
		yes, no := true, false
		group.OwnerReferences = append(group.OwnerReferences, metav1.OwnerReference{
			APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Service", Name: p.in.Service.Name, UID: p.in.Service.UID,
			Controller: &yes, BlockOwnerDeletion: &no,
		})
	}
	return group
}

// loses finds the zones that the step would leave without an endpoint before it gives
// them others, and reports whether there are any.
func (p *groupPlanner) loses() bool {
	const unplanned = "" // nodes of such zones see all groups
	for _, zone := range slices.Concat(p.zones, []string{unplanned}) {
		usable, live := 0, 0
		for _, s := range p.standing {
			if uses(s.group, zone) {
				usable += s.usable
				live += s.live
			}
		}
		if usable > 0 && live == 0 {
			p.deferring[zone] = true
		}
	}
	return len(p.deferring) > 0
}

// defers reports whether the group keeps what has gone until the next step.
func (p *groupPlanner) defers(s *standing) bool {
	if s.group == nil {
		return false
	}
	for zone := range p.deferring {
		if uses(s.group, zone) {
			return true
		}
	}
	return false
}

// uses reports whether nodes of a zone use a group, as far as its tiers allow.
func uses(group *v1alpha1.EndpointGroup, zone string) bool {
	switch {
	case zone == "":
		return true
	case group.Labels[v1alpha1.LabelNotForPrefix+zone] != "":
		return false
	case !group.Spec.LocalOnly:
		return true
	}
	return slices.ContainsFunc(group.Spec.Consumers, func(c v1alpha1.GroupConsumer) bool { return c.Zone == zone }) ||
		!slices.ContainsFunc(group.Spec.Endpoints, func(e v1alpha1.GroupEndpoint) bool { return e.Zone == zone })
}

// maxGroupBytes is how much a group is filled to at most. The API takes somewhat more
// than a megabyte, and beside an endpoint it keeps who wrote it.
const maxGroupBytes = 900 << 10

// bytes is about what the group takes in the API.
func (s *standing) bytes() int {
	n := 16 << 10 // zones, ports and labels
	if s.group != nil {
		for i := range s.group.Spec.Endpoints {
			n += bytesOf(&s.group.Spec.Endpoints[i])
		}
	}
	for _, c := range s.arriving {
		n += bytesOf(&c.GroupEndpoint)
	}
	return n
}

func (p *groupPlanner) bytesOf(c *carried) int {
	e := p.endpoint(c, p.tiers)
	return bytesOf(&e)
}

func bytesOf(e *v1alpha1.GroupEndpoint) int {
	n := 3*len(e.Address) + len(e.Zone) + len(e.Node) + 200
	for key, value := range e.Domains {
		n += 2*len(key) + len(value) + 16
	}
	return n
}
