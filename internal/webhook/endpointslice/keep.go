package endpointslice

import (
	"bytes"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// plan is what is known of the hints of a Service. The order matters.
type plan int

const (
	// unknown is the plan of a Service of which no other endpoint is known.
	unknown plan = iota
	// balanced is the plan of a Service whose endpoints have no hints.
	balanced
	// byNode is the plan of a Service whose endpoints have hints for nodes alone.
	byNode
	// hinted is the plan of a Service whose endpoints have hints for zones.
	hinted
)

// keeper finds the hints that the endpoints of a slice should have.
type keeper struct {
	// want are the hints of each endpoint of the slice, nil for none.
	want [][]byte
	// pairs are the indices of the stored endpoints, -1 for those that are new.
	pairs []int
	// others are the slices of the same Service, where they were needed.
	others []discoveryv1.EndpointSlice
	// made is memory of hints that are not part of the review.
	made []byte
}

func (k *keeper) reset() {
	*k = keeper{want: k.want[:0], pairs: k.pairs[:0], made: k.made[:0]}
}

// ownZones hints each endpoint to its own zone, and to the nodes that it is hinted to.
func (k *keeper) ownZones(object *slice) {
	for i := range object.endpoints {
		e := &object.endpoints[i]
		k.want = append(k.want, e.hints.raw)
		if e.zoned() {
			k.want[i] = k.zoneHint(e.zone, e.hints.forNodes)
		}
	}
}

// pair finds each endpoint of a slice in the stored one, and says whether any is new.
func (k *keeper) pair(object, stored *slice) (news bool) {
	var byAddress map[string]int
	next := 0
	for i := range object.endpoints {
		e := &object.endpoints[i]
		at := -1
		switch {
		case next < len(stored.endpoints) && e.is(&stored.endpoints[next]):
			at = next
			next++
		case e.address == nil:
		default:
			// An endpoint was added or removed.
			if byAddress == nil {
				byAddress = make(map[string]int, len(stored.endpoints))
				for j := len(stored.endpoints) - 1; j >= 0; j-- {
					byAddress[string(stored.endpoints[j].address)] = j
				}
			}
			if j, ok := byAddress[string(e.address)]; ok && e.is(&stored.endpoints[j]) {
				at, next = j, j+1
			}
		}
		k.pairs = append(k.pairs, at)
		news = news || at < 0
	}
	return news
}

// is reports whether two endpoints are one for which the same hints hold. One in another zone
// is another, and so is one on another node where it is hinted to nodes.
func (e *endpoint) is(stored *endpoint) bool {
	return e.address != nil && bytes.Equal(e.address, stored.address) && bytes.Equal(e.zone, stored.zone) &&
		(stored.hints.forNodes == nil || bytes.Equal(e.node, stored.node))
}

// planned is what the endpoints of the stored slice say of the plan, those included that go.
func planned(stored *slice) plan {
	found := unknown
	for i := range stored.endpoints {
		h := &stored.endpoints[i].hints
		found = max(found, planOfHints(h.forZones != nil, h.forNodes != nil))
	}
	return found
}

// planOfHints is what one endpoint says of the plan. Of several endpoints the highest plan
// counts.
func planOfHints(zones, nodes bool) plan {
	switch {
	case zones:
		return hinted
	case nodes:
		return byNode
	}
	return balanced
}

// plannedElsewhere is what the other slices of the Service say of the plan.
func (k *keeper) plannedElsewhere() plan {
	found := unknown
	for i := range k.others {
		for j := range k.others[i].Endpoints {
			h := k.others[i].Endpoints[j].Hints
			found = max(found, planOfHints(h != nil && len(h.ForZones) > 0, h != nil && len(h.ForNodes) > 0))
		}
	}
	return found
}

// keep gives all endpoints the hints that they had, and new ones what the plan says.
// The endpoints are paired.
func (k *keeper) keep(object, stored *slice, p plan) {
	nodes := false
	for i := range stored.endpoints {
		nodes = nodes || stored.endpoints[i].hints.forNodes != nil
	}
	moved := k.moved(object, p, &nodes)
	var beside map[string][]byte
	if nodes {
		beside = k.nodesBeside(object, stored, p)
	}
	for i := range object.endpoints {
		e := &object.endpoints[i]
		want := e.hints.raw
		switch at := k.pairs[i]; {
		case at >= 0:
			// An older API server accepted what is not valid any more.
			if h := &stored.endpoints[at].hints; h.raw == nil || h.sound {
				want = h.raw
			}
		case p == balanced:
			want = nil
		case moved[string(e.address)] != nil:
			want = k.hintsOf(moved[string(e.address)])
		case p == byNode && e.placed():
			want = k.nodeHint(k.nodesFor(e, beside))
		case p == hinted && e.zoned():
			var forNodes []byte
			if nodes && e.placed() {
				forNodes = k.nodesFor(e, beside)
			}
			want = k.zoneHint(e.zone, forNodes)
		}
		k.want = append(k.want, want)
	}
}

// moved are the new endpoints that other slices of the Service have with hints, by address as
// in the review. It sets nodes if any endpoint there is hinted to nodes.
func (k *keeper) moved(object *slice, p plan, nodes *bool) map[string]*discoveryv1.Endpoint {
	if p < byNode || len(k.others) == 0 {
		return nil
	}
	news := map[string]*endpoint{}
	for i, at := range k.pairs {
		if e := &object.endpoints[i]; at < 0 && e.address != nil {
			news[string(unquoted(e.address))] = e
		}
	}
	moved := map[string]*discoveryv1.Endpoint{}
	for i := range k.others {
		for j := range k.others[i].Endpoints {
			other := &k.others[i].Endpoints[j]
			if other.Hints == nil || len(other.Addresses) == 0 {
				continue
			}
			*nodes = *nodes || len(other.Hints.ForNodes) > 0
			e := news[other.Addresses[0]]
			if e != nil && moved[string(e.address)] == nil && e.isElsewhere(other) && takeable(other.Hints, p) {
				moved[string(e.address)] = other
			}
		}
	}
	return moved
}

// nodesBeside are the nodes that the endpoints beside new ones are hinted to, by place. They
// say what the plan has for that node: its own endpoints, those of its rack, or none because
// it would overload them.
func (k *keeper) nodesBeside(object, stored *slice, p plan) map[string][]byte {
	beside := map[string][]byte{}
	for i, at := range k.pairs {
		if e := &object.endpoints[i]; at < 0 && e.placed() {
			beside[e.place()] = nil
		}
	}
	if len(beside) == 0 {
		return nil
	}
	for i := range stored.endpoints {
		e := &stored.endpoints[i]
		if h := &e.hints; h.forNodes == nil || !h.sound || planOfHints(h.forZones != nil, true) != p {
			continue
		}
		// An endpoint that only other zones use says nothing of its node.
		if p == hinted && !bytes.Contains(e.hints.forZones, append([]byte(`:`), e.zone...)) {
			continue
		}
		if nodes, news := beside[e.place()]; news && nodes == nil {
			beside[e.place()] = e.hints.forNodes
		}
	}
	for i := range k.others {
		for j := range k.others[i].Endpoints {
			other := &k.others[i].Endpoints[j]
			if other.NodeName == nil || other.Hints == nil || len(other.Hints.ForNodes) == 0 || !takeable(other.Hints, p) {
				continue
			}
			zone := ""
			if other.Zone != nil {
				zone = *other.Zone
			}
			if p == hinted && !slices.Contains(other.Hints.ForZones, discoveryv1.ForZone{Name: zone}) {
				continue
			}
			place := placeOf(*other.NodeName, zone)
			if nodes, news := beside[place]; news && nodes == nil {
				beside[place] = k.nodeList(other.Hints.ForNodes)
			}
		}
	}
	return beside
}

// place is the node of an endpoint with the zone that it has there.
func (e *endpoint) place() string { return placeOf(string(unquoted(e.node)), string(unquoted(e.zone))) }

// placeOf is a place. Names of nodes have no slash.
func placeOf(node, zone string) string { return node + "/" + zone }

// nodesFor are the nodes that a new endpoint is hinted to: those of the endpoints beside
// it, or else its own.
func (k *keeper) nodesFor(e *endpoint, beside map[string][]byte) []byte {
	if nodes := beside[e.place()]; nodes != nil {
		return nodes
	}
	return k.nameList(e.node)
}

// isElsewhere is as is, for an endpoint of another slice.
func (e *endpoint) isElsewhere(other *discoveryv1.Endpoint) bool {
	same := func(quoted []byte, text *string) bool {
		if text == nil {
			return quoted == nil
		}
		return is(quoted, *text)
	}
	return same(e.zone, other.Zone) && (len(other.Hints.ForNodes) == 0 || same(e.node, other.NodeName))
}

// takeable reports whether hints are as the plan has them and valid.
func takeable(h *discoveryv1.EndpointHints, p plan) bool {
	zones, nodes := names{valid: isLabelValue}, names{valid: isNodeName}
	for i := range h.ForZones {
		zones.add([]byte(h.ForZones[i].Name))
	}
	for i := range h.ForNodes {
		nodes.add([]byte(h.ForNodes[i].Name))
	}
	return planOfHints(zones.count > 0, nodes.count > 0) == p && !zones.unsound && !nodes.unsound
}

// zoned reports whether an endpoint can be hinted to its own zone.
func (e *endpoint) zoned() bool {
	zone := unquoted(e.zone)
	return len(zone) > 0 && isLabelValue(zone)
}

// placed reports whether an endpoint can be hinted to its own node.
func (e *endpoint) placed() bool { return isNodeName(unquoted(e.node)) }

// nodeHint writes hints for nodes alone.
func (k *keeper) nodeHint(forNodes []byte) []byte {
	begin := len(k.made)
	k.made = append(k.made, `{"forNodes":`...)
	k.made = append(k.made, forNodes...)
	k.made = append(k.made, '}')
	return k.made[begin:]
}

// zoneHint writes hints as the API server does. The zone has its quotes.
func (k *keeper) zoneHint(zone, forNodes []byte) []byte {
	begin := len(k.made)
	k.made = append(k.made, `{"forZones":[{"name":`...)
	k.made = append(k.made, zone...)
	k.made = append(k.made, `}]`...)
	if forNodes != nil {
		k.made = append(k.made, `,"forNodes":`...)
		k.made = append(k.made, forNodes...)
	}
	k.made = append(k.made, '}')
	return k.made[begin:]
}

// nameList writes an array of one object with a name, which has its quotes.
func (k *keeper) nameList(name []byte) []byte {
	begin := len(k.made)
	k.made = append(k.made, `[{"name":`...)
	k.made = append(k.made, name...)
	k.made = append(k.made, `}]`...)
	return k.made[begin:]
}

// hintsOf writes the hints of an endpoint of another slice, which are takeable and so need no
// escapes.
func (k *keeper) hintsOf(other *discoveryv1.Endpoint) []byte {
	var forNodes []byte
	if len(other.Hints.ForNodes) > 0 {
		forNodes = k.nodeList(other.Hints.ForNodes)
	}
	begin := len(k.made)
	separator := `{`
	if len(other.Hints.ForZones) > 0 {
		k.made = append(k.made, `{"forZones":[`...)
		for i, zone := range other.Hints.ForZones {
			k.appendName(i, zone.Name)
		}
		k.made = append(k.made, ']')
		separator = `,`
	}
	if forNodes != nil {
		k.made = append(k.made, separator...)
		k.made = append(k.made, `"forNodes":`...)
		k.made = append(k.made, forNodes...)
	}
	k.made = append(k.made, '}')
	return k.made[begin:]
}

// nodeList writes the nodes that an endpoint of another slice is hinted to.
func (k *keeper) nodeList(nodes []discoveryv1.ForNode) []byte {
	begin := len(k.made)
	k.made = append(k.made, '[')
	for i, node := range nodes {
		k.appendName(i, node.Name)
	}
	k.made = append(k.made, ']')
	return k.made[begin:]
}

func (k *keeper) appendName(i int, name string) {
	if i > 0 {
		k.made = append(k.made, ',')
	}
	k.made = append(k.made, `{"name":"`...)
	k.made = append(k.made, name...)
	k.made = append(k.made, `"}`...)
}
