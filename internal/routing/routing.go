// Package routing decides what the EndpointSlices and EndpointGroups of a Service should say. The controller and
// the commands that explain it call it, so they decide alike.
//
// It reads objects and returns values. It never changes its input, which may be shared with a cache, and knows no
// clock and no API. The controller decides when to write, and what to do when a write fails.
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
	"vicinity.dev/vicinity/internal/shift"
)

// Input is all that the decision about one Service depends on.
type Input struct {
	Service *corev1.Service
	// Slices are all slices of the Service, from any manager.
	Slices []*discoveryv1.EndpointSlice
	// Groups are the existing groups of the Service.
	Groups  []*v1alpha1.EndpointGroup
	Cluster *intent.Cluster
	// Policies are the policies of the Service's namespace.
	Policies []*v1alpha1.RoutingPolicy
	// Defaults are the ClusterRoutingPolicies that select the Service's namespace.
	Defaults []*v1alpha1.ClusterRoutingPolicy
	Settings Settings
	// Shifts are the zone shifts that select the Service.
	Shifts []shift.Shift
	// Last is the previous decision, if the caller has it. It counts while not all of it is written, and while caches
	// are behind. Without it the previous decision is read from the slices, the groups and the Service's condition.
	Last *Decision
	// Renew asks for a new plan even if the previous one can be kept.
	Renew bool

	// Planner has buffers that successive decisions reuse, one decision at a time. It is optional.
	Planner *allocate.Planner

	// discarded are the families whose previous plan is not kept.
	discarded []corev1.IPFamily
}

// Settings are the choices of a cluster's administrator.
type Settings struct {
	// TakeOverAuto asks Vicinity to plan for topology-mode: Auto. Only hints deliver that plan.
	TakeOverAuto bool
	// GroupsByDefault delivers plans by groups where neither the Service nor a policy names a delivery.
	GroupsByDefault bool
	// GroupSize is the number of endpoints to fill a group with.
	GroupSize int
	// ShrinkGrace is how long zones keep endpoints that a new plan takes from them.
	ShrinkGrace time.Duration
	// WithoutGroups and WithoutHints switch a way of delivery off.
	WithoutGroups, WithoutHints bool
	// WithoutRouting says that the controller routes no Services. Decisions do not depend on it.
	WithoutRouting bool
}

// Options returns the options of requests that are settings. A delivery that is switched off changes no request.
func (s *Settings) Options() intent.Options {
	return intent.Options{TakeOverAuto: s.TakeOverAuto && !s.WithoutHints, GroupsByDefault: s.GroupsByDefault && !s.WithoutGroups}
}

// DefaultShrinkGrace is the default of Settings.ShrinkGrace.
const DefaultShrinkGrace = 10 * time.Second

// DefaultSettings are the settings of a cluster without any given.
func DefaultSettings() Settings {
	return Settings{GroupSize: groups.DefaultSize, ShrinkGrace: DefaultShrinkGrace}
}

// Decision says how the traffic of one Service is routed.
type Decision struct {
	Request  intent.Request
	Delivery allocate.Delivery
	// Shifting is the effect of zone shifts. onlyShifted says that there is no plan without them.
	Shifting    Shifting
	onlyShifted bool
	// Families are the families with a slice, in the order IPv4, IPv6. It is empty if no plan is asked for or possible.
	Families []FamilyDecision
	// Notes are sentences about settings without effect, and about plans that cannot be delivered, with the alternative.
	Notes []string
	// unreported counts notes which only say that a policy which selects the Service has no effect.
	unreported int
	// Undelivered says that there are no hints, because hints cannot express the plan. A note says why.
	Undelivered bool
	// Meanwhile is the decision that hints follow until vicinity-proxy serves a Service with groups. It is nil if there
	// is nothing to hint.
	Meanwhile *Decision
}

// FamilyDecision is the decision for one address family.
type FamilyDecision struct {
	Family corev1.IPFamily
	Region allocate.Region
	// Endpoints are the ready endpoints, in the order of addresses.
	Endpoints []intent.Endpoint
	Plan      allocate.Plan
	Outcome   allocate.Outcome
	// Assigned are the zones that use each ready endpoint, by address.
	Assigned map[string]allocate.ConsumerSet
	// Nodes says which nodes use endpoints of their own domains. It is nil if none does.
	Nodes *allocate.NodePlan
	// Moved counts endpoints that other zones used before.
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
