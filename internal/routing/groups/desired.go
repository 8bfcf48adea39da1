package groups

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/endpoint"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// want describes what the groups of one family have to deliver, whatever groups exist. desired makes it, and nothing
// changes it later.
type want struct {
	*Input
	plan  *Plan
	size  int
	tiers []string
	// zones are the zones that the plan knows, in order. Nodes of other zones see all groups, except of endpoints that leave a domain.
	zones []string
	// parts and shares are in the order of their keys.
	parts     []*part
	shares    []*share
	endpoints int
	anyReady  bool
	notes     []string
}

// share is a set of endpoints that can be in one group: they have the same ports and the same consumers. If their home
// zone is not a consumer, it is the same, too.
type share struct {
	key       shareKey
	part      *part
	consumers consumers
	// extra are zones that use the share because they have no endpoint with its port.
	extra []string
	ready bool
}

// leaves reports whether no zone uses the endpoints: they leave a domain.
func (s *share) leaves() bool { return len(s.consumers.list) == 0 && !s.consumers.nowhere }

type shareKey struct{ part, consumers, home string }

func (k shareKey) compare(other shareKey) int {
	return cmp.Or(cmp.Compare(k.part, other.part), cmp.Compare(k.consumers, other.consumers), cmp.Compare(k.home, other.home))
}

// sliceEndpoint is an endpoint of a slice with its domains for the wanted tiers.
type sliceEndpoint struct {
	v1alpha1.GroupEndpoint
	number int // among those of all parts
	// share is the planned share. Endpoints that are not ready are not in the plan: for them it is a guess, which
	// counts if no group has the endpoint yet.
	share   *share
	planned bool
}

// desired returns what groups have to deliver. It does not look at existing groups.
//
// Every endpoint of the slices is in the part with its ports, and has a share. Two endpoints have the same share if and
// only if they can be in one group. Zones that the plan leaves without an endpoint for some port are extra consumers of
// all shares with that port, unless a requirement forbids it.
func desired(in *Input, plan *Plan) *want {
	w := &want{Input: in, plan: plan, size: cmp.Or(max(in.Size, 0), DefaultSize), tiers: Tiers(in.Intent)}
	w.size = min(w.size, MaxSize, mostBytes/(bytesOfEndpoint+bytesOfDomain*len(w.tiers)))
	w.zones = plannedZones(plan, in.Intent.Tiers.Hard())
	w.parts, w.notes = partsOf(in, plan.Family)
	domains := w.domains(w.tiers)
	for _, t := range w.parts {
		for _, e := range t.endpoints {
			e.number = w.endpoints
			e.Domains = domains(e.Node, e.Zone)
			w.endpoints++
			w.anyReady = w.anyReady || !e.NotReady
		}
	}
	w.shares = w.assignShares()
	if len(w.parts) > 1 && !in.Intent.Tiers.Hard() {
		w.notes = append(w.notes, w.widen()...)
	}
	return w
}

// plannedZones returns the zones that the plan knows, in order. A zone without an endpoint is left out if others have
// some and no requirement forbids that its nodes see everything.
func plannedZones(plan *Plan, hard bool) []string {
	served := map[string]bool{}
	for g := range plan.Plan.Groups {
		for _, c := range plan.Plan.Groups[g].Consumers {
			served[plan.Plan.Zones[c.Zone]] = true
		}
	}
	var zones []string
	for _, zone := range plan.Region.Zones {
		if zone.Name != "" && (hard || len(served) == 0 || served[zone.Name]) {
			zones = append(zones, zone.Name)
		}
	}
	slices.Sort(zones)
	return zones
}

func (w *want) plans(zone string) bool {
	_, found := slices.BinarySearch(w.zones, zone)
	return found
}

