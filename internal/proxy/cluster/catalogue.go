// Package cluster is what the API says of a cluster, as far as a node needs it: a Client reads
// and writes the API, Watches fill a Catalogue, and that says which Services have changed since
// it was asked last. What Services do is not decided here.
//
// The Catalogue is the only state that goroutines share. It is filled under its lock, and its
// objects are never changed. Objects are trimmed before they come into it.
package cluster

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

// Change is what has happened to a Service since it was looked at last.
type Change struct {
	// Noticed is when the first of it came.
	Noticed time.Time
	// Triggered are the earliest times of changes of endpoints, as slices and groups tell them.
	Triggered []time.Time
	// HandOver are resource versions of groups that proxies acknowledge.
	HandOver []uint64
}

// Before joins a change with one that came before it.
func (c *Change) Before(earlier *Change) *Change {
	if earlier == nil {
		return c
	}
	return &Change{Noticed: earlier.Noticed, Triggered: earliest(append(earlier.Triggered, c.Triggered...))}
}

// MostTriggered bounds the times that a waiting Service keeps. Each is a value of the latency.
const MostTriggered = 100

// earliest are the first of some times, which it may sort.
func earliest(times []time.Time) []time.Time {
	if len(times) <= MostTriggered {
		return times
	}
	slices.SortFunc(times, time.Time.Compare)
	return times[:MostTriggered]
}

// Changes are those since the last look.
type Changes struct {
	Services map[types.NamespacedName]*Change
	// Node says that the own node has changed, or the zone of the groups.
	Node bool
	// Reserved says that the addresses of the cluster have changed.
	Reserved bool
	// Anew says that earlier resource versions mean nothing any more.
	Anew bool
}

func newChanges() *Changes {
	return &Changes{Services: map[types.NamespacedName]*Change{}}
}

// Empty reports whether nothing has changed.
func (c *Changes) Empty() bool { return len(c.Services) == 0 && !c.Node && !c.Reserved && !c.Anew }

// Catalogue holds what the API says, by Service, and which Services have changed. Its objects never
// change.
type Catalogue struct {
	clock clock.PassiveClock
	// notice is called by any goroutine when something has changed. It must not use the catalogue.
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
	changes *Changes
}

// NewCatalogue returns an empty catalogue. Any goroutine calls notice when something has changed;
// notice must not use the catalogue.
func NewCatalogue(c clock.PassiveClock, notice func()) *Catalogue {
	return &Catalogue{
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

// Take returns the changes, which the caller handles from then on.
func (c *Catalogue) Take() *Changes {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.changes
	c.changes = newChanges()
	return taken
}

// Changed reports whether Take would return changes.
func (c *Catalogue) Changed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.changes.Empty()
}

// Renewed reports whether Take would return Changes.Anew.
func (c *Catalogue) Renewed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changes.Anew
}

// Entry is a Service with its groups and slices.
type Entry struct {
	Service *corev1.Service
	Groups  []*v1alpha1.EndpointGroup
	Slices  []*discoveryv1.EndpointSlice
}

// Entry returns what the catalogue holds of a Service.
func (c *Catalogue) Entry(service types.NamespacedName) Entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Entry{c.services[service], c.groups.of(service), c.slices.of(service)}
}

// Names are those of all Services, and of those that only groups name.
func (c *Catalogue) Names() map[types.NamespacedName]bool {
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

// Count is the number of objects of a resource.
func (c *Catalogue) Count(resource string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch resource {
	case ResourceServices:
		return len(c.services)
	case ResourceGroups:
		return len(c.groups.all)
	case ResourceSlices:
		return len(c.slices.all)
	case ResourceRanges:
		return len(c.ranges)
	case ResourceConfigMaps:
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

// Position is the own node, nil if it is not known, and the zone that the groups are for.
func (c *Catalogue) Position() (node *corev1.Node, zone string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.node, c.zone
}
