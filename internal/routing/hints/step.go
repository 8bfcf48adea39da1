package hints

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/endpoint"
)

// Write is a change of one slice.
type Write struct {
	Slice     *discoveryv1.EndpointSlice
	Endpoints []discoveryv1.Endpoint
	// Held is the new value of v1alpha1.AnnotationHeld, empty to remove it.
	Held string
	// Changed is the number of endpoints whose hints differ from the slice's.
	Changed int
	// Marked asks for the label of routed slices, so that the webhook handles foreign ones. Kubernetes copies the
	// label to its own slices.
	Marked bool
}

func (w *Write) isNeeded() bool { return w.Changed > 0 || w.changesMetadata() }

func (w *Write) changesMetadata() bool {
	return w.Held != w.Slice.Annotations[v1alpha1.AnnotationHeld] || IsForeign(w.Slice) && w.Marked != IsMarked(w.Slice)
}

// ChangesNodesOnly reports whether the write changes nothing but hints for nodes.
func (w *Write) ChangesNodesOnly() bool { return w.AreZonesStored(w.Slice) && !w.changesMetadata() }

// IsForeign reports whether Kubernetes' own controller does not write the slice: it is written by hand or mirrored from
// Endpoints.
func IsForeign(slice *discoveryv1.EndpointSlice) bool {
	return slice.Labels[discoveryv1.LabelManagedBy] != v1alpha1.ManagedByKubernetes
}

// IsMarked reports whether Vicinity has given a foreign slice hints, and the label.
func IsMarked(slice *discoveryv1.EndpointSlice) bool {
	_, labelled := slice.Labels[v1alpha1.LabelRouted]
	return labelled && IsForeign(slice)
}

// IsStored reports whether the stored slice has all of the write. Another mutating webhook may have changed it.
func (w *Write) IsStored(stored *discoveryv1.EndpointSlice) bool {
	return (!w.Marked || !IsForeign(w.Slice) || IsMarked(stored)) &&
		slices.EqualFunc(w.Endpoints, stored.Endpoints, func(a, b discoveryv1.Endpoint) bool { return Same(a.Hints, b.Hints) })
}

// AreZonesStored reports whether the stored slice has the zones of all hints of the write. Nodes of hints may be
// missing.
func (w *Write) AreZonesStored(stored *discoveryv1.EndpointSlice) bool {
	return slices.EqualFunc(w.Endpoints, stored.Endpoints, func(a, b discoveryv1.Endpoint) bool { return slices.Equal(Zones(&a), Zones(&b)) })
}

// Step is the next part of the way from the current hints to the plan.
type Step struct {
	// Writes are made one after the other. After each one, every zone has at least as many endpoints as the lesser of
	// before and after, so a writer may stop anywhere.
	Writes []Write
	// Held counts endpoints that keep zones which the plan takes from them. A later step takes the zones.
	Held int
}

// Next returns the next step. Each write is atomic, but several are not: if endpoints of several slices change their
// zones, the slices are ordered so that no zone is short in between. If no order does that, endpoints first get their
// new zones in addition, and the old ones are held for the caller's grace. With hold, no zone loses endpoints.
func (p Plans) Next(eps []*discoveryv1.EndpointSlice, hold bool) Step {
	var step Step
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		if p[family] != nil {
			p.addWrites(&step, endpoint.Slices(eps, family), hold)
		}
	}
	return step
}

// Unroute returns the step that removes all hints from the slices.
func Unroute(eps []*discoveryv1.EndpointSlice) Step {
	var step Step
	for _, slice := range eps {
		write := Write{Slice: slice}
		write.Endpoints, write.Changed = Bare(slice)
		if write.isNeeded() {
			step.Writes = append(step.Writes, write)
		}
	}
	slices.SortFunc(step.Writes, func(a, b Write) int { return strings.Compare(a.Slice.Name, b.Slice.Name) })
	return step
}

// portZone is a port in a zone. A proxy chooses for each port separately, among endpoints with a hint for its zone.
type portZone struct{ port, zone string }

