package vicinity

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/locate"
	"vicinity.dev/vicinity/internal/names"
)

// cluster is what is known of the cluster: where clients are, and the endpoints of headless
// Services. Queries read it while it is changed.
type cluster struct {
	where *locate.Index

	// known has the Services with groups, by "name.namespace". Their values do not change.
	reading sync.RWMutex
	known   map[string]*names.Service

	writing sync.Mutex
	parts   map[string]*parts

	changed atomic.Int64 // seconds since 1970
	missing atomic.Int32 // resources that were not listed yet
}

// parts are the objects that a service is made of.
type parts struct {
	groups map[string]*v1alpha1.EndpointGroup
	slices map[string][]names.Endpoint
}

func newCluster() *cluster {
	return &cluster{where: locate.New(), known: map[string]*names.Service{}, parts: map[string]*parts{}}
}

// synced reports whether all resources were listed once.
func (c *cluster) synced() bool { return c.missing.Load() == 0 }

// serial is that of the zone as far as it depends on the cluster's groups.
func (c *cluster) serial() uint32 { return uint32(c.changed.Load()) }

// service finds a Service with groups by "name.namespace", in any case.
func (c *cluster) service(name string) *names.Service {
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
		p = &parts{groups: map[string]*v1alpha1.EndpointGroup{}, slices: map[string][]names.Endpoint{}}
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
func (p *parts) service() *names.Service {
	return names.NewService(slices.Collect(maps.Values(p.groups)), p.slices)
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
	endpoints, malformed := names.EndpointsOf(s)
	malformedCount.WithLabelValues(resourceSlices).Add(float64(malformed))
	c.change(s.Namespace, s.Labels[discoveryv1.LabelServiceName], func(p *parts) { p.slices[s.Name] = endpoints })
}

func (c *cluster) deleteSlice(namespace, service, name string) {
	c.change(namespace, service, func(p *parts) { delete(p.slices, name) })
}
