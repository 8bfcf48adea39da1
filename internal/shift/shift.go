package shift

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/routing/intent"
	"vicinity.dev/vicinity/internal/topology"
)

// Shift is the part of a ZoneShift that routing follows at one moment.
type Shift struct {
	// Name is that of the ZoneShift.
	Name       string
	Key, Value string
	// Until is when it ends.
	Until time.Time
	// MaxOverload is the load in percent that endpoints outside may get on top.
	MaxOverload int
	// Weight is the share of their connections that the domain's endpoints still get from vicinity-proxy: from 0 to 1.
	Weight float64
	// Drained says that connections to the domain's endpoints end. vicinity-proxy does that.
	Drained bool
	// Returning says that the time is over. Only vicinity-proxy still ramps its endpoints up.
	Returning bool
}

// Begun returns the shift of a ZoneShift after its ramp, whether or not it is accepted.
func Begun(zs *v1alpha1.ZoneShift) Shift {
	return Shift{Name: zs.Name, Key: zs.Spec.From.Key, Value: zs.Spec.From.Value, Until: Until(zs), MaxOverload: int(zs.Spec.MaxOverload)}
}

// Of returns the shift of an accepted ZoneShift, and how long it stays as it is, zero for ever. It is nil before and
// after.
func Of(zs *v1alpha1.ZoneShift, now time.Time) (s *Shift, lasts time.Duration) {
	accepted := acceptanceOf(zs)
	if accepted == nil {
		return nil, 0
	}
	begun := Begun(zs)
	s = &begun
	ramp, until := rampOf(zs), Until(zs)
	passed := min(now.Sub(accepted.LastTransitionTime.Time), until.Sub(accepted.LastTransitionTime.Time))
	down, toDown := progress(passed, ramp)
	if left := until.Sub(now); left > 0 {
		s.Weight, lasts = 1-down, left
		if toDown > 0 {
			lasts = min(lasts, toDown)
		}
		if drain := zs.Spec.DrainConnections; drain != nil {
			toDrain := ramp + drain.Duration - passed
			if s.Drained = toDrain <= 0; !s.Drained {
				lasts = min(lasts, toDrain)
			}
		}
		return s, lasts
	}
	up, toUp := progress(now.Sub(until), ramp)
	if up >= 1 {
		return nil, 0
	}
	s.Returning, s.Weight = true, max(up, 1-down)
	return s, toUp
}

// acceptanceOf returns the condition of an accepted ZoneShift, nil for others.
func acceptanceOf(zs *v1alpha1.ZoneShift) *metav1.Condition {
	accepted := meta.FindStatusCondition(zs.Status.Conditions, v1alpha1.Accepted)
	if accepted == nil || accepted.Status != metav1.ConditionTrue || zs.DeletionTimestamp != nil {
		return nil
	}
	return accepted
}

// OfNodes returns the accepted ZoneShift that takes any of the nodes out of service until the latest time, nil without one. It
// may be over.
func OfNodes(all []*v1alpha1.ZoneShift, nodes ...topology.Labels) (last *v1alpha1.ZoneShift) {
	for _, zs := range all {
		domain := Begun(zs)
		holds := func(node topology.Labels) bool { return domain.Holds(node, node[topology.Zone]) }
		isLater := last == nil || cmp.Or(Until(zs).Compare(Until(last)), strings.Compare(last.Name, zs.Name)) > 0
		if acceptanceOf(zs) != nil && isLater && slices.ContainsFunc(nodes, holds) {
			last = zs
		}
	}
	return last
}

// Same reports whether two versions of a ZoneShift take its nodes out of service until the same time.
func Same(a, b *v1alpha1.ZoneShift) bool {
	return Until(a).Equal(Until(b)) && (acceptanceOf(a) == nil) == (acceptanceOf(b) == nil)
}

// For returns the shifts that a Service follows, by its labels and those of its namespace, and how long they stay as they
// are, zero for ever.
func For(all []*v1alpha1.ZoneShift, service, namespace map[string]string, now time.Time) (list []Shift, lasts time.Duration) {
	for _, zs := range all {
		s, left := Of(zs, now)
		if s == nil || !Selects(zs, service, namespace) {
			continue
		}
		list = append(list, *s)
		if left > 0 && (lasts == 0 || left < lasts) {
			lasts = left
		}
	}
	return list, lasts
}

// Domain names the domain.
func (s *Shift) Domain() string { return s.Key + "=" + s.Value }

// rampSteps is the number of steps of a ramp. Each step writes the groups of the Services that move.
const rampSteps = 10

// progress returns the finished part of a ramp, and how long it stays so, zero for ever.
func progress(passed, ramp time.Duration) (part float64, lasts time.Duration) {
	if passed >= ramp {
		return 1, 0
	}
	step := max(ramp/rampSteps, 1)
	done := max(passed, 0) / step
	return min(float64(done)/rampSteps, 1), (done+1)*step - passed
}

