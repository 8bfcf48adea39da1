// Package disruption decides whether a pod may be evicted now, by a budget for each
// failure domain. The webhook of evictions, the responder to eviction requests, explain and
// rollouts all ask Decide, so they cannot disagree.
//
// The invariant: no admitted eviction exceeds the budget. This holds for the pods that are down in a
// domain, the pods that are down in all domains, and the disturbed domains. It holds for any number of deciders, in
// any order, and wherever one of them ends, if each decider
//
//   - decides by a State whose reservations are those of the stored budget,
//   - has seen all pods at one moment, at least as new as the version that the budget
//     names: reservations of pods that were gone by then are no longer listed. It has also seen
//     a version as new as the pod that it decides about,
//   - stores what Decide says to reserve before it answers, with a write that fails if
//     the stored budget changed meanwhile,
//   - raises, with the same write, the version that the budget names: to that of the seen pods if it
//     drops reservations of gone pods (Release), and to that of the pod if it
//     reserves. Otherwise a decider that has not seen the pod yet would take it for gone,
//   - gives up only its own reservations, and only while no other request for the same
//     pod was admitted by them (Reservation.Holder),
//   - admits no eviction that takes longer than EvictionTime, by a clock that is less than
//     ClockSkew off those of the others,
//   - treats an expired reservation as over only after a live read of its pod: the pods that it
//     has seen may be older than the eviction,
//   - admits an eviction without asking a limit, because the pod is down already,
//     only if a live read after that of the budget confirms it: others may have counted on the pod.
//
// Pods that go down by themselves, and ZoneShifts, count as soon as they are seen. A ZoneShift disturbs the domains of the
// pods that it takes out of service, but takes no pod down. It does not hold up evictions in these domains.
package disruption

import (
	"time"
)

// Amount is a number of pods, or a percentage of the expected pods.
type Amount struct {
	Value   int
	Percent bool
}

// Of returns the number of pods for one of the domains. A percentage applies to the domain's exact share of the expected pods and is
// rounded up, as a PodDisruptionBudget rounds both minAvailable and maxUnavailable.
func (a Amount) Of(expected, domains int) int {
	if !a.Percent {
		return a.Value
	}
	whole := 100 * max(1, domains)
	return (a.Value*expected + whole - 1) / whole
}

// Budget has the limits. Exactly one of MinAvailable and MaxUnavailable is set. The limits hold for each group of pods separately.
type Budget struct {
	Name string // namespace/name
	// Keys are the node labels whose values name the domains. Only sentences use them.
	Keys []string
	// Free lists the domains that NotIn leaves out while MaxUnavailable is 0: they are emptied one after another. Only sentences use it.
	Free []string
	// Advances means that "vicinity budget advance" can free another domain.
	Advances bool
	// MinAvailable and MaxUnavailable hold for each domain.
	MinAvailable, MaxUnavailable *Amount
	MaxTotal                     *Amount // pods that may be down in all domains together
	MaxDomains                   *int    // domains that may be disturbed
	// Settle is the time that pods must be ready before their domain counts as undisturbed.
	Settle time.Duration
	// AlwaysAllowUnhealthy allows the eviction of pods that are not ready at any time.
	AlwaysAllowUnhealthy bool
	BreakGlass           BreakGlass
	// Invalid says why the budget is invalid. An invalid budget admits no eviction.
	Invalid string
}

// BreakGlass admits every eviction until a time.
type BreakGlass struct {
	Until  time.Time
	Reason string
}

// State is the whole input of a decision.
type State struct {
	Budget Budget
	// Domains are the domains that have or can have pods, sorted. A budget without keys has the one domain "".
	Domains []string
	Owners  []Owner
	// Pods are all selected pods, sorted by name.
	Pods         []Pod
	Reservations []Reservation
	// Disturbed are the disturbed domains of the stored status. If a missing pod could belong to several domains, it belongs to these.
	Disturbed []DomainKey
}

// DomainKey names a domain of a group.
type DomainKey struct {
	Group, Domain string
}

// Owner asks for pods. A pod without a listed owner is expected as it is.
type Owner struct {
	ID       string // kind/name, also shown to people
	Replicas int
	// Group is the group of its pods. With ManyGroups they are in several, and a missing pod may belong to any.
	Group      string
	ManyGroups bool
}

// Place says where a pod is, from the view of a budget.
type Place int

// The places.
const (
	Unplaced  Place = iota // not scheduled yet, or on a node that was deleted
	Covered                // in a domain
	Uncovered              // on a node outside the budget
)

// Pod is a pod that the budget selects.
type Pod struct {
	UID, Name string
	Owner     string // ID of the Owner, empty if none is known
	Group     string
	Place     Place
	// Domain is the domain of the pod's node. A pod without a node has a domain if it fits no other.
	Domain string

	Pending     bool // not running yet
	Finished    bool // succeeded or failed
	Terminating bool
	Ready       bool
	ReadySince  time.Time

	Shift Shift
}

// Shift is a ZoneShift that takes the node of a pod out of service until a time.
type Shift struct {
	Name  string
	Until time.Time
}

// isHealthy reports whether the pod serves.
func (p *Pod) isHealthy() bool { return p.Ready && !p.Pending && !p.Terminating && !p.Finished }

// Reservation is an admitted eviction. Its pod counts as down until it expires or is no longer listed.
type Reservation struct {
	UID, Pod string
	Expires  time.Time
	// Holder is the request that made the reservation, and that may give it up if another webhook denies the eviction. It is empty if
	// several requests were admitted by the reservation: none of them knows the outcome of the others.
	Holder string
}

const (
	// ReservationTime is how long a reservation lasts. A retry never extends it. Otherwise a pod whose eviction is always refused
	// elsewhere would hold it forever.
	ReservationTime = 2 * time.Minute
	// EvictionTime bounds the time that an API server works on a request.
	EvictionTime = time.Minute
	// ClockSkew bounds the difference between the clocks of deciders.
	ClockSkew = 10 * time.Second
)

func (r *Reservation) isActive(now time.Time) bool { return now.Before(r.Expires) }

// outlastsEviction reports whether an eviction admitted now ends before the reservation does.
func (r *Reservation) outlastsEviction(now time.Time) bool {
	return !now.Add(EvictionTime + ClockSkew).After(r.Expires)
}

// Release divides the reservations into those to keep and those whose pods are gone or going. A write may drop the latter, expired or
// not, if it also stores the version of the pods: other deciders may have seen older pods. Neither result has reservations that expired
// before their pods went.
func Release(s *State, now time.Time) (kept, gone []Reservation) {
	if len(s.Reservations) == 0 {
		return nil, nil
	}
	present := make(map[string]bool, len(s.Pods))
	for i := range s.Pods {
		if p := &s.Pods[i]; !p.Terminating && !p.Finished {
			present[p.UID] = true
		}
	}
	for _, r := range s.Reservations {
		switch {
		case !present[r.UID]:
			gone = append(gone, r)
		case r.isActive(now):
			kept = append(kept, r)
		}
	}
	return kept, gone
}
