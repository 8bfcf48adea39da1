package routing

import (
	"cmp"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/topology"
	"vicinity.dev/vicinity/internal/translate"
)

// hintPlan is what the hints of a family should be.
type hintPlan struct {
	// wanted says that every endpoint has hints. Otherwise none has.
	wanted bool
	// own says that each endpoint has its own zone, whatever zones the plan gives it.
	own bool
	// zones has the hints of ready endpoints for zones, by address, and nodes the names
	// of their nodes. Each is nil if no endpoint is to have such. Endpoints share hints,
	// which nobody changes.
	zones map[string]*discoveryv1.EndpointHints
	nodes map[string][]string
	// skipped are the nodes that do not use endpoints of their own place before others.
	skipped map[string]bool
	// homes has the zones of the endpoints, by address, of which their slices say
	// another one, or one that cannot be: few, if any.
	homes map[string]string
}

// Hints is what the endpoints of a slice should look like. They differ from those of
// the slice in nothing but hints, and changed is the number of endpoints that do.
//
// The hints of an endpoint that is not ready matter as soon as it becomes ready,
// because a proxy uses hints only if all ready endpoints have some: it keeps those
// that it has, or gets its own zone.
func Hints(slice *discoveryv1.EndpointSlice, d Decision) (endpoints []discoveryv1.Endpoint, changed int) {
	return rewrite(slice, func(e *discoveryv1.Endpoint) *discoveryv1.EndpointHints {
		f := d.family(familyOf(slice))
		if f == nil {
			return e.Hints
		}
		return f.hints.of(e)
	})
}

// Bare is what the endpoints of a slice look like without hints.
func Bare(slice *discoveryv1.EndpointSlice) (endpoints []discoveryv1.Endpoint, changed int) {
	return rewrite(slice, func(*discoveryv1.Endpoint) *discoveryv1.EndpointHints { return nil })
}

// rewrite replaces hints where they differ in more than their order. The endpoints
// of the slice are shared where nothing changes.
func rewrite(slice *discoveryv1.EndpointSlice, hints func(*discoveryv1.Endpoint) *discoveryv1.EndpointHints) (endpoints []discoveryv1.Endpoint, changed int) {
	endpoints = slice.Endpoints
	for i := range slice.Endpoints {
		want := hints(&slice.Endpoints[i])
		if sameHints(slice.Endpoints[i].Hints, want) {
			continue
		}
		if changed == 0 {
			endpoints = slices.Clone(slice.Endpoints)
		}
		endpoints[i].Hints = want
		changed++
	}
	return endpoints, changed
}

// of is what an endpoint's hints should be.
func (p *hintPlan) of(e *discoveryv1.Endpoint) *discoveryv1.EndpointHints {
	switch {
	case isLeaving(e) || len(e.Addresses) == 0:
		return e.Hints // whatever it says, no proxy asks
	case !p.wanted:
		return nil
	case p.own:
		return ownZoneHints(e, p.home(e))
	}
	hints, nodes := p.zones[e.Addresses[0]], p.nodes[e.Addresses[0]]
	if p.zones != nil && hints == nil {
		zones := hintedZones(e)
		if home := p.home(e); len(zones) == 0 && home != "" {
			zones = []string{home}
		}
		hints = makeHints(zones, nil)
	}
	if p.nodes != nil && nodes == nil && e.NodeName != nil {
		nodes = []string{*e.NodeName}
		if p.skipped[*e.NodeName] {
			nodes = []string{NoNode}
		}
	}
	if len(nodes) == 0 {
		return hints
	}
	both := makeHints(nil, nodes)
	if hints != nil {
		both.ForZones = hints.ForZones
	}
	return both
}

// LeaveOutNodes takes the hints for nodes out of a decision whose slices cannot have them.
func (d *Decision) LeaveOutNodes() {
	d.discountNodes()
	for i := range d.Families {
		h := &d.Families[i].hints
		if h.nodes = nil; h.zones == nil && !h.own {
			h.wanted = false
		}
	}
}

// discountNodes takes what nodes would make of the plan out of what is expected, where no
// proxy goes by hints for them.
func (d *Decision) discountNodes() {
	for i := range d.Families {
		if f := &d.Families[i]; f.Nodes != nil {
			f.Nodes, f.Outcome.Figures, f.Outcome.Before = nil, f.byZone, f.beforeByZone
		}
	}
}

// withoutNodes are the hints for zones alone.
func withoutNodes(h *discoveryv1.EndpointHints) *discoveryv1.EndpointHints {
	return &discoveryv1.EndpointHints{ForZones: h.ForZones}
}

// isLeaving reports whether an endpoint is about to go and gets no new connections
// while others are ready.
func isLeaving(e *discoveryv1.Endpoint) bool {
	return e.Conditions.Terminating != nil && *e.Conditions.Terminating &&
		e.Conditions.Ready != nil && !*e.Conditions.Ready
}

