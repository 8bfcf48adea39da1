package groups

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/routing/intent"
)

type write struct {
	object *v1alpha1.EndpointGroup // nil for a new one
	next   *v1alpha1.EndpointGroup // nil for one that is deleted
	// grows says that zones gain endpoints by it, opens that they gain no more than a
	// group to see.
	grows, opens bool
}

// content is what a group says, but for what is of no concern here.
type content struct {
	v1alpha1.EndpointGroupSpec
	labels map[string]string
	marks  marks
}

// writes lists the groups that do not say yet what the drafts do. Of drafts without
// endpoints one becomes the group for zones that see no other, and the rest go.
func (w *want) writes(drafts []*draft, trigger string) []write {
	var writes []write
	var empty []*v1alpha1.EndpointGroup
	blind := slices.Clone(w.zones)
	full := 0
	for _, d := range drafts {
		if d.isEmpty() {
			empty = append(empty, d.object)
			continue
		}
		full++
		blind = slices.DeleteFunc(blind, func(zone string) bool { return !d.hides(zone) })
		if c, changed := w.say(d); changed {
			writes = append(writes, write{object: d.object, next: w.object(d.object, c, trigger), grows: d.grows})
		}
	}
	if len(blind) > 0 || full == 0 {
		if len(empty) == 0 {
			empty = append(empty, nil)
		}
		notice := empty[0]
		if c := w.sayNothing(notice, blind); notice == nil || len(notice.Spec.Endpoints) > 0 || !w.says(notice, c) {
			writes = append(writes, write{object: notice, next: w.object(notice, c, trigger), opens: true})
		}
		empty = empty[1:]
	}
	for _, object := range empty {
		writes = append(writes, write{object: object})
	}
	return writes
}

func (d *draft) isEmpty() bool {
	return len(d.arriving) == 0 && !slices.ContainsFunc(d.fates, func(f fate) bool { return f != goes })
}

func (d *draft) hides(zone string) bool {
	if d.frozen {
		return isHidden(d.object, zone)
	}
	return slices.Contains(d.hidden, zone)
}

// say is what a group with endpoints says, and whether that is not what the object says.
func (w *want) say(d *draft) (c content, changed bool) {
	if d.frozen {
		return c, false
	}
	c = w.content(d.object, d.hidden)
	c.Tiers, c.LocalOnly, c.Ports = d.tiers, d.localOnly, d.share.part.ports
	c.Consumers = slices.Clone(d.consumers)
	c.marks = marks{Home: d.share.key.home, Nowhere: d.share.consumers.nowhere, Extra: d.extra, Narrowing: d.narrowing, Leaving: map[string]time.Time{}}
	for _, l := range d.leaving {
		c.Consumers = append(c.Consumers, l.GroupConsumer)
		c.marks.Leaving[l.Zone] = l.since
	}
	sortConsumers(c.Consumers)
	c.Endpoints, changed = w.endpointsOf(d)
	if changed = changed || d.object == nil || !w.says(d.object, c); changed {
		w.markEndpoints(d, &c.marks)
	}
	return c, changed
}

// sayNothing is what a group without endpoints says to the zones that see no other, or to
// all if there are none.
func (w *want) sayNothing(object *v1alpha1.EndpointGroup, blind []string) content {
	var hidden []string
	if len(blind) > 0 {
		hidden = slices.DeleteFunc(slices.Clone(w.zones), func(zone string) bool { return slices.Contains(blind, zone) })
	}
	c := w.content(object, hidden)
	c.Tiers = w.tiers
	for _, zone := range blind {
		c.Consumers = append(c.Consumers, v1alpha1.GroupConsumer{Zone: zone, Weight: fullWeight})
	}
	return c
}

