package vicinity

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/names"
	"vicinity.dev/vicinity/internal/names/locate"
	"vicinity.dev/vicinity/internal/names/location"
)

// cluster has the locations of clients, and the endpoints of headless Services. Queries read it while it changes.
type cluster struct {
	clients *locate.Index

	writing sync.Mutex // for changes of Services
	reading sync.RWMutex
	parts   map[string]*parts // by "name.namespace"; changed with both locks

	changed  atomic.Int64 // seconds since 1970
	unlisted atomic.Int32 // resources that are not listed yet
}

// parts has the objects of a Service. The first query after a change computes the Service, so that answers use all received
// changes. A burst of changes, as in a rollout or the first list, does not compute it for each slice and group.
type parts struct {
	mu     sync.Mutex
	groups map[string]*v1alpha1.EndpointGroup
	slices map[string][]names.Endpoint

	current atomic.Pointer[computed] // nil after a change
}

// computed is the Service of parts, which does not change: nil without groups.
type computed struct{ *names.Service }

func newCluster() *cluster {
	return &cluster{clients: locate.New(), parts: map[string]*parts{}}
}

// isSynced reports whether all resources have been listed.
func (c *cluster) isSynced() bool { return c.unlisted.Load() == 0 }

// serial returns the serial of the zone, as far as the zone depends on groups.
func (c *cluster) serial() uint32 { return uint32(c.changed.Load()) }

// service returns a Service with groups by "name.namespace", in any case, or nil.
func (c *cluster) service(name string) *names.Service {
	c.reading.RLock()
	p := c.parts[strings.ToLower(name)]
	c.reading.RUnlock()
	if p == nil {
		return nil
	}
	return p.service()
}

// change changes the parts of a Service.
func (c *cluster) change(namespace, name string, do func(*parts)) {
	c.writing.Lock()
	defer c.writing.Unlock()
	key := name + "." + namespace
	p := c.parts[key]
	known := p != nil
	if !known {
		p = &parts{groups: map[string]*v1alpha1.EndpointGroup{}, slices: map[string][]names.Endpoint{}}
	}
	isEmpty := p.change(do)
	c.changed.Store(time.Now().Unix())
	if known != isEmpty {
		return
	}
	c.reading.Lock()
	defer c.reading.Unlock()
	if isEmpty {
		delete(c.parts, key)
	} else {
		c.parts[key] = p
	}
}

// change changes the parts, and reports whether they are empty.
func (p *parts) change(do func(*parts)) (isEmpty bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do(p)
	p.current.Store(nil)
	return len(p.groups) == 0 && len(p.slices) == 0
}

// service computes the Service if its parts have changed. Queries for other Services do not wait for it.
func (p *parts) service() *names.Service {
	if now := p.current.Load(); now != nil {
		return now.Service
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.current.Load()
	if now == nil {
		now = &computed{names.NewService(slices.Collect(maps.Values(p.groups)), p.slices)}
		p.current.Store(now)
	}
	return now.Service
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

// setSlice stores the endpoints of a slice.
func (c *cluster) setSlice(s *discoveryv1.EndpointSlice) {
	endpoints, malformed := names.EndpointsOf(s)
	malformedCount.WithLabelValues(resourceSlices).Add(float64(malformed))
	c.change(s.Namespace, s.Labels[discoveryv1.LabelServiceName], func(p *parts) { p.slices[s.Name] = endpoints })
}

func (c *cluster) deleteSlice(namespace, service, name string) {
	c.change(namespace, service, func(p *parts) { delete(p.slices, name) })
}

// setNode locates clients by a node: clients with the node's own addresses, and pods in its ranges.
func (c *cluster) setNode(n *corev1.Node) {
	node := location.OfNode(n)
	if len(node.Addresses) == 0 && len(n.Status.Addresses) > 0 || len(node.PodRanges) == 0 && len(n.Spec.PodCIDRs) > 0 && !location.IgnoresPodCIDRs(n) {
		malformedCount.WithLabelValues(resourceNodes).Inc()
	}
	c.clients.SetNode(n.Name, node)
}

// setLocator locates a pod.
func (c *cluster) setLocator(l *v1alpha1.PodLocator) {
	pod := location.OfPod(l)
	if l.DeletionTimestamp == nil && len(pod.IPs) < len(l.IPs) {
		malformedCount.WithLabelValues(resourceLocators).Inc()
	}
	c.clients.SetPod(l.Namespace, l.Name, pod)
}