// home is the zone of an endpoint, "" if it is not known.
func (p *hintPlan) home(e *discoveryv1.Endpoint) string {
	if zone, found := p.homes[e.Addresses[0]]; found {
		return zone
	}
	if e.Zone == nil {
		return ""
	}
	return *e.Zone
}

// homes are the zones of the endpoints of which their slices say another one.
func homes(eps []*discoveryv1.EndpointSlice, cluster *translate.Cluster) map[string]string {
	var homes map[string]string
	for _, slice := range eps {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			zone := cluster.ZoneOf(e)
			if len(e.Addresses) == 0 || e.Zone == nil && zone == "" || e.Zone != nil && *e.Zone == zone {
				continue
			}
			if homes == nil {
				homes = map[string]string{}
			}
			homes[e.Addresses[0]] = zone
		}
	}
	return homes
}

// ownZoneHints replaces zones only, and none if the endpoint's zone is unknown.
func ownZoneHints(e *discoveryv1.Endpoint, home string) *discoveryv1.EndpointHints {
	if home == "" {
		return e.Hints
	}
	hints := &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: home}}}
	if e.Hints != nil {
		hints.ForNodes = e.Hints.ForNodes
	}
	return hints
}

func makeHints(zones, nodes []string) *discoveryv1.EndpointHints {
	if len(zones) == 0 && len(nodes) == 0 {
		return nil
	}
	hints := &discoveryv1.EndpointHints{}
	for _, zone := range zones {
		hints.ForZones = append(hints.ForZones, discoveryv1.ForZone{Name: zone})
	}
	for _, node := range nodes {
		hints.ForNodes = append(hints.ForNodes, discoveryv1.ForNode{Name: node})
	}
	return hints
}

// sameHints compares hints as sets. No hints and empty ones are the same.
func sameHints(a, b *discoveryv1.EndpointHints) bool {
	none := discoveryv1.EndpointHints{}
	if a == nil {
		a = &none
	}
	if b == nil {
		b = &none
	}
	zones := func(a, b discoveryv1.ForZone) int { return cmp.Compare(a.Name, b.Name) }
	nodes := func(a, b discoveryv1.ForNode) int { return cmp.Compare(a.Name, b.Name) }
	return sameSet(a.ForZones, b.ForZones, zones) && sameSet(a.ForNodes, b.ForNodes, nodes)
}

func sameSet[T comparable](a, b []T, compare func(a, b T) int) bool {
	if len(a) != len(b) {
		return false
	}
	if slices.Equal(a, b) {
		return true
	}
	a, b = slices.Clone(a), slices.Clone(b)
	slices.SortFunc(a, compare)
	slices.SortFunc(b, compare)
	return slices.Equal(a, b)
}

// planByHints makes plans, and hints of them. What could be kept and is nothing that hints
// can express is made anew.
func (d *Decision) planByHints(in Input) error {
	blank := *d
	for {
		if err := d.plan(in); err != nil {
			return err
		}
		d.planHints(in)
		known := len(in.anew)
		for i := range d.Families {
			if f := &d.Families[i]; f.Outcome.Rule == allocate.RuleKept && !f.hints.wanted && !slices.Contains(in.anew, f.Family) {
				in.anew = append(in.anew, f.Family)
			}
		}
		if len(in.anew) == known {
			return nil
		}
		*d = blank
	}
}

// planHints turns the plans of all families into hints, or says why they cannot be.
func (d *Decision) planHints(in Input) {
	d.byGroups = byGroups(in.Settings)
	if need := translate.NeedOfGroups(d.Request.Intent); need != "" {
		d.undelivered("what is asked for %s; so there are no hints, and %s is needed", need, d.byGroups)
		return
	}
	if _, lost := nodeKey(d.Request.Intent.Tiers); len(lost) > 0 {
		d.note("hints express one kind of place finer than a zone, and only as the first; %s needs %s", strings.Join(lost, ", "), d.byGroups)
	}
	hinted := 0
	for i := range d.Families {
		f := &d.Families[i]
		d.planFamilyHints(f)
		if !f.hints.wanted {
			continue
		}
		d.planNodeHints(f, in)
		eps := ofFamily(in.Slices, f.Family)
		f.hints.homes = homes(eps, in.Cluster)
		hinted += len(eps)
	}
	d.noteSlices(in, hinted)
}

