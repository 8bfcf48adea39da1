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
	// grows says that zones gain endpoints. opens says that they gain no more than an empty group.
	grows, opens bool
}

// content is the part of a group that this package writes.
type content struct {
	v1alpha1.EndpointGroupSpec
	labels map[string]string
	marks  marks
}

// writes returns the groups that differ from the drafts. One draft without endpoints becomes the group for zones that
// see no other, and the others are deleted.
func (w *want) writes(drafts []*draft, trigger string) []write {
	var writes []write
	var empty []*v1alpha1.EndpointGroup
	uncovered := slices.Clone(w.zones)
	full := 0
	for _, d := range drafts {
		if d.isEmpty() {
			empty = append(empty, d.object)
			continue
		}
		full++
		uncovered = slices.DeleteFunc(uncovered, func(zone string) bool { return !d.hides(zone) })
		if c, changed := w.contentOf(d); changed {
			writes = append(writes, write{object: d.object, next: w.object(d.object, c, trigger), grows: d.grows})
		}
	}
	if len(uncovered) > 0 || full == 0 {
		if len(empty) == 0 {
			empty = append(empty, nil)
		}
		notice := empty[0]
		if c := w.emptyContent(notice, uncovered); notice == nil || len(notice.Spec.Endpoints) > 0 || !w.hasContent(notice, c) {
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
	return len(d.arriving) == 0 && !slices.ContainsFunc(d.memberships, func(f membership) bool { return f != removed })
}

func (d *draft) hides(zone string) bool {
	if d.frozen {
		return isHidden(d.object, zone)
	}
	return slices.Contains(d.hidden, zone)
}

// contentOf returns the content of a group with endpoints, and whether the object differs from it.
func (w *want) contentOf(d *draft) (c content, changed bool) {
	if d.frozen {
		return c, false
	}
	c = w.commonContent(d.object, d.hidden)
	c.Tiers, c.LocalOnly, c.Ports = d.tiers, d.localOnly, d.share.part.ports
	c.Consumers = slices.Clone(d.consumers)
	c.marks = marks{Home: d.share.key.home, Nowhere: d.share.consumers.nowhere, Extra: d.extra, Narrowing: d.narrowing, Leaving: map[string]time.Time{}}
	for _, l := range d.leaving {
		c.Consumers = append(c.Consumers, l.GroupConsumer)
		c.marks.Leaving[l.Zone] = l.since
	}
	sortConsumers(c.Consumers)
	c.Endpoints, changed = w.endpointsOf(d)
	if changed = changed || d.object == nil || !w.hasContent(d.object, c); changed {
		w.markEndpoints(d, &c.marks)
	}
	return c, changed
}

// emptyContent returns the content of a group without endpoints for zones that see no other, or for all zones if there
// are none.
func (w *want) emptyContent(object *v1alpha1.EndpointGroup, uncovered []string) content {
	var hidden []string
	if len(uncovered) > 0 {
		hidden = slices.DeleteFunc(slices.Clone(w.zones), func(zone string) bool { return slices.Contains(uncovered, zone) })
	}
	c := w.commonContent(object, hidden)
	c.Tiers = w.tiers
	for _, zone := range uncovered {
		c.Consumers = append(c.Consumers, v1alpha1.GroupConsumer{Zone: zone, Weight: fullWeight})
	}
	return c
}

// commonContent returns the common content of all groups, with the labels of one that some zones do not see. Foreign
// labels stay.
func (w *want) commonContent(object *v1alpha1.EndpointGroup, hidden []string) content {
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

// endpointsOf returns the endpoints of a group in the order of addresses, and whether they differ from the object or
// arrived by this step. If not, it returns the object's list.
func (w *want) endpointsOf(d *draft) (list []v1alpha1.GroupEndpoint, changed bool) {
	render := func(p *placement) v1alpha1.GroupEndpoint { return p.GroupEndpoint }
	if !slices.Equal(d.tiers, w.tiers) {
		domains := w.domains(d.tiers)
		render = func(p *placement) v1alpha1.GroupEndpoint {
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
		switch d.memberships[i] {
		case removed:
			changed = true
		case owned, held:
			next := render(p)
			changed = d.memberships[i] == owned && p.arrives || !sameEndpoint(&d.object.Spec.Endpoints[i], &next)
		}
	}
	if !changed {
		return d.object.Spec.Endpoints, false
	}
	list = make([]v1alpha1.GroupEndpoint, 0, len(d.members)+len(d.arriving))
	for i, p := range d.members {
		switch d.memberships[i] {
		case removed:
		case stale:
			list = append(list, d.object.Spec.Endpoints[i])
		default:
			list = append(list, render(p))
		}
	}
	for _, p := range d.arriving {
		list = append(list, render(p))
	}
	slices.SortFunc(list, func(a, b v1alpha1.GroupEndpoint) int { return cmp.Compare(a.Address, b.Address) })
	return list, true
}

// markEndpoints adds the marks of the group's own endpoints.
func (w *want) markEndpoints(d *draft, m *marks) {
	times := map[string]time.Time{}
	mark := func(p *placement, at time.Time) {
		switch {
		case p.arrives:
			times[p.Address] = w.arrivalOf(p)
		case !at.IsZero() && len(p.also) > 0:
			times[p.Address] = at
		}
		if !p.planned && (p.readIn == nil || slices.Contains(p.readIn.marks.Waiting, p.Address)) {
			m.Waiting = append(m.Waiting, p.Address)
		}
	}
	for i, p := range d.members {
		if d.memberships[i] == owned {
			mark(p, d.arrivals[p.Address])
		}
	}
	for _, p := range d.arriving {
		mark(p, time.Time{})
	}
	m.Arrived = byArrival(times)
}

// sameState reports whether two endpoints agree in all but their domains.
func sameState(a, b *v1alpha1.GroupEndpoint) bool {
	return a.Address == b.Address && a.Zone == b.Zone && a.Node == b.Node &&
		a.NotReady == b.NotReady && a.NotServing == b.NotServing && a.Terminating == b.Terminating
}

func sameEndpoint(a, b *v1alpha1.GroupEndpoint) bool {
	return sameState(a, b) && len(a.Domains) == len(b.Domains) && maps.Equal(a.Domains, b.Domains)
}

// hasContent reports whether an object has the content, apart from endpoints.
func (w *want) hasContent(object *v1alpha1.EndpointGroup, c content) bool {
	spec := &object.Spec
	return spec.Service == c.Service && spec.AnyReady == c.AnyReady && spec.LocalOnly == c.LocalOnly &&
		slices.Equal(spec.Tiers, c.Tiers) && slices.Equal(spec.Consumers, c.Consumers) && slices.Equal(spec.Ports, c.Ports) && slices.Equal(spec.Drained, c.Drained) &&
		maps.Equal(object.Labels, c.labels) && w.owns(object) && readMarks(object).equalWithoutEndpoints(c.marks)
}

// owns reports whether the group is deleted with the Service.
func (w *want) owns(object *v1alpha1.EndpointGroup) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && owner.UID == w.Service.UID
}

// object returns a group with the content: a changed one, or a new one if before is nil.
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

// triggerOf returns the time of the change that the step is for, in the form of the annotation: the last one of the
// slices. It is empty if a group has that time already, because then the step has another cause.
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

// triggerTime returns when a change of endpoints happened, zero without a valid annotation.
func triggerTime(annotations map[string]string) time.Time {
	at, err := time.Parse(time.RFC3339Nano, annotations[corev1.EndpointsLastChangeTriggerTime])
	if err != nil {
		return time.Time{}
	}
	return at
}

// order orders the writes so that zones gain before they lose: new groups, updates by which zones gain, other updates,
// deletions.
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
