// Package routing decides, from the objects of a cluster, what the slices and groups
// of a Service should say, so that the controller, the commands that explain it and
// the tests decide alike.
//
// It reads objects and returns values: it never changes what it is given, which may
// be shared with a cache, and it knows no clock and no API. When to write, and what
// to do when a write fails, is the controller's business.
package routing

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/routing/groups"
	"vicinity.dev/vicinity/internal/routing/hints"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// Input is all that a decision about one Service depends on.
type Input struct {
	Service *corev1.Service
	// Slices are all of the Service, whoever manages them.
	Slices []*discoveryv1.EndpointSlice
	// Groups are those of the Service that exist.
	Groups  []*v1alpha1.EndpointGroup
	Cluster *intent.Cluster
	// Policies are those of the Service's namespace.
	Policies []*v1alpha1.RoutingPolicy
	// Defaults are the ClusterRoutingPolicies that choose the Service's namespace.
	Defaults []*v1alpha1.ClusterRoutingPolicy
	Settings Settings
	// Last is the decision before this one, if the caller made it. It is needed while
	// not all of it is written, and where caches are behind; without it the slices,
	// the groups and the Service's condition say what was decided.
	Last *Decision
	// Renew asks for a new plan also where the previous one can be kept.
	Renew bool

	// Planner has memory that one decision at a time uses, and that grows with the first
	// ones. Without it each decision takes its own.
	Planner *allocate.Planner

	// anew are the families of which plans are made as if there were none that could be kept.
	anew []corev1.IPFamily
}

// Settings are what the administrator of a cluster chooses.
type Settings struct {
	// TakeOverAuto has Vicinity do what topology-mode: Auto asks for, which takes hints.
	TakeOverAuto bool
	// GroupSize is the number of endpoints that a group is filled to.
	GroupSize int
	// ShrinkGrace is how long zones keep endpoints that the plan takes from them.
	ShrinkGrace time.Duration
	// WithoutGroups says that delivery by groups is switched off, and WithoutHints that
	// delivery by hints is.
	WithoutGroups, WithoutHints bool
}

// TakesOverAuto reports whether Vicinity does what topology-mode: Auto asks for. Auto is delivered by hints only.
func (s *Settings) TakesOverAuto() bool { return s.TakeOverAuto && !s.WithoutHints }

// DefaultShrinkGrace is the default of Settings.ShrinkGrace.
const DefaultShrinkGrace = 10 * time.Second

// DefaultSettings are the settings of a cluster whose administrator says nothing.
func DefaultSettings() Settings {
	return Settings{GroupSize: groups.DefaultSize, ShrinkGrace: DefaultShrinkGrace}
}

// Decision is what is decided about one Service.
type Decision struct {
	Request  intent.Request
	Delivery allocate.Delivery
	// Families are in the order IPv4, IPv6: those of which there is a slice. There
	// are none if no plan can be made, or none is asked for.
	Families []FamilyDecision
	// Notes are sentences about what has no effect, and what cannot be delivered and
	// what to do instead.
	Notes []string
	// unreported is how many of the notes say only that a policy which chose the Service
	// has no effect.
	unreported int
	// Undelivered says that hints cannot express what is asked for, so that there are
	// none. A note says why.
	Undelivered bool
	// Meanwhile is what hints follow until vicinity-proxy serves a Service whose plan
	// groups deliver. It is nil if they have nothing to say.
	Meanwhile *Decision
}

// FamilyDecision is the part of a decision that is about one address family.
type FamilyDecision struct {
	Family corev1.IPFamily
	Region allocate.Region
	// Endpoints are the ready ones, in the order of addresses.
	Endpoints []intent.Endpoint
	Plan      allocate.Plan
	Outcome   allocate.Outcome
	// Assigned has for each ready endpoint, by address, the zones that use it.
	Assigned map[string]allocate.ConsumerSet
	// Nodes is what nodes that look for endpoints of their own make of the plan, nil if
	// they do not.
	Nodes *allocate.NodePlan
	// Moved counts endpoints that were used by other zones before.
	Moved int

	hints hints.Plan
}

func (d *Decision) family(family corev1.IPFamily) *FamilyDecision {
	if d == nil {
		return nil
	}
	for i := range d.Families {
		if d.Families[i].Family == family {
			return &d.Families[i]
		}
	}
	return nil
}