// noteSlices names the better way where many slices carry hints. Once it is named it
// stays so until they are fewer by a tenth than the limit: each change of the Service's
// condition costs a write and an event, and slices come and go.
func (d *Decision) noteSlices(in Input, hinted int) {
	limit := in.Settings.SliceLimit
	if limit <= 0 || hinted == 0 {
		return
	}
	if hinted > limit || saysManySlices(in.Service, limit) && 10*hinted >= 9*limit {
		d.note("%s, and Kubernetes writes each of them at every change of the Service; %s costs less", manySlices(limit), d.byGroups)
	}
}

// byGroups names the way out where hints are not enough.
func byGroups(s Settings) string {
	if s.WithoutGroups {
		return "delivery by groups (switched off in this cluster)"
	}
	return "delivery by groups (annotation " + v1alpha1.AnnotationProxy + `: "true")`
}

func (d *Decision) undelivered(format string, args ...any) {
	d.Undelivered = true
	d.note(format, args...)
}

// planFamilyHints makes the hints for zones.
func (d *Decision) planFamilyHints(f *FamilyDecision) {
	switch {
	case d.Request.OwnZone: // always, as those expect who write the label
		f.hints = hintPlan{wanted: true, own: true}
		return
	case f.Outcome.Rule == allocate.RuleOneZone:
		return
	case f.Outcome.IsBalanced() || len(f.Plan.Groups) == 0:
		return
	}
	soft := d.Request.Intent.Bound == nil
	if f.forEveryone() && (soft || f.Outcome.Undivided || len(f.Plan.Zones) > v1alpha1.MaxHints) {
		// Proxies do the same without hints for zones; there may be some for nodes. The
		// next plan needs none to go on from either: what divides nothing is made anew.
		f.hints.wanted = true
		return
	}
	regions := regionsOf(f.Region)
	f.hints = hintPlan{wanted: true, zones: make(map[string]*discoveryv1.EndpointHints, len(f.Endpoints))}
	type homeSet struct {
		home string
		set  allocate.ConsumerSet
	}
	made := map[homeSet]*discoveryv1.EndpointHints{} // few, so that endpoints share them
	for _, e := range f.Endpoints {
		key := homeSet{e.Zone, f.Assigned[e.Address]}
		hints, found := made[key]
		if !found {
			zones := d.hintZones(key.set, key.home, regions)
			if zones == nil {
				f.hints = hintPlan{}
				return
			}
			hints = makeHints(zones, nil)
			made[key] = hints
		}
		f.hints.zones[e.Address] = hints
	}
}

// hintZones are the zones of the hints of endpoints that are at home in one zone and
// used by a set of zones, or nil if hints cannot express it.
func (d *Decision) hintZones(set allocate.ConsumerSet, home string, regions map[string]string) []string {
	zones := slices.DeleteFunc(set.Zones(), func(zone string) bool { return zone == "" })
	if len(zones) > v1alpha1.MaxHints && d.Request.Intent.Bound == nil {
		zones = nearestZones(zones, home, regions)
		d.note("an endpoint can be hinted to %d zones at most; zones beyond that use all endpoints, unless %s is asked for", v1alpha1.MaxHints, d.byGroups)
	}
	switch {
	case len(zones) == 0 && home == "":
		d.undelivered("an endpoint has no zone, and hints for the others would leave it without traffic; so there are none, and %s is needed", d.byGroups)
		return nil
	case len(zones) == 0:
		return []string{home}
	case len(zones) > v1alpha1.MaxHints:
		d.undelivered("hints cannot express the plan: an endpoint serves more than %d zones; so there are none, and %s is needed", v1alpha1.MaxHints, d.byGroups)
		return nil
	}
	return zones
}

// forEveryone reports whether every zone uses every endpoint.
func (f *FamilyDecision) forEveryone() bool {
	for i := range f.Plan.Groups {
		if len(f.Plan.Groups[i].Consumers) != len(f.Plan.Zones) {
			return false
		}
	}
	return true
}

// nearestZones are as many zones as an endpoint may be hinted to: its own first, then
// those of its region.
func nearestZones(zones []string, home string, regions map[string]string) []string {
	distance := func(zone string) int {
		switch {
		case zone == home:
			return 0
		case regions[home] != "" && regions[zone] == regions[home]:
			return 1
		}
		return 2
	}
	zones = slices.Clone(zones)
	slices.SortStableFunc(zones, func(a, b string) int { return cmp.Compare(distance(a), distance(b)) })
	zones = zones[:v1alpha1.MaxHints]
	slices.Sort(zones)
	return zones
}

// nodeKey is the kind of place finer than a zone that hints for nodes are to express:
// the first that is asked for, if it comes before all wider ones. The others are lost.
func nodeKey(tiers topology.Tiers) (key string, lost []string) {
	wider := false
	for _, tier := range tiers {
		switch {
		case !isFine(tier):
			wider = true
		case wider || key != "":
			lost = append(lost, tier)
		default:
			key = tier
		}
	}
	return key, lost
}