// content is what all groups say, and the labels of one that some zones do not see. Labels
// of others stay.
func (w *want) content(object *v1alpha1.EndpointGroup, hidden []string) content {
	c := content{labels: map[string]string{}}
	c.Service, c.AddressType, c.AnyReady = w.Service.Name, w.plan.Family, w.anyReady
	if object != nil {
		maps.Copy(c.labels, object.Labels)
		maps.DeleteFunc(c.labels, func(key, _ string) bool { return strings.HasPrefix(key, v1alpha1.LabelNotForPrefix) })
	}
	c.labels[v1alpha1.LabelService] = w.Service.Name
	delete(c.labels, v1alpha1.LabelHandOver)
	delete(c.labels, corev1.IsHeadlessService)
	if intent.IsHeadless(w.Service) {
		c.labels[corev1.IsHeadlessService] = ""
	}
	if w.HandOver {
		c.labels[v1alpha1.LabelHandOver] = "true"
	}
	for _, zone := range hidden {
		c.labels[v1alpha1.LabelNotForPrefix+zone] = "true"
	}
	return c
}

// endpointsOf are those of a group in the order of addresses, and whether they are not those
// of the object or have arrived by this step. If they are, the object's list is shared.
func (w *want) endpointsOf(d *draft) (list []v1alpha1.GroupEndpoint, changed bool) {
	said := func(p *placement) v1alpha1.GroupEndpoint { return p.GroupEndpoint }
	if !slices.Equal(d.tiers, w.tiers) {
		domains := w.domains(d.tiers)
		said = func(p *placement) v1alpha1.GroupEndpoint {
			e := p.GroupEndpoint
			e.Domains = domains(e.Node, e.Zone)
			return e
		}
	}
	changed = len(d.arriving) > 0
	for i, p := range d.members {
		if changed {
			break
		}
		switch d.fates[i] {
		case goes:
			changed = true
		case belongs, held:
			next := said(p)
			changed = d.fates[i] == belongs && p.arrives || !sameEndpoint(&d.object.Spec.Endpoints[i], &next)
		}
	}
	if !changed {
		return d.object.Spec.Endpoints, false
	}
	list = make([]v1alpha1.GroupEndpoint, 0, len(d.members)+len(d.arriving))
	for i, p := range d.members {
		switch d.fates[i] {
		case goes:
		case stale:
			list = append(list, d.object.Spec.Endpoints[i])
		default:
			list = append(list, said(p))
		}
	}
	for _, p := range d.arriving {
		list = append(list, said(p))
	}
	slices.SortFunc(list, func(a, b v1alpha1.GroupEndpoint) int { return cmp.Compare(a.Address, b.Address) })
	return list, true
}

// markEndpoints marks what is to be known of the group's own endpoints beside what it
// says of them.
func (w *want) markEndpoints(d *draft, m *marks) {
	times := map[string]time.Time{}
	mark := func(p *placement, at time.Time) {
		switch {
		case p.arrives:
			times[p.Address] = w.arrival(p)
		case !at.IsZero() && len(p.also) > 0:
			times[p.Address] = at
		}
		if !p.planned && (p.readIn == nil || slices.Contains(p.readIn.marks.Waiting, p.Address)) {
			m.Waiting = append(m.Waiting, p.Address)
		}
	}
	for i, p := range d.members {
		if d.fates[i] == belongs {
			mark(p, d.arrivals[p.Address])
		}
	}
	for _, p := range d.arriving {
		mark(p, time.Time{})
	}
	m.Arrived = arrived(times)
}

// sameState reports whether two endpoints are alike in all but their domains.
func sameState(a, b *v1alpha1.GroupEndpoint) bool {
	return a.Address == b.Address && a.Zone == b.Zone && a.Node == b.Node &&
		a.NotReady == b.NotReady && a.NotServing == b.NotServing && a.Terminating == b.Terminating
}

func sameEndpoint(a, b *v1alpha1.GroupEndpoint) bool {
	return sameState(a, b) && len(a.Domains) == len(b.Domains) && maps.Equal(a.Domains, b.Domains)
}

