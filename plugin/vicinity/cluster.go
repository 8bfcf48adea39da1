package vicinity

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/locate"
	"vicinity.dev/vicinity/internal/nearest"
)

// cluster is what is known of the cluster: where clients are, and the endpoints of headless
// Services. Queries read it while it is changed.
type cluster struct {
	where *locate.Index

	// known has the Services with groups, by "name.namespace". Their values do not change.
	reading sync.RWMutex
	known   map[string]*service

	writing sync.Mutex
	parts   map[string]*parts

	changed atomic.Int64 // seconds since 1970
	missing atomic.Int32 // resources that were not listed yet
}

// parts are the objects that a service is made of.
type parts struct {
	groups map[string]*v1alpha1.EndpointGroup
	slices map[string][]sliceEndpoint
}

// sliceEndpoint is what is needed of an endpoint in an EndpointSlice.
type sliceEndpoint struct {
	v1alpha1.GroupEndpoint
	address   netip.Addr
	host, pod string
	ready     bool
}

// The families of addresses, as indexes.
const (
	v4 = iota
	v6
)

func familyOf(address netip.Addr) int {
	if address.Is4() {
		return v4
	}
	return v6
}

// service is a headless Service with groups.
type service struct {
	// endpoints by family, nil where the Service has no groups.
	endpoints [2]*nearest.Endpoints
	// sliced says that there are slices. Without them the Service may not be headless any more, and
	// its groups not be deleted yet.
	sliced bool
	// ready are the addresses by family that slices say are ready, in order.
	ready [2][]netip.Addr
	// hosts are the addresses of endpoints by the labels that their names begin with.
	hosts map[string][]netip.Addr
	// zones are those that groups name, by their names in lower case.
	zones map[string]string
}

func newCluster() *cluster {
	return &cluster{where: locate.New(), known: map[string]*service{}, parts: map[string]*parts{}}
}

// synced reports whether all resources were listed once.
func (c *cluster) synced() bool { return c.missing.Load() == 0 }

// serial is that of the zone as far as it depends on the cluster's groups.
func (c *cluster) serial() uint32 { return uint32(c.changed.Load()) }

// service finds a Service with groups by "name.namespace", in any case.
func (c *cluster) service(name string) *service {
	const longest = 2*63 + 1
	var lower [longest]byte
	if len(name) > longest {
		return nil
	}
	for i := range len(name) {
		b := name[i]
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		lower[i] = b
	}
	c.reading.RLock()
	defer c.reading.RUnlock()
	return c.known[string(lower[:len(name)])]
}

// change changes the parts of a Service, and makes it anew.
func (c *cluster) change(namespace, name string, do func(*parts)) {
	c.writing.Lock()
	defer c.writing.Unlock()
	key := name + "." + namespace
	p := c.parts[key]
	if p == nil {
		p = &parts{groups: map[string]*v1alpha1.EndpointGroup{}, slices: map[string][]sliceEndpoint{}}
		c.parts[key] = p
	}
	do(p)
	if len(p.groups) == 0 && len(p.slices) == 0 {
		delete(c.parts, key)
	}
	made := p.service()
	c.changed.Store(time.Now().Unix())
	c.reading.Lock()
	defer c.reading.Unlock()
	if made == nil {
		delete(c.known, key)
	} else {
		c.known[key] = made
	}
}

