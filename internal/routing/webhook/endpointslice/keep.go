package endpointslice

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/routing/hints"
)

// plan is the kind of plan that the hints of endpoints show. Of several endpoints the highest kind counts.
type plan int

const (
	// unknown is the plan of a Service without other known endpoints.
	unknown plan = iota
	// balanced is the plan of a Service whose endpoints have no hints.
	balanced
	// byNode is the plan of a Service whose endpoints have hints for nodes alone.
	byNode
	// hinted is the plan of a Service whose endpoints have hints for zones.
	hinted
)

// planIn returns the plan of endpoints, terminating ones included.
func planIn(endpoints []discoveryv1.Endpoint) plan {
	p := unknown
	for i := range endpoints {
		p = max(p, planOfHints(endpoints[i].Hints))
	}
	return p
}

func planOfHints(h *discoveryv1.EndpointHints) plan {
	switch {
	case h != nil && len(h.ForZones) > 0:
		return hinted
	case h != nil && len(h.ForNodes) > 0:
		return byNode
	}
	return balanced
}

// endpointID identifies an endpoint of a Service. An address that changes its zone is another endpoint.
type endpointID struct{ address, zone string }

func idOf(e *discoveryv1.Endpoint) endpointID {
	s := endpointID{zone: ptr.Deref(e.Zone, "")}
	if len(e.Addresses) > 0 {
		s.address = e.Addresses[0]
	}
	return s
}

// home is the node of an endpoint, with the endpoint's zone.
type home struct{ node, zone string }

func homeOf(e *discoveryv1.Endpoint) home {
	return home{ptr.Deref(e.NodeName, ""), ptr.Deref(e.Zone, "")}
}

// holdsFor reports whether the hints of an endpoint are valid for another with the same ID. Hints for nodes are valid on
// the same node only.
func holdsFor(other, e *discoveryv1.Endpoint) bool {
	return other.Hints == nil || len(other.Hints.ForNodes) == 0 || ptr.Deref(other.NodeName, "") == ptr.Deref(e.NodeName, "")
}

// hintOwnZones gives each endpoint a hint for its own zone, and keeps hints for nodes.
func hintOwnZones(endpoints []discoveryv1.Endpoint) {
	for i := range endpoints {
		e := &endpoints[i]
		zone := ptr.Deref(e.Zone, "")
		if !isZone(zone) {
			continue
		}
		own := &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}
		if e.Hints != nil {
			own.ForNodes = e.Hints.ForNodes
		}
		e.Hints = own
	}
}

// keepStored gives endpoints their stored hints. It returns the endpoints that the stored slice lacks.
func keepStored(endpoints, stored []discoveryv1.Endpoint) (added []*discoveryv1.Endpoint) {
	known := make(map[endpointID]*discoveryv1.Endpoint, len(stored))
	for i := range stored {
		if at := idOf(&stored[i]); known[at] == nil {
			known[at] = &stored[i]
		}
	}
	for i := range endpoints {
		e := &endpoints[i]
		before := known[idOf(e)]
		switch {
		case before == nil || len(e.Addresses) == 0 || !holdsFor(before, e):
			added = append(added, e)
		case isValid(before.Hints): // an older API server accepted invalid ones
			e.Hints = before.Hints
		}
	}
	return added
}

// hint gives new endpoints hints by the plan and all known endpoints. Endpoints share hints, which are never changed.
func (p plan) hint(added []*discoveryv1.Endpoint, known [][]discoveryv1.Endpoint) {
	if p == unknown {
		return
	}
	if p == balanced {
		for _, e := range added {
			e.Hints = nil
		}
		return
	}
	moved, sameNode, toNodes := p.find(added, known)
	out := outOfService(known)
	for _, e := range added {
		at := homeOf(e)
		nodes := sameNode[at]
		if nodes == nil && isNode(at.node) {
			nodes = []discoveryv1.ForNode{{Name: at.node}}
		}
		switch {
		case moved[e] != nil:
			e.Hints = moved[e]
		case out[at.zone] != nil:
			e.Hints = out[at.zone]
		case p == byNode && nodes != nil:
			e.Hints = &discoveryv1.EndpointHints{ForNodes: nodes}
		case p == hinted && isZone(at.zone):
			e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: at.zone}}}
			if toNodes {
				e.Hints.ForNodes = nodes
			}
		}
	}
}