// says reports whether an object has the content, but for its endpoints.
func (w *want) says(object *v1alpha1.EndpointGroup, c content) bool {
	spec := &object.Spec
	return spec.Service == c.Service && spec.AnyReady == c.AnyReady && spec.LocalOnly == c.LocalOnly &&
		slices.Equal(spec.Tiers, c.Tiers) && slices.Equal(spec.Consumers, c.Consumers) && slices.Equal(spec.Ports, c.Ports) &&
		maps.Equal(object.Labels, c.labels) && w.owns(object) && readMarks(object).same(c.marks)
}

// owns reports whether the group goes when the Service does.
func (w *want) owns(object *v1alpha1.EndpointGroup) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && owner.UID == w.Service.UID
}

// object is a group with the content, in the place of another or new.
func (w *want) object(before *v1alpha1.EndpointGroup, c content, trigger string) *v1alpha1.EndpointGroup {
	object := &v1alpha1.EndpointGroup{}
	if before != nil {
		before.ObjectMeta.DeepCopyInto(&object.ObjectMeta)
	} else {
		object.Namespace = w.Service.Namespace
		object.GenerateName = w.Service.Name + "-"
	}
	object.Labels, object.Spec = c.labels, c.EndpointGroupSpec
	if object.Annotations == nil {
		object.Annotations = map[string]string{}
	}
	if text := c.marks.text(); text != "" {
		object.Annotations[v1alpha1.AnnotationGroupMarks] = text
	} else {
		delete(object.Annotations, v1alpha1.AnnotationGroupMarks)
	}
	if trigger != "" {
		object.Annotations[corev1.EndpointsLastChangeTriggerTime] = trigger
	}
	if !w.owns(object) {
		object.OwnerReferences = slices.DeleteFunc(object.OwnerReferences, func(r metav1.OwnerReference) bool {
			return r.Controller != nil && *r.Controller
		})
		yes, no := true, false
		object.OwnerReferences = append(object.OwnerReferences, metav1.OwnerReference{
			APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Service", Name: w.Service.Name, UID: w.Service.UID,
			Controller: &yes, BlockOwnerDeletion: &no,
		})
	}
	return object
}

// triggerOf is when the change happened that the step is for, as the annotation has it:
// what the slices say of the last one. If a group says so already, the step is for
// something else, whose beginning is not known, and the result is empty.
func triggerOf(w *want, groups []*group) string {
	var last time.Time
	trigger := ""
	for _, s := range w.Slices {
		if string(s.AddressType) != string(w.plan.Family) {
			continue
		}
		if at := triggerTime(s.Annotations); at.After(last) {
			last, trigger = at, s.Annotations[corev1.EndpointsLastChangeTriggerTime]
		}
	}
	for _, g := range groups {
		if g.object != nil && !triggerTime(g.object.Annotations).Before(last) {
			return ""
		}
	}
	return trigger
}

// triggerTime is when a change of endpoints happened, zero if annotations do not say.
func triggerTime(annotations map[string]string) time.Time {
	at, err := time.Parse(time.RFC3339Nano, annotations[corev1.EndpointsLastChangeTriggerTime])
	if err != nil {
		return time.Time{}
	}
	return at
}

// order puts the writes of a step into the order in which they are safe: zones gain before
// they lose. New groups come first, then updates by which zones gain, then the others, and
// deletions last.
func order(s step) Changes {
	changes := Changes{Again: s.again, After: s.after}
	var late []*v1alpha1.EndpointGroup
	for _, w := range s.writes {
		switch {
		case w.next == nil:
			changes.Delete = append(changes.Delete, w.object)
		case w.object == nil:
			changes.Create = append(changes.Create, w.next)
		case w.grows || w.opens:
			changes.Update = append(changes.Update, w.next)
		default:
			late = append(late, w.next)
		}
	}
	changes.Update = append(changes.Update, late...)
	return changes
}
