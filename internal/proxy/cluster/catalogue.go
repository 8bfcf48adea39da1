// Package cluster keeps the objects of the API that a node needs: a Client reads and writes the API, Watches fill a Catalogue,
// and the Catalogue tracks which Services have changed. It does not decide how Services are served.
//
// Goroutines share only the Catalogue. It is filled under its lock, and its objects never change. Objects are trimmed before
// they are stored.
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

// Change describes the changes of a Service since the last Take.
type Change struct {
	// Noticed is when the first change was received.
	Noticed time.Time
	// Triggered has the earliest trigger times of changed slices and groups.
	Triggered []time.Time
	// HandOver has the resource versions of groups to acknowledge.
	HandOver []uint64
}

// Before joins a change with an earlier one.
func (c *Change) Before(earlier *Change) *Change {
	if earlier == nil {
		return c
	}
	return &Change{Noticed: earlier.Noticed, Triggered: earliest(append(earlier.Triggered, c.Triggered...))}
}

// MostTriggered bounds the trigger times of a waiting Service. Each is one observation of the latency.
const MostTriggered = 100

// earliest returns the first MostTriggered times. It may sort its argument.
func earliest(times []time.Time) []time.Time {
	if len(times) <= MostTriggered {
		return times
	}
	slices.SortFunc(times, time.Time.Compare)
	return times[:MostTriggered]
}

// Changes has the changes since the last Take.
type Changes struct {
	Services map[types.NamespacedName]*Change
	// Node means that the own node or the zone of the groups has changed.
	Node bool
	// Reserved means that the addresses of the cluster have changed.
	Reserved bool
	// VersionsReset means that earlier resource versions are void.
	VersionsReset bool
}

func newChanges() *Changes {
	return &Changes{Services: map[types.NamespacedName]*Change{}}
}

// Empty reports whether nothing has changed.
func (c *Changes) Empty() bool {
	return len(c.Services) == 0 && !c.Node && !c.Reserved && !c.VersionsReset
}

// Catalogue has the objects of the API by Service, and the changed Services. Its objects never change.
type Catalogue struct {
	clock clock.PassiveClock
	// notice is called after each change, by any goroutine. It must not use the catalogue.
	notice func()

	mu       sync.Mutex
	services map[types.NamespacedName]*corev1.Service
	groups   *indexed[*v1alpha1.EndpointGroup]
	slices   *indexed[*discoveryv1.EndpointSlice]
	node     *corev1.Node
	// zone is the zone of the groups.
	zone string
	// ranges has the ranges of cluster IPs by object, and others the published addresses of all nodes.
	ranges  map[string][]netip.Prefix
	others  published
	listed  map[string]uint64 // the resource version of the last list, by resource
	changes *Changes
}

// NewCatalogue returns an empty catalogue. It calls notice after each change, in any goroutine. notice must not use the
// catalogue.
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

// Take returns the changes, which the caller must handle.
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

// HasVersionsReset reports whether Take would return Changes.VersionsReset.
func (c *Catalogue) HasVersionsReset() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changes.VersionsReset
}

// Entry is a Service, nil if unknown, with its groups and slices.
type Entry struct {
	Service *corev1.Service
	Groups  []*v1alpha1.EndpointGroup
	Slices  []*discoveryv1.EndpointSlice
}

// Entry returns a Service with its groups and slices.
func (c *Catalogue) Entry(service types.NamespacedName) Entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Entry{c.services[service], c.groups.of(service), c.slices.of(service)}
}

// Names returns the names of all Services, and of unknown Services with groups.
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

// Count returns the number of objects of a resource.
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

// Position returns the own node, nil if unknown, and the zone of the groups.
func (c *Catalogue) Position() (node *corev1.Node, zone string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.node, c.zone
}