// find looks for new endpoints among the known ones. moved has the hints of endpoints that come from another slice.
// sameNode has the hinted nodes of endpoints on the same node as new ones, which are the plan for that node: its own
// endpoints, those of its rack, or none because it would overload them. toNodes says that any endpoint has hints for
// nodes.
func (p plan) find(added []*discoveryv1.Endpoint, known [][]discoveryv1.Endpoint) (
	moved map[*discoveryv1.Endpoint]*discoveryv1.EndpointHints, sameNode map[home][]discoveryv1.ForNode, toNodes bool,
) {
	at := map[endpointID]*discoveryv1.Endpoint{}
	moved, sameNode = map[*discoveryv1.Endpoint]*discoveryv1.EndpointHints{}, map[home][]discoveryv1.ForNode{}
	for _, e := range added {
		if len(e.Addresses) > 0 {
			at[idOf(e)] = e
		}
		if isNode(homeOf(e).node) {
			sameNode[homeOf(e)] = nil
		}
	}
	for _, endpoints := range known {
		for i := range endpoints {
			other := &endpoints[i]
			toNodes = toNodes || other.Hints != nil && len(other.Hints.ForNodes) > 0 && !hints.IsOut(other)
			if planOfHints(other.Hints) != p {
				continue
			}
			if e := at[idOf(other)]; e != nil && moved[e] == nil && holdsFor(other, e) && isValid(other.Hints) {
				moved[e] = other.Hints
			}
			if nodes, wanted := sameNode[homeOf(other)]; wanted && nodes == nil && p.speaksForNode(other) && isValid(other.Hints) {
				sameNode[homeOf(other)] = other.Hints.ForNodes
			}
		}
	}
	return moved, sameNode, toNodes
}

// outOfService returns the hints of the zones all of whose endpoints get no new connections.
func outOfService(known [][]discoveryv1.Endpoint) map[string]*discoveryv1.EndpointHints {
	out := map[string]*discoveryv1.EndpointHints{}
	for _, endpoints := range known {
		for i := range endpoints {
			e := &endpoints[i]
			zone := ptr.Deref(e.Zone, "")
			if before, seen := out[zone]; hints.IsOut(e) && (!seen || before != nil) {
				out[zone] = e.Hints
			} else {
				out[zone] = nil
			}
		}
	}
	return out
}

// speaksForNode reports whether hints show the plan for the node of their endpoint. They do not if only other zones use
// the endpoint.
func (p plan) speaksForNode(e *discoveryv1.Endpoint) bool {
	return len(e.Hints.ForNodes) > 0 &&
		(p != hinted || slices.Contains(e.Hints.ForZones, discoveryv1.ForZone{Name: ptr.Deref(e.Zone, "")}))
}

// isZone reports whether an endpoint can have a hint for a zone. The API validates zones of hints only, not those of
// endpoints.
func isZone(name string) bool { return name != "" && len(validation.IsValidLabelValue(name)) == 0 }

func isNode(name string) bool { return len(validation.IsDNS1123Subdomain(name)) == 0 }

func isValid(h *discoveryv1.EndpointHints) bool {
	if h == nil {
		return true
	}
	if len(h.ForZones) > v1alpha1.MaxHints || len(h.ForNodes) > v1alpha1.MaxHints {
		return false
	}
	for i, zone := range h.ForZones {
		if len(validation.IsValidLabelValue(zone.Name)) > 0 || slices.Contains(h.ForZones[:i], zone) {
			return false
		}
	}
	for i, node := range h.ForNodes {
		if !isNode(node.Name) || slices.Contains(h.ForNodes[:i], node) {
			return false
		}
	}
	return true
}

// set sets a member, or removes an existing one if it is not wanted. An operation that does not apply fails the
// request, whatever the failure policy, so each must be possible.
func set(path string, value any, wanted bool) shell.Operation {
	if !wanted {
		return shell.Remove(path)
	}
	return shell.Add(path, value)
}

// labelPath is the path of the label for routed slices in patches.
const labelPath = "/metadata/labels/vicinity.dev~1routed"

// changes returns the patch with the kept hints and label. It leaves all else unchanged, also fields that this version
// of the API does not know.
func changes(object, kept *discoveryv1.EndpointSlice) (patch []shell.Operation) {
	for i := range object.Endpoints {
		if want := kept.Endpoints[i].Hints; !equality.Semantic.DeepEqual(object.Endpoints[i].Hints, want) {
			patch = append(patch, set(fmt.Sprintf("/endpoints/%d/hints", i), want, want != nil))
		}
	}
	if want := kept.Labels[v1alpha1.LabelRouted]; want != object.Labels[v1alpha1.LabelRouted] {
		patch = append(patch, set(labelPath, want, true))
	}
	return patch
}

// isRestored reports whether a slice with the kept hints is the stored one, apart from managed fields and the
// annotation of the last change of endpoints. Other changes are never undone. A slice with unknown fields does not
// count as restored, because they may differ.
func isRestored(kept, stored *discoveryv1.EndpointSlice) bool {
	a, b := *kept, *stored
	a.ManagedFields, b.ManagedFields = nil, nil
	a.Annotations, b.Annotations = withoutTriggerTime(a.Annotations), withoutTriggerTime(b.Annotations)
	return equality.Semantic.DeepEqual(&a, &b)
}

func withoutTriggerTime(annotations map[string]string) map[string]string {
	rest := maps.Clone(annotations)
	delete(rest, corev1.EndpointsLastChangeTriggerTime)
	return rest
}

func restorations(object, stored *discoveryv1.EndpointSlice) (patch []shell.Operation) {
	if !maps.Equal(object.Annotations, stored.Annotations) {
		patch = append(patch, set("/metadata/annotations", stored.Annotations, len(stored.Annotations) > 0))
	}
	if !equality.Semantic.DeepEqual(object.ManagedFields, stored.ManagedFields) {
		patch = append(patch, set("/metadata/managedFields", stored.ManagedFields, len(stored.ManagedFields) > 0))
	}
	return patch
}