// service is nil without groups.
func (p *parts) service() *service {
	if len(p.groups) == 0 {
		return nil
	}
	s := &service{sliced: len(p.slices) > 0, hosts: map[string][]netip.Addr{}, zones: map[string]string{}}
	groups := slices.Collect(maps.Values(p.groups))
	for _, g := range groups {
		for i := range g.Spec.Consumers {
			s.zones[strings.ToLower(g.Spec.Consumers[i].Zone)] = g.Spec.Consumers[i].Zone
		}
		for i := range g.Spec.Endpoints {
			if zone := g.Spec.Endpoints[i].Zone; zone != "" {
				s.zones[strings.ToLower(zone)] = zone
			}
		}
	}
	var sliced [2]map[netip.Addr]*v1alpha1.GroupEndpoint
	for family := range sliced {
		sliced[family] = map[netip.Addr]*v1alpha1.GroupEndpoint{}
	}
	for _, endpoints := range p.slices {
		for i := range endpoints {
			e := &endpoints[i]
			family := familyOf(e.address)
			sliced[family][e.address] = &e.GroupEndpoint
			if e.ready {
				s.ready[family] = append(s.ready[family], e.address)
			}
			for _, label := range []string{e.host, e.pod, dashed(e.address)} {
				if label != "" && !slices.Contains(s.hosts[label], e.address) {
					s.hosts[label] = append(s.hosts[label], e.address)
				}
			}
		}
	}
	for family := range s.ready {
		slices.SortFunc(s.ready[family], netip.Addr.Compare)
		s.ready[family] = slices.Compact(s.ready[family])
	}
	s.endpoints[v4] = nearest.NewEndpoints(corev1.IPv4Protocol, groups, sliced[v4])
	s.endpoints[v6] = nearest.NewEndpoints(corev1.IPv6Protocol, groups, sliced[v6])
	return s
}

// knowsAny reports whether a message has an address of the Service's groups.
func (s *service) knowsAny(m *dns.Msg) bool {
	return slices.ContainsFunc(slices.Concat(m.Answer, m.Extra), func(rr dns.RR) bool {
		address := addressOf(rr)
		return address.IsValid() && s.endpoints[familyOf(address)] != nil && s.endpoints[familyOf(address)].Knows(address)
	})
}

// dashed is how the plugin kubernetes names an endpoint without a hostname.
func dashed(address netip.Addr) string {
	label := strings.NewReplacer(".", "-", ":", "-").Replace(address.String())
	if strings.HasSuffix(label, "-") {
		label += "0"
	}
	return label
}

func (c *cluster) setGroup(g *v1alpha1.EndpointGroup) {
	service := g.Spec.Service
	trimmed := &v1alpha1.EndpointGroup{Spec: g.Spec}
	trimmed.Namespace, trimmed.Name = g.Namespace, g.Name
	trimmed.Spec.Ports = nil
	for label, value := range g.Labels {
		if strings.HasPrefix(label, v1alpha1.LabelNotForPrefix) {
			if trimmed.Labels == nil {
				trimmed.Labels = map[string]string{}
			}
			trimmed.Labels[label] = value
		}
	}
	c.change(g.Namespace, service, func(p *parts) { p.groups[g.Name] = trimmed })
}

func (c *cluster) deleteGroup(namespace, service, name string) {
	c.change(namespace, service, func(p *parts) { delete(p.groups, name) })
}

// setSlice takes the endpoints of a slice. Those that are not ready have no records.
func (c *cluster) setSlice(s *discoveryv1.EndpointSlice) {
	var endpoints []sliceEndpoint
	for i := range s.Endpoints {
		given := &s.Endpoints[i]
		for _, text := range given.Addresses {
			address, err := netip.ParseAddr(text)
			if err != nil {
				if s.AddressType != discoveryv1.AddressTypeFQDN {
					malformedCount.WithLabelValues(resourceSlices).Inc()
				}
				continue
			}
			e := sliceEndpoint{address: address.Unmap(), ready: given.Conditions.Ready == nil || *given.Conditions.Ready}
			if given.Zone != nil {
				e.Zone = *given.Zone
			}
			if given.NodeName != nil {
				e.Node = *given.NodeName
			}
			if given.Hostname != nil {
				e.host = *given.Hostname
			}
			if given.TargetRef != nil {
				e.pod = given.TargetRef.Name
			}
			endpoints = append(endpoints, e)
		}
	}
	c.change(s.Namespace, s.Labels[discoveryv1.LabelServiceName], func(p *parts) { p.slices[s.Name] = endpoints })
}

func (c *cluster) deleteSlice(namespace, service, name string) {
	c.change(namespace, service, func(p *parts) { delete(p.slices, name) })
}
