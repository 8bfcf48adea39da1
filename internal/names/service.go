package names

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/endpoint"
	"vicinity.dev/vicinity/internal/names/locate"
	"vicinity.dev/vicinity/internal/topology"
)

// Selector selects the EndpointSlices and EndpointGroups of headless Services.
const Selector = corev1.IsHeadlessService

// The families of addresses, as indexes.
const (
	V4 = iota
	V6
)

// FamilyOf returns the family of an address.
func FamilyOf(address netip.Addr) int {
	if address.Is4() {
		return V4
	}
	return V6
}

// Endpoint is an address of an endpoint in an EndpointSlice.
type Endpoint struct {
	v1alpha1.GroupEndpoint
	IP netip.Addr
	// Host and Pod are possible first labels of the endpoint's names, often empty.
	Host, Pod string
}

// EndpointsOf returns the endpoints of a slice, in its order, and the number of malformed addresses.
func EndpointsOf(slice *discoveryv1.EndpointSlice) (endpoints []Endpoint, malformed int) {
	for i := range slice.Endpoints {
		given := &slice.Endpoints[i]
		read := endpoint.Read(given)
		for _, text := range given.Addresses {
			address, err := netip.ParseAddr(text)
			if err != nil {
				if slice.AddressType != discoveryv1.AddressTypeFQDN {
					malformed++
				}
				continue
			}
			e := Endpoint{GroupEndpoint: read, IP: address.Unmap()}
			e.Address = text
			if given.Hostname != nil {
				e.Host = *given.Hostname
			}
			if given.TargetRef != nil {
				e.Pod = given.TargetRef.Name
			}
			endpoints = append(endpoints, e)
		}
	}
	return endpoints, malformed
}

// Service is a headless Service with groups. It does not change.
type Service struct {
	// Endpoints is by family, nil for a family without groups.
	Endpoints [2]*endpoint.Set
	// Sliced means that there are slices. Without them the Service may no longer be headless, and its groups not be deleted
	// yet.
	Sliced bool
	// Ready has the sorted addresses of ready endpoints in slices, by family.
	Ready [2][]netip.Addr

	// hosts has the addresses of endpoints by the first labels of their names, unsorted and with duplicates.
	hosts map[string][]netip.Addr
	// zones has the zones in groups, by their names in lower case.
	zones map[string]string
}

// NewService reads the groups of a Service, and the endpoints of its slices by slice name. The caller must not change either
// afterwards. Without a group it returns nil: the answers do not depend on the client.
func NewService(groups []*v1alpha1.EndpointGroup, sliced map[string][]Endpoint) *Service {
	if len(groups) == 0 {
		return nil
	}
	s := &Service{Sliced: len(sliced) > 0, hosts: map[string][]netip.Addr{}, zones: map[string]string{}}
	for _, g := range groups {
		for i := range g.Spec.Consumers {
			s.addZone(g.Spec.Consumers[i].Zone)
		}
		for i := range g.Spec.Endpoints {
			s.addZone(g.Spec.Endpoints[i].Zone)
		}
	}
	var known [2]map[netip.Addr]*v1alpha1.GroupEndpoint
	for family := range known {
		known[family] = map[netip.Addr]*v1alpha1.GroupEndpoint{}
	}
	for _, slice := range slices.Sorted(maps.Keys(sliced)) {
		endpoints := sliced[slice]
		for i := range endpoints {
			e := &endpoints[i]
			family := FamilyOf(e.IP)
			if other := known[family][e.IP]; other == nil || endpoint.StateInGroup(&e.GroupEndpoint).Before(endpoint.StateInGroup(other)) {
				known[family][e.IP] = &e.GroupEndpoint
			}
			for _, label := range [...]string{e.Host, e.Pod, Dashed(e.IP)} {
				if label != "" {
					s.hosts[label] = append(s.hosts[label], e.IP)
				}
			}
		}
	}
	for family := range known {
		for address, e := range known[family] {
			if !e.NotReady {
				s.Ready[family] = append(s.Ready[family], address)
			}
		}
		slices.SortFunc(s.Ready[family], netip.Addr.Compare)
	}
	s.Endpoints[V4] = endpoint.NewSet(corev1.IPv4Protocol, groups, known[V4])
	s.Endpoints[V6] = endpoint.NewSet(corev1.IPv6Protocol, groups, known[V6])
	return s
}

