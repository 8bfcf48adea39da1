package spread

// Place is a domain where the pods of a StatefulSet fit.
type Place struct {
	Name string
	// Usable says that one of its nodes takes pods now.
	Usable bool
}

// Assign returns the domain for a pod of a StatefulSet by its ordinal, false if no domain is usable. The domains are
// sorted by name.
//
// A StatefulSet deletes the highest ordinals first. So ordinals take turns over the domains, and any remaining number is spread
// as evenly as possible. Unusable domains keep their turn. Otherwise the loss of one zone would move the pods of all others.
//
// The ordinals of lost domains take turns over the usable ones from the last to the first. In the other direction, a domain
// would have its own turn right after such an ordinal, and the domains would differ by more than a pod.
func Assign(ordinal int, domains []Place) (name string, ok bool) {
	if ordinal < 0 || len(domains) == 0 {
		return "", false
	}
	round, turn := ordinal/len(domains), ordinal%len(domains)
	if own := domains[turn]; own.Usable {
		return own.Name, true
	}
	var usable []string
	lostBefore := 0 // in the round
	for i, domain := range domains {
		switch {
		case domain.Usable:
			usable = append(usable, domain.Name)
		case i < turn:
			lostBefore++
		}
	}
	if len(usable) == 0 {
		return "", false
	}
	moved := round*(len(domains)-len(usable)) + lostBefore // ordinals that moved before this one
	return usable[len(usable)-1-moved%len(usable)], true
}