// portsOf returns the names of a slice's ports, or one empty name if it has none.
func portsOf(slice *discoveryv1.EndpointSlice) []string {
	names := []string{}
	for _, port := range slice.Ports {
		name := ""
		if port.Name != nil {
			name = *port.Name
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		names = append(names, "")
	}
	return names
}

// counts are the numbers of ready endpoints by port and hinted zone.
type counts map[portZone]int

// count adds the endpoints of a slice with the given sign.
func (c counts) count(ports []string, endpoints []discoveryv1.Endpoint, sign int) {
	for i := range endpoints {
		e := &endpoints[i]
		if !endpoint.StateOf(e).IsReady() {
			continue
		}
		for _, zone := range Zones(e) {
			for _, port := range ports {
				c[portZone{port, zone}] += sign
			}
		}
	}
}

type change struct {
	Write
	ports []string
	delta counts // of ports where proxies follow hints
}

func (p Plans) addWrites(step *Step, eps []*discoveryv1.EndpointSlice, hold bool) {
	now, then := counts{}, counts{}
	// Proxies use all endpoints of a port that has a ready one without hints, before or after, so no zone can be short
	// there.
	open := map[string]bool{}
	var pending []change
	for _, slice := range eps {
		c := change{Write: Write{Slice: slice, Marked: true}, ports: portsOf(slice), delta: counts{}}
		c.Endpoints, c.Changed = p.Apply(slice)
		now.count(c.ports, slice.Endpoints, 1)
		then.count(c.ports, c.Endpoints, 1)
		if !allHinted(slice.Endpoints) || !allHinted(c.Endpoints) {
			for _, port := range c.ports {
				open[port] = true
			}
		}
		if c.isNeeded() {
			pending = append(pending, c)
		}
	}
	floor := counts{}
	for at, n := range now {
		if !open[at.port] {
			floor[at] = min(n, then[at])
		}
	}
	pending = slices.DeleteFunc(pending, func(c change) bool {
		closed := slices.DeleteFunc(slices.Clone(c.ports), func(port string) bool { return open[port] })
		c.delta.count(closed, c.Slice.Endpoints, -1)
		c.delta.count(closed, c.Endpoints, 1)
		if len(closed) == 0 {
			step.Writes = append(step.Writes, c.Write)
		}
		return len(closed) == 0
	})
	for len(pending) > 0 && !hold {
		next := slices.IndexFunc(pending, func(c change) bool { return now.allows(c.delta, floor) })
		if next < 0 {
			break
		}
		for at, n := range pending[next].delta {
			now[at] += n
		}
		step.Writes = append(step.Writes, pending[next].Write)
		pending = slices.Delete(pending, next, next+1)
	}
	for i := range pending {
		widened, held := widen(pending[i].Write)
		step.Held += held
		if widened.isNeeded() {
			step.Writes = append(step.Writes, widened)
		}
	}
}

func (c counts) allows(delta, floor counts) bool {
	for at, n := range delta {
		if c[at]+n < floor[at] {
			return false
		}
	}
	return true
}

func allHinted(endpoints []discoveryv1.Endpoint) bool {
	for i := range endpoints {
		e := &endpoints[i]
		if endpoint.StateOf(e).IsReady() && (e.Hints == nil || len(e.Hints.ForZones) == 0) {
			return false
		}
	}
	return true
}

// widen changes a write so that it takes no zone from an endpoint, within the limit of hints. held counts the endpoints
// that keep such zones.
func widen(w Write) (widened Write, held int) {
	widened = Write{Slice: w.Slice, Endpoints: slices.Clone(w.Slice.Endpoints), Marked: w.Marked}
	kept := map[string][]string{}
	for i := range w.Endpoints {
		now, then := &w.Slice.Endpoints[i], &w.Endpoints[i]
		if Same(now.Hints, then.Hints) {
			continue
		}
		zones := Zones(then)
		planned := len(zones)
		for _, zone := range Zones(now) {
			if len(zones) < v1alpha1.MaxHints && !slices.Contains(zones, zone) {
				zones = append(zones, zone)
			}
		}
		if len(zones) > planned {
			held++
			// An endpoint without addresses has no hints to change.
			kept[now.Addresses[0]] = slices.Clone(zones[planned:])
		}
		slices.Sort(zones)
		both := makeHints(zones, nil)
		if then.Hints != nil && both != nil {
			both.ForNodes = then.Hints.ForNodes
		}
		if !Same(now.Hints, both) {
			widened.Endpoints[i].Hints = both
			widened.Changed++
		}
	}
	widened.Held = heldText(kept)
	return widened, held
}
