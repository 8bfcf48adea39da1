package disruption

import "time"

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
