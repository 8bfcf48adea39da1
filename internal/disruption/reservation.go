package disruption

import "time"

// Reservation is an eviction that was admitted. While it is listed and has not expired, its
// pod counts as down.
type Reservation struct {
	UID, Pod string
	Expires  time.Time
	// Holder is the request that made it, and may give it up if it is denied elsewhere. It is
	// empty if more than one was admitted by it: none of them knows what became of the others.
	Holder string
}

const (
	// ReservationTime is how long a reservation lasts. A retry never extends it: a pod that
	// something else keeps from being evicted would hold it for ever.
	ReservationTime = 2 * time.Minute
	// EvictionTime is how long an API server works on a request at most.
	EvictionTime = time.Minute
	// ClockSkew is how far the clocks of deciders may be apart.
	ClockSkew = 10 * time.Second
)

// isActive reports whether the reservation counts.
func (r *Reservation) isActive(now time.Time) bool { return now.Before(r.Expires) }

// lastsFor reports whether an eviction that is admitted now ends before the reservation does.
func (r *Reservation) lastsFor(now time.Time) bool {
	return !now.Add(EvictionTime + ClockSkew).After(r.Expires)
}

// Release divides the reservations of a budget into those to keep, and those whose pods have
// gone or are about to go, which may be dropped if the version of the pods is stored with the
// same write. It does not matter whether the latter have expired: others may have seen less. In
// neither are those that have expired and whose pods are there.
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
