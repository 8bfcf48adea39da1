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

	// pace is for how long changes are gathered, zero for not at all.
	pace time.Duration

	writing sync.Mutex // for all below, but for what is atomic
	parts   map[string]*parts
	// stale are the Services, by "name.namespace", whose parts have changed since they were made.
	stale map[string]bool
	due   bool // they are made anew soon

	changed atomic.Int64 // seconds since 1970
	missing atomic.Int32 // resources that were not listed yet
}

// remakePace is how long a change may take to be seen, so that a burst of changes, as of a rollout, makes a
// Service anew a few times and not for each of its slices and groups.
const remakePace = 50 * time.Millisecond

// parts are the objects that a service is made of.
type parts struct {
	groups map[string]*v1alpha1.EndpointGroup
	slices map[string][]names.Endpoint
}

func newCluster() *cluster {
	return &cluster{where: locate.New(), known: map[string]*names.Service{}, parts: map[string]*parts{}, stale: map[string]bool{}, pace: remakePace}
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

// change changes the parts of a Service. The Service is made anew once for all changes of a while,
// by a writer: no query waits for that.
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
	c.stale[key] = true
	switch {
	case !c.synced(): // listed does it
	case c.pace == 0:
		c.remake()
	case !c.due:
		c.due = true
		time.AfterFunc(c.pace, func() {
			c.writing.Lock()
			defer c.writing.Unlock()
			c.due = false
			c.remake()
		})
	}
}

// listed says that one more resource was listed. Once all were, queries find all Services.
func (c *cluster) listed() {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.missing.Load() == 1 {
		c.remake()
	}
	c.missing.Add(-1)
}

// remake makes the Services anew whose parts have changed. The caller has the lock for writing.
func (c *cluster) remake() {
	made := make(map[string]*names.Service, len(c.stale))
	for key := range c.stale {
		if p := c.parts[key]; p != nil {
			made[key] = p.service()
		} else {
			made[key] = nil
		}
	}
	clear(c.stale)
	c.changed.Store(time.Now().Unix())
	c.reading.Lock()
	defer c.reading.Unlock()
	for key, s := range made {
		if s == nil {
			delete(c.known, key)
		} else {
			c.known[key] = s
		}
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
