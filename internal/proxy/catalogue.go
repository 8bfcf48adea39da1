package proxy

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// change is what has happened to a Service since it was looked at last.
type change struct {
	// noticed is when the first of it came.
	noticed time.Time
	// triggered are when changes of endpoints happened, as far as slices or groups say so, of
	// many the earliest.
	triggered []time.Time
	// handOver are resource versions of groups that proxies acknowledge.
	handOver []uint64
}

// mostTriggered is how many times are kept of a Service that waits, for however long: each of
// them is one value of the latency, and the earliest are those that wait for longest.
const mostTriggered = 100

// earliest are the first of some times, which it may sort.
func earliest(times []time.Time) []time.Time {
	if len(times) <= mostTriggered {
		return times
	}
	slices.SortFunc(times, time.Time.Compare)
	return times[:mostTriggered]
}

// changes are those since the last look.
type changes struct {
	services map[types.NamespacedName]*change
	// node says that the own node is another now, or that the groups are those of
	// another zone.
	node bool
	// reserved says that other addresses belong to the cluster.
	reserved bool
	// anew says that resource versions from before say nothing any more.
	anew bool
}

func newChanges() *changes {
	return &changes{services: map[types.NamespacedName]*change{}}
}

func (c *changes) empty() bool { return len(c.services) == 0 && !c.node && !c.reserved && !c.anew }

// catalogue holds what the API says, by Service, and which Services have changed. Watches
// fill it. Its objects are shared and never changed.
type catalogue struct {
	clock clock.PassiveClock
	// notice is called, by any goroutine, when something has changed, and must not ask the
	// catalogue anything.
	notice func()

	mu       sync.Mutex
	services map[types.NamespacedName]*corev1.Service
	groups   *indexed[*v1alpha1.EndpointGroup]
	slices   *indexed[*discoveryv1.EndpointSlice]
	node     *corev1.Node
	// zone is that which the groups are for.
	zone string
	// ranges are those of cluster IPs, by the names of their objects, and others what is
	// published of all nodes.
	ranges  map[string][]netip.Prefix
	others  published
	listed  map[string]uint64 // resource version of the last list, by resource
	changes *changes
}

func newCatalogue(c clock.PassiveClock, notice func()) *catalogue {
	return &catalogue{
		clock: c, notice: notice, services: map[types.NamespacedName]*corev1.Service{}, ranges: map[string][]netip.Prefix{},
		listed: map[string]uint64{}, changes: newChanges(),
		groups: newIndexed(func(group *v1alpha1.EndpointGroup) types.NamespacedName {
			return types.NamespacedName{Namespace: group.Namespace, Name: group.Spec.Service}
		}),
		slices: newIndexed(func(slice *discoveryv1.EndpointSlice) types.NamespacedName {
			return types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
		}),
	}
}

// take hands the changes over, for which the caller answers from then on.
func (c *catalogue) take() *changes {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.changes
	c.changes = newChanges()
	return taken
}

// changed reports whether there is something to take.
func (c *catalogue) changed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.changes.empty()
}

// renewed reports whether there is something to take after which resource versions from
// before say nothing any more.
func (c *catalogue) renewed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changes.anew
}

// entry is what there is of a Service.
type entry struct {
	service *corev1.Service
	groups  []*v1alpha1.EndpointGroup
	slices  []*discoveryv1.EndpointSlice
}

func (c *catalogue) entry(service types.NamespacedName) entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return entry{c.services[service], c.groups.of(service), c.slices.of(service)}
}

// names are those of all Services, and of those that only groups or slices name.
func (c *catalogue) names() map[types.NamespacedName]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[types.NamespacedName]bool, len(c.services))
	for name := range c.services {
		all[name] = true
	}
	for name := range c.groups.owned {
		all[name] = true
	}
	return all
}

// count is the number of objects of a resource.
func (c *catalogue) count(resource string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch resource {
	case resourceServices:
		return len(c.services)
	case resourceGroups:
		return len(c.groups.all)
	case resourceSlices:
		return len(c.slices.all)
	case resourceRanges:
		return len(c.ranges)
	case resourceConfigMaps:
		if c.others.known {
			return 1
		}
		return 0
	}
	if c.node != nil {
		return 1
	}
	return 0
}

// position is the own node, nil if it is not known, and the zone that the groups are for.
func (c *catalogue) position() (node *corev1.Node, zone string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.node, c.zone
}