func rampOf(zs *v1alpha1.ZoneShift) time.Duration {
	if zs.Spec.Ramp == nil {
		return 0
	}
	return zs.Spec.Ramp.Duration
}

// Until returns when a ZoneShift ends.
func Until(zs *v1alpha1.ZoneShift) time.Time {
	return zs.CreationTimestamp.Add(zs.Spec.For.Duration)
}

// Holds reports whether an endpoint is in the domain. The zone of an endpoint counts if its node is unknown.
func (s *Shift) Holds(node topology.Labels, zone string) bool {
	if s.Key == topology.Zone {
		return zone == s.Value
	}
	return node[s.Key] == s.Value
}

// HoldsEndpoint reports whether an endpoint of a slice is in the domain.
func (s *Shift) HoldsEndpoint(e *discoveryv1.Endpoint, cluster *intent.Cluster) bool {
	node := ""
	if e.NodeName != nil {
		node = *e.NodeName
	}
	return s.Holds(cluster.Labels(node), cluster.ZoneOf(e))
}

// Selects reports whether a ZoneShift is for a Service. Selectors that are invalid select nothing.
func Selects(zs *v1alpha1.ZoneShift, service, namespace map[string]string) bool {
	matches := func(selector *metav1.LabelSelector, of map[string]string) bool {
		if selector == nil {
			return true
		}
		read, err := metav1.LabelSelectorAsSelector(selector)
		return err == nil && read.Matches(labels.Set(of))
	}
	return matches(zs.Spec.Services.Selector, service) && matches(zs.Spec.Services.NamespaceSelector, namespace)
}

// Reasons of the condition Accepted.
const (
	ReasonAccepted      = "Accepted"
	ReasonUnknownDomain = "UnknownDomain"
	ReasonOnlyDomain    = "OnlyDomain"
	ReasonOverlaps      = "Overlaps"
	ReasonOverload      = "Overload"
	ReasonWaiting       = "Waiting"
)

// Reasons of the condition InForce.
const (
	ReasonStored      = "Stored"
	ReasonWriting     = "Writing"
	ReasonIgnored     = "HintsIgnored"
	ReasonReturning   = "Returning"
	ReasonEnded       = "Ended"
	ReasonNotAccepted = "NotAccepted"
)

// Fault returns why a ZoneShift cannot be accepted, empty if it can. Others are the other ZoneShifts.
func Fault(zs *v1alpha1.ZoneShift, others []*v1alpha1.ZoneShift, cluster *intent.Cluster, now time.Time) (reason, message string) {
	from := zs.Spec.From
	domains := cluster.Domains(from.Key)
	inside := domains[from.Value]
	switch {
	case !now.Before(Until(zs)):
		return ReasonEnded, "spec.for: the time was over at " + Until(zs).UTC().Format(time.RFC3339)
	case len(domains) == 0:
		return ReasonUnknownDomain, fmt.Sprintf("spec.from.key: no node has the label %s", from.Key)
	case len(inside) == 0:
		return ReasonUnknownDomain, fmt.Sprintf("spec.from.value: no node has the label %s=%s; its values are %s",
			from.Key, from.Value, plaintext.FirstOf(slices.Sorted(maps.Keys(domains)), mostNamed))
	case len(inside) == len(cluster.Names()):
		return ReasonOnlyDomain, fmt.Sprintf("spec.from: every node has the label %s=%s, so there is nowhere to go", from.Key, from.Value)
	}
	for _, other := range others {
		if running, _ := Of(other, now); other.Name == zs.Name || running == nil {
			continue
		}
		for _, node := range cluster.Domains(other.Spec.From.Key)[other.Spec.From.Value] {
			if slices.Contains(inside, node) {
				return ReasonOverlaps, fmt.Sprintf("spec.from: node %s is in the domain of ZoneShift %s, too; delete that one first", node, other.Name)
			}
		}
	}
	return "", ""
}

// Overloads returns why a ZoneShift cannot be accepted that moves Services with these ready endpoints, empty if it can.
func Overloads(zs *v1alpha1.ZoneShift, inside, outside int) (reason, message string) {
	bound := int(zs.Spec.MaxOverload)
	if !Exceeds(inside, outside, bound) {
		return "", ""
	}
	percent, _ := Overload(inside, outside)
	return ReasonOverload, fmt.Sprintf("the Services have %d ready endpoints in the domain and %d outside: these would get %d %% more load, and spec.maxOverload is %d; raise it to shift nevertheless",
		inside, outside, percent, bound)
}

// mostNamed limits the domains that a message names.
const mostNamed = 8
