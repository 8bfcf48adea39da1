// Package shift decides how a zone, or another domain of nodes, is taken out of service and back. Routing asks it which
// endpoints leave and how far; the controller of routing asks it whether a ZoneShift can be accepted.
package shift

// Overload returns the load in percent that each endpoint outside a domain gets on top if those inside leave. Without an
// endpoint outside there is no bound.
func Overload(inside, outside int) (percent float64, bounded bool) {
	if inside == 0 {
		return 0, true
	}
	if outside == 0 {
		return 0, false
	}
	return 100 * float64(inside) / float64(outside), true
}

// Exceeds reports whether a shift gives the endpoints outside more load on top than a bound in percent.
func Exceeds(inside, outside, bound int) bool { return inside*100 > bound*outside }

// Needed returns the number of endpoints outside for which a shift keeps a bound in percent.
func Needed(inside, bound int) int { return (inside*100 + bound - 1) / bound }