// assignShares gives each endpoint its share, and returns all shares.
func (w *want) assignShares() []*share {
	shares := map[shareKey]*share{}
	shareFor := func(t *part, c consumers, home string) *share {
		key := shareKey{t.key, c.key(), home}
		if shares[key] == nil {
			shares[key] = &share{key: key, part: t, consumers: c}
		}
		return shares[key]
	}
	for _, t := range w.parts {
		type setAndHome struct {
			set  allocate.ConsumerSet
			home string
		}
		known := map[setAndHome]*share{} // computing a key is slow, and few pairs differ
		for _, e := range t.endpoints {
			set, assigned := w.plan.Assigned[e.Address]
			if e.NotReady || !assigned {
				continue
			}
			at := setAndHome{set, e.Zone}
			if known[at] == nil {
				users := consumersOf(set)
				known[at] = shareFor(t, users, w.home(e.Zone, users))
			}
			e.share, e.planned = known[at], true
			e.share.ready = true
		}
		probable := map[string]*share{} // by zone
		for _, e := range t.endpoints {
			if e.planned {
				continue
			}
			if probable[e.Zone] == nil {
				probable[e.Zone] = t.mostOf(e.Zone)
			}
			if probable[e.Zone] == nil {
				probable[e.Zone] = shareFor(t, w.onlyZone(e.Zone), "")
			}
			e.share = probable[e.Zone]
		}
	}
	list := make([]*share, 0, len(shares))
	for _, s := range shares {
		list = append(list, s)
	}
	slices.SortFunc(list, compareShares)
	return list
}

func compareShares(a, b *share) int { return a.key.compare(b.key) }

// home returns the zone of endpoints if the plan knows it and gives them only to other zones.
func (w *want) home(zone string, users consumers) string {
	if w.plans(zone) && !hasZone(users.list, zone) {
		return zone
	}
	return ""
}

func (w *want) onlyZone(zone string) consumers {
	if w.plans(zone) {
		return consumers{list: []v1alpha1.GroupConsumer{{Zone: zone, Weight: fullWeight}}}
	}
	return consumers{}
}

// mostOf returns the share of most planned endpoints in a zone, nil if there are none.
func (t *part) mostOf(zone string) *share {
	counts := map[*share]int{}
	for _, e := range t.endpoints {
		if e.planned && e.Zone == zone {
			counts[e.share]++
		}
	}
	return mostFrequent(counts)
}

func mostFrequent(counts map[*share]int) *share {
	var best *share
	for s, n := range counts {
		if best == nil || n > counts[best] || n == counts[best] && compareShares(s, best) < 0 {
			best = s
		}
	}
	return best
}

// widen gives zones without an endpoint for some port all endpoints that have it. The plan ignores ports, so a zone's
// own endpoints may lack one. It returns notes about that.
func (w *want) widen() (notes []string) {
	type port struct {
		name     string
		protocol corev1.Protocol
	}
	having := map[port][]*share{}
	var ports []port
	for _, s := range w.shares {
		if !s.ready {
			continue
		}
		for _, had := range s.part.ports {
			key := port{had.Name, had.Protocol}
			if having[key] == nil {
				ports = append(ports, key)
			}
			having[key] = append(having[key], s)
		}
	}
	for _, key := range ports {
		for _, zone := range w.zones {
			if slices.ContainsFunc(having[key], func(s *share) bool { return hasZone(s.consumers.list, zone) }) {
				continue
			}
			for _, s := range having[key] {
				if s.leaves() && slices.ContainsFunc(having[key], func(other *share) bool { return !other.leaves() }) {
					continue
				}
				if !slices.Contains(s.extra, zone) {
					s.extra = append(s.extra, zone)
				}
			}
			notes = append(notes, fmt.Sprintf("no endpoint that the plan gives to zone %s has port %q: the zone uses all endpoints that have it, however high the load is", zone, key.name))
		}
	}
	return notes
}

type consumers struct {
	list []v1alpha1.GroupConsumer // in the order of zones
	// nowhere says that endpoints without a zone are consumers, which a group cannot name.
	nowhere bool
}

func (c consumers) key() string {
	var b strings.Builder
	for _, consumer := range c.list {
		b.WriteString(consumer.Zone + "\x00" + strconv.Itoa(int(consumer.Weight)) + "\x00")
	}
	b.WriteString(strconv.FormatBool(c.nowhere))
	return b.String()
}

