package spread

// Place is a domain that the pods of a StatefulSet can be in.
type Place struct {
	Name string
	// Usable says that a node of it takes pods now.
	Usable bool
}

// Assign is the domain for a pod of a StatefulSet by its ordinal, false if no domain is usable. The domains are
// sorted by name.
//
// A StatefulSet deletes the highest ordinals first, so they take turns over the domains: whatever number of them stays
// is spread as evenly as can be. Domains that are not usable keep their turn. Otherwise a zone that is lost for a while would
// have the pods of all other zones made in new places. Each of its own ordinals is given to another domain, in turn as well.
func Assign(ordinal int, domains []Place) (name string, ok bool) {
	if ordinal < 0 || len(domains) == 0 {
		return "", false
	}
	round, turn := ordinal/len(domains), ordinal%len(domains)
	if own := domains[turn]; own.Usable {
		return own.Name, true
	}
	var usable []string
	for _, domain := range domains {
		if domain.Usable {
			usable = append(usable, domain.Name)
		}
	}
	if len(usable) == 0 {
		return "", false
	}
	return usable[round%len(usable)], true
}
