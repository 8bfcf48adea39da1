// Package groups decides the next step towards the EndpointGroups that deliver a plan. It
// reads objects and returns values; it writes nothing and knows no clock.
//
// # What groups say
//
// A proxy reads groups one by one: a node uses every group that it sees, which are those
// without the label not-for.vicinity.dev/ of its zone. The exception is a group that is
// localOnly, does not name the node's zone among its consumers and has an endpoint at home
// there: of that the node uses only what is on the node itself. Each zone sees a group, if
// only an empty one. Among groups with the same tiers a node uses the nearest tier. What
// groups with different tiers give it adds up, which happens only while tiers change.
//
// Groups of a headless Service are for DNS, and have a label by which no proxy sees them. DNS
// answers a client by what a node at its place would use, without what is for local traffic
// policies only.
//
// An endpoint is in one group. It stays there while its consumers are those of the group,
// or become those of the group as a whole. When consumers change, what zones gain is
// written at once; what they lose, as far as it is still ready, is held for Input.Grace.
// In that time an endpoint is in two groups, or a group has consumers that leave it. An
// annotation says which and since when, so that the groups always tell the last plan.
//
// # How a step is made
//
// Four functions follow one another for each address family, each from values to a value:
//
//	desired   slices and plan: which endpoints can share a group, and for whom
//	match     these and the groups that exist: which group has which endpoint
//	hold      these and the time: what each group says in this step
//	order     the writes, in an order in which each is safe
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

// Input is all that the groups of one Service depend on.
type Input struct {
	Service *corev1.Service
	Slices  []*discoveryv1.EndpointSlice
	// Groups are those that exist.
	Groups  []*v1alpha1.EndpointGroup
	Cluster *intent.Cluster
	Intent  allocate.Intent
	// Plans are those of the families that have a slice.
	Plans []Plan
	// Size is the number of endpoints that a group is filled to, DefaultSize if it is zero.
	Size int
	// Grace is how long zones keep endpoints that the plan takes from them.
	Grace time.Duration
	Now   time.Time
	// HandOver says that kube-proxy serves the Service too, so that proxies have to
	// acknowledge what they have programmed.
	HandOver bool
}

// Plan is what is planned for one address family.
type Plan struct {
	Family corev1.IPFamily
	Region allocate.Region
	Plan   allocate.Plan
	// Assigned has the zones that use each ready endpoint, by address.
	Assigned map[string]allocate.ConsumerSet
	// Skips are the places whose nodes do not use their own endpoints before others.
	Skips []allocate.Skip
}

// Changes are the writes of one step. Written one after another, creations first, then
// updates, then deletions, no write takes from a zone the last endpoint that it may use
// while the step has others for it. Any beginning of the step is therefore safe: a writer
// stops at the first failure, reads again, and asks for another step.
type Changes struct {
	// Create are new groups, without a name but with the beginning of one.
	Create []*v1alpha1.EndpointGroup
	// Update are groups that exist, with the resource version that they were read at.
	Update []*v1alpha1.EndpointGroup
	// Delete are groups that no node needs to see.
	Delete []*v1alpha1.EndpointGroup

	// Again says that another step follows as soon as this one is written.
	Again bool
	// After is how long it takes until a zone may lose what it keeps for a while, zero if
	// there is nothing.
	After time.Duration
	// Notes are sentences about what groups cannot carry.
	Notes []string
}

// Writes is the number of objects that the step writes.
func (c Changes) Writes() int {
	return len(c.Create) + len(c.Update) + len(c.Delete)
}

// Next is the next step.
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
		var existing []*v1alpha1.EndpointGroup
		rest = slices.DeleteFunc(rest, func(g *v1alpha1.EndpointGroup) bool {
			if g.Spec.AddressType != family {
				return false
			}
			existing = append(existing, g)
			return true
		})
		want := desired(&in, &plan)
		changes.add(order(hold(want, match(want, existing))), want.notes)
	}
	// What is left is of a family that the Service does not have any more.
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