func consumersOf(set allocate.ConsumerSet) consumers {
	var users consumers
	for zone, weight := range set.All() {
		if zone != "" {
			users.list = append(users.list, v1alpha1.GroupConsumer{Zone: zone, Weight: thousandths(weight)})
		} else {
			users.nowhere = true
		}
	}
	return users
}

func sortConsumers(list []v1alpha1.GroupConsumer) {
	slices.SortFunc(list, func(a, b v1alpha1.GroupConsumer) int { return cmp.Compare(a.Zone, b.Zone) })
}

func hasZone(list []v1alpha1.GroupConsumer, zone string) bool {
	return slices.ContainsFunc(list, func(c v1alpha1.GroupConsumer) bool { return c.Zone == zone })
}

// fullWeight is the weight of a consumer that uses an endpoint alone.
const fullWeight = 1000

// thousandths returns a weight as groups have it, at least 1.
func thousandths(weight float64) int32 {
	return min(max(int32(math.Round(weight*fullWeight)), 1), fullWeight)
}

type part struct {
	ports     []v1alpha1.GroupPort
	key       string
	endpoints []*sliceEndpoint
	byAddress map[string]*sliceEndpoint
}

// partsOf reads the slices of a family. Parts are in the order of their keys. Notes name ports that groups cannot have.
func partsOf(in *Input, family corev1.IPFamily) (list []*part, notes []string) {
	parts := map[string]*part{}
	for _, slice := range endpoint.Slices(in.Slices, family) {
		if len(slice.Endpoints) == 0 {
			continue
		}
		ports, unnumbered := groupPorts(slice.Ports)
		for _, name := range unnumbered {
			notes = append(notes, fmt.Sprintf("port %q of EndpointSlice %s has no number, so groups leave it out", name, slice.Name))
		}
		key := portsKey(ports)
		if parts[key] == nil {
			parts[key] = &part{ports: ports, key: key, byAddress: make(map[string]*sliceEndpoint, len(slice.Endpoints))}
			list = append(list, parts[key])
		}
		parts[key].add(slice, in.Cluster)
	}
	slices.SortFunc(list, func(a, b *part) int { return cmp.Compare(a.key, b.key) })
	return list, notes
}

// add adds the endpoints of a slice, one for each address: the one that counts.
func (t *part) add(slice *discoveryv1.EndpointSlice, cluster *intent.Cluster) {
	list := make([]sliceEndpoint, len(slice.Endpoints))
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		if len(e.Addresses) == 0 {
			continue
		}
		read := endpoint.Read(e)
		read.Zone = cluster.ZoneOf(e)
		switch known := t.byAddress[read.Address]; {
		case known == nil:
			list[i].GroupEndpoint = read
			t.byAddress[read.Address] = &list[i]
			t.endpoints = append(t.endpoints, &list[i])
		case endpoint.StateInGroup(&read).Before(endpoint.StateInGroup(&known.GroupEndpoint)):
			known.GroupEndpoint = read
		}
	}
}

// groupPorts returns the ports of a slice in the order of names, and the names of ports without a number, which stand
// for all ports.
func groupPorts(ports []discoveryv1.EndpointPort) (list []v1alpha1.GroupPort, unnumbered []string) {
	for i := range ports {
		port := v1alpha1.GroupPort{Protocol: corev1.ProtocolTCP}
		if ports[i].Name != nil {
			port.Name = *ports[i].Name
		}
		if ports[i].Protocol != nil && *ports[i].Protocol != "" {
			port.Protocol = *ports[i].Protocol
		}
		if ports[i].Port == nil {
			unnumbered = append(unnumbered, port.Name)
			continue
		}
		port.Port = *ports[i].Port
		list = append(list, port)
	}
	slices.SortFunc(list, func(a, b v1alpha1.GroupPort) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
	})
	return list, unnumbered
}

func portsKey(ports []v1alpha1.GroupPort) string {
	var b strings.Builder
	for _, port := range ports {
		b.WriteString(port.Name + "\x00" + string(port.Protocol) + "\x00" + strconv.Itoa(int(port.Port)) + "\x00")
	}
	return b.String()
}
