// Package shift decides how a zone, or another domain of nodes, is taken out of service and back. Routing asks it which
// endpoints leave and how far; the controller of routing asks it whether a ZoneShift can be accepted. Replicas of
// vicinity-controller ask it whether they leave themselves.
package shift

// Overload returns how much traffic each endpoint outside a zone gets on top of today's when those inside stop, in
// percent rounded up. It is unlimited if none is outside.
func Overload(inside, outside int) (percent int, unlimited bool) {
	switch {
	case inside == 0:
		return 0, false
	case outside == 0:
		return 0, true
	}
	return ceil(inside*100, outside), false
}

// Exceeds reports whether the overload of the endpoints outside a zone is more than a bound in percent.
func Exceeds(inside, outside, maxOverload int) bool { return inside*100 > maxOverload*outside }

// NeededOutside returns the fewest endpoints outside a zone that do not exceed a bound, which is at least 1.
func NeededOutside(inside, maxOverload int) int { return ceil(inside*100, maxOverload) }

// Replicas returns the fewest replicas that leave the needed endpoints outside, if more of them spread as the present ones do.
func Replicas(replicas, outside, needed int) int { return ceil(needed*replicas, outside) }

func ceil(a, b int) int { return (a + b - 1) / b }
