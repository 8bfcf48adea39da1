// Package disruption decides whether a pod may be evicted now, by a budget for each
// failure domain. The webhook of evictions, the responder to eviction requests, explain and
// rollouts all ask Decide, so that these cannot disagree.
//
// The invariant: however many deciders there are, whatever order they act in and wherever
// one of them ends, no eviction is admitted after which the pods that are down in a domain,
// or in all of them, or the domains that are disturbed, exceed the budget. It holds
// if each decider
//
//   - decides by a State whose reservations are those of the stored budget,
//   - has seen the pods, all at one moment, at least as new as the version that the budget
//     names, since the reservations of pods that had gone by then are not listed any more; and
//     as new as the pod that it decides about,
//   - stores what Decide says to reserve before it answers, with a write that fails if
//     the stored budget changed meanwhile,
//   - raises the version that the budget names, with the same write, to that of the pods it
//     has seen if it drops reservations of pods that have gone (Release), and to that of the
//     pod if it reserves: who has not seen that pod yet would take it for one that has gone,
//   - gives up no reservation but its own, and that only while no other request for the same
//     pod was admitted by it (Reservation.Holder),
//   - admits no eviction that takes longer than EvictionTime, by a clock that is less than
//     ClockSkew off those of the others,
//   - takes a reservation that has expired for over only after a live read of its pod: what it
//     has seen of the pods may be older than the eviction,
//   - admits an eviction for which no limit is asked, since the pod or its unit is down already,
//     only if a live read after that of the budget says so, too: others may have counted on the pod.
//
// Pods that go down by themselves are counted as soon as they are seen.
package disruption

import (
	"time"
)

// Amount is a number of pods, or a percentage of those that are expected.
type Amount struct {
	Value   int
	Percent bool
}

// Of is the number of pods in one of the domains, of all expected pods. A percentage is taken of a domain's exact share
// and rounded up, as a PodDisruptionBudget rounds minAvailable and maxUnavailable alike.
func (a Amount) Of(expected, domains int) int {
	if !a.Percent {
		return a.Value
	}
	whole := 100 * max(1, domains)
	return (a.Value*expected + whole - 1) / whole
}

// Budget says what is allowed, with exactly one of MinAvailable and MaxUnavailable. It holds for each group of pods by
// itself.
type Budget struct {
	Name string // namespace/name
	// Keys are the node labels whose values are the domains, for sentences only.
	Keys []string
	// MinAvailable and MaxUnavailable are for each domain.
	MinAvailable, MaxUnavailable *Amount
	MaxTotal                     *Amount // of pods that are down, in all domains
	MaxDomains                   *int    // that are disturbed
	// Settle is how long pods must be ready before their domain counts as undisturbed.
	Settle time.Duration
	// AlwaysAllowUnhealthy allows the eviction of pods that are not ready at any time.
	AlwaysAllowUnhealthy bool
	// BreakGlass lets everything through until its time.
	BreakGlass BreakGlass
	// Invalid says why the budget makes no sense. No pod of it may be evicted then.
	Invalid string
}

// BreakGlass lets every eviction through for a while.
type BreakGlass struct {
	Until  time.Time
	Reason string
}

// State is all that a decision depends on.
type State struct {
	Budget Budget
	// Domains are the sorted domains that have or can have pods. A budget without keys has the one domain "".
	Domains []string
	Owners  []Owner
	// Pods are all selected pods, by name.
	Pods         []Pod
	Reservations []Reservation
	// Disturbed are the domains that the stored status has as disturbed. If several domains could lack a pod, these are
	// the ones that do.
	Disturbed []DomainKey
}

// DomainKey names a domain of a group.
type DomainKey struct {
	Group, Domain string
}

// Owner asks for pods. A pod whose owner is not listed is expected as it is.
type Owner struct {
	ID       string // kind/name, for people too
	Replicas int
	// Group is the group of its pods. With ManyGroups its pods are in several, and a missing pod may be of any.
	Group      string
	ManyGroups bool
}

// Place says whether a budget covers the node of a pod.
type Place int

// The places.
const (
	Unplaced  Place = iota // not scheduled yet, or on a node that was deleted
	Covered                // in a domain
	Uncovered              // on a node that the budget does not cover
)

// Pod is a pod that the selector of a budget matches.
type Pod struct {
	UID, Name string
	Owner     string // ID of the Owner, empty if none is known
	Group     string
	Place     Place
	// Domain is the domain of the pod's node. A pod without a node has one if it can only go there.
	Domain string
	// Unit, if not empty, names a set of pods that can only be disrupted together. It counts as one pod in each domain
	// that has pods of it.
	Unit string

	Pending     bool // not running yet
	Finished    bool // succeeded or failed
	Terminating bool
	Ready       bool
	ReadySince  time.Time
}

// isHealthy reports whether the pod serves.
func (p *Pod) isHealthy() bool { return p.Ready && !p.Pending && !p.Terminating && !p.Finished }

// Reservation is an admitted eviction. Its pod counts as down while it is listed and has not expired.
type Reservation struct {
	UID, Pod string
	Expires  time.Time
	// Holder is the request that made it, which may give it up if another webhook denies the eviction. It is empty if
	// more than one request was admitted by it: none of them knows what became of the others.
	Holder string
}

const (
	// ReservationTime is how long a reservation lasts. A retry never extends it: otherwise a pod whose eviction
	// something else refuses would hold it for ever.
	ReservationTime = 2 * time.Minute
	// EvictionTime is the longest time that an API server works on a request.
	EvictionTime = time.Minute
	// ClockSkew is how far the clocks of deciders may be apart.
	ClockSkew = 10 * time.Second
)

// isActive reports whether the reservation counts.
func (r *Reservation) isActive(now time.Time) bool { return now.Before(r.Expires) }

// lastsFor reports whether an eviction admitted now ends before the reservation does.
func (r *Reservation) lastsFor(now time.Time) bool {
	return !now.Add(EvictionTime + ClockSkew).After(r.Expires)
}

// Release divides the reservations into those to keep and those whose pods have gone or are about to go. The latter may
// be dropped, expired or not, if the version of the pods is stored with the same write, since others may have seen
// less. Neither result has reservations that expired while their pods are there.
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