// addZone records how a zone is written. DNS names ignore case. Of zones that differ only in case, the last in the order of
// bytes counts, which is the one in lower case.
func (s *Service) addZone(zone string) {
	if zone == "" {
		return
	}
	lower := strings.ToLower(zone)
	s.zones[lower] = max(s.zones[lower], zone)
}

var dashes = strings.NewReplacer(".", "-", ":", "-")

// Dashed returns the label of the plugin kubernetes for an endpoint without a hostname.
func Dashed(address netip.Addr) string {
	label := dashes.Replace(address.String())
	if strings.HasSuffix(label, "-") {
		label += "0"
	}
	return label
}

// Decides reports whether the records of the Service's name, with these addresses, depend on the client. Groups without slices
// and without any of the addresses are left from the time when the Service was headless.
func (s *Service) Decides(addresses iter.Seq[netip.Addr]) bool {
	if s.Sliced {
		return true
	}
	for address := range addresses {
		if e := s.Endpoints[FamilyOf(address)]; e != nil && e.Knows(address) {
			return true
		}
	}
	return false
}

// Host returns the addresses of the endpoints with a first label, with duplicates.
func (s *Service) Host(label string) []netip.Addr { return s.hosts[label] }

// ClientIn returns a client with only a zone. The zone may be in lower case, as in names.
func (s *Service) ClientIn(zone string) endpoint.Client {
	if written, known := s.zones[zone]; known {
		zone = written
	}
	return endpoint.Client{Zone: zone}
}

// ClientAt returns a client at a location, which may be unknown.
func ClientAt(at locate.Location) endpoint.Client {
	return endpoint.Client{Node: at.Node, Zone: at.Labels[topology.Zone], Labels: at.Labels}
}

// Targets has the targets of SRV records that a client uses, and their addresses.
type Targets struct {
	// Tier is the key that endpoints share with the client, empty without one.
	Tier string
	// All means that the client gets all addresses of a family, because none of them is for the client.
	All bool
	// Removed means that the client does not use some addresses.
	Removed bool

	uses map[netip.Addr]bool
	hard bool
}

// Targets chooses among the targets with some addresses. A client uses a target if it uses one of its addresses. A target
// without a known address may be anywhere: the client uses it unless tiers are hard.
func (s *Service) Targets(client endpoint.Client, addresses []netip.Addr) Targets {
	t := Targets{uses: make(map[netip.Addr]bool, len(addresses))}
	var families [2][]netip.Addr
	for _, address := range addresses {
		families[FamilyOf(address)] = append(families[FamilyOf(address)], address)
	}
	for family, addresses := range families {
		slices.SortFunc(addresses, netip.Addr.Compare)
		addresses = slices.Compact(addresses)
		endpoints := s.Endpoints[family]
		if endpoints == nil {
			for _, address := range addresses {
				t.uses[address] = true
			}
			continue
		}
		chosen := endpoints.Choose(client, addresses)
		if t.Tier == "" && len(addresses) > 0 {
			t.Tier = chosen.Tier
		}
		t.hard = t.hard || chosen.Hard
		t.All = t.All || chosen.All && len(addresses) > 0
		t.Removed = t.Removed || chosen.Count < len(addresses)
		for i, address := range addresses {
			t.uses[address] = chosen.Takes[i]
		}
	}
	return t
}

// Uses reports whether the client uses an address.
func (t *Targets) Uses(address netip.Addr) bool { return t.uses[address] }

// Takes reports whether the client uses a target with these addresses.
func (t *Targets) Takes(addresses []netip.Addr) bool {
	if len(addresses) == 0 {
		return !t.hard
	}
	return slices.ContainsFunc(addresses, t.Uses)
}
