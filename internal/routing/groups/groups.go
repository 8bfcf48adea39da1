// Package groups decides the next step towards the EndpointGroups that deliver a plan. It reads objects and returns
// values; it writes nothing and knows no clock.
//
// # Which groups a node uses
//
// A node uses every group that its proxy sees: each one without the label not-for.vicinity.dev/ of the node's zone. The
// exception is a localOnly group with an endpoint in the node's zone that does not name the zone among its consumers:
// the node uses only the group's endpoints on the node itself. Each zone sees at least one group, which may be empty. Among groups with the
// same tiers a node uses the nearest tier. Endpoints of groups with different tiers add up, which happens only while
// tiers change.
//
// Groups of a headless Service are for DNS: a label hides them from proxies. DNS gives a client the endpoints that a
// node in its place would use, without those for local traffic policies.
//
// An endpoint is in one group. It stays there while its consumers are those of the group, or become those of the whole
// group. When consumers change, zones gain endpoints at once. Ready endpoints that zones lose are held for Input.Grace:
// meanwhile an endpoint is in two groups, or a group has consumers that leave it. An annotation says which, and since
// when, so the last plan can be read back from the groups.
//
// Groups without endpoints name the endpoints whose connections end. All zones see them: the groups that have these
// endpoints are hidden from most.
//
// # How a step is made
//
// Four pure functions follow one another for each address family:
//
//	desired   slices and plan: which endpoints can share a group, and for whom
//	match     shares and existing groups: which group has which endpoint
//	hold      groups and the time: the content of each group in this step
//	order     writes: an order in which each is safe
package groups

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// Numbers of endpoints in a group.
const (
	DefaultSize = allocate.DefaultSliceSize // that a group is filled to
	MaxSize     = 1000                      // that the API allows
)

// etcd refuses larger objects than mostBytes. An endpoint in a group has at most so many bytes, with the domain of each tier.
const mostBytes, bytesOfEndpoint, bytesOfDomain = 1_000_000, 200, 400

// Input is all that the groups of one Service depend on.
type Input struct {
	Service *corev1.Service
	Slices  []*discoveryv1.EndpointSlice
	// Groups are the existing groups.
	Groups  []*v1alpha1.EndpointGroup
	Cluster *intent.Cluster
	Intent  allocate.Intent
	// Plans are the plans of the families that have a slice.
	Plans []Plan
	// Size is the number of endpoints to fill a group with, DefaultSize if it is zero.
	Size int
	// Grace is how long zones keep endpoints that the plan takes from them.
	Grace time.Duration
	Now   time.Time
	// HandOver says that proxies have to acknowledge what they have programmed.
	HandOver bool
	// IsDrained reports whether connections to an endpoint end. It is nil if they do to none.
	IsDrained func(*v1alpha1.GroupEndpoint) bool
}

// Plan is the plan of one address family.
type Plan struct {
	Family corev1.IPFamily
	Region allocate.Region
	Plan   allocate.Plan
	// Assigned are the zones that use each ready endpoint, by address.
	Assigned map[string]allocate.ConsumerSet
	// Skips are the domains whose nodes do not prefer their own endpoints.
	Skips []allocate.Skip
}

// Changes are the writes of one step: creations first, then updates, then deletions, in order. No write takes from a
// zone the last endpoint that it may use while the step has others for it. So a writer may stop at the first failure,
// read again and ask for another step.
type Changes struct {
	// Create are new groups, with a prefix in place of a name.
	Create []*v1alpha1.EndpointGroup
	// Update are existing groups, with the resource version that they were read at.
	Update []*v1alpha1.EndpointGroup
	// Delete are groups that no node needs to see.
	Delete []*v1alpha1.EndpointGroup

	// Again asks for another step as soon as this one is written.
	Again bool
	// After is how long zones still keep endpoints that they lose, zero if they keep none.
	After time.Duration
	// Notes are sentences about the parts of the plan that groups cannot carry.
	Notes []string
}

// Writes returns the number of objects that the step writes.
func (c Changes) Writes() int {
	return len(c.Create) + len(c.Update) + len(c.Delete)
}

// Next returns the next step.
func Next(in Input) Changes {
	var changes Changes
	rest := slices.DeleteFunc(slices.Clone(in.Groups), func(g *v1alpha1.EndpointGroup) bool {
		return g.DeletionTimestamp != nil
	})
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		plan, planned := in.plan(family)
		if !planned && !slices.Contains(in.Service.Spec.IPFamilies, family) {
			continue
		}
		var existing, draining []*v1alpha1.EndpointGroup
		rest = slices.DeleteFunc(rest, func(g *v1alpha1.EndpointGroup) bool {
			if g.Spec.AddressType != family {
				return false
			}
			if len(g.Spec.Drained) > 0 {
				draining = append(draining, g)
			} else {
				existing = append(existing, g)
			}
			return true
		})
		want := desired(&in, &plan)
		changes.add(order(hold(want, match(want, existing))), want.notes)
		changes.add(order(step{writes: want.drain(draining)}), nil)
	}
	// The rest is of a family that the Service no longer has.
	changes.Delete = append(changes.Delete, rest...)
	return changes
}

func (in *Input) plan(family corev1.IPFamily) (plan Plan, planned bool) {
	for _, plan := range in.Plans {
		if plan.Family == family {
			return plan, true
		}
	}
	return Plan{Family: family}, false
}

func (c *Changes) add(family Changes, notes []string) {
	c.Create = append(c.Create, family.Create...)
	c.Update = append(c.Update, family.Update...)
	c.Delete = append(c.Delete, family.Delete...)
	c.Again = c.Again || family.Again
	if family.After > 0 && (c.After == 0 || family.After < c.After) {
		c.After = family.After
	}
	for _, note := range notes {
		if !slices.Contains(c.Notes, note) {
			c.Notes = append(c.Notes, note)
		}
	}
}
