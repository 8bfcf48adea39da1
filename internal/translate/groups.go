package translate

import "vicinity.dev/vicinity/internal/allocate"

// NeedOfGroups is what hints can never express of an intent, as the rest of a sentence. It is
// empty if there is nothing.
func NeedOfGroups(intent allocate.Intent) string {
	switch {
	case intent.Tiers.Hard():
		return "requires what hints cannot: where no endpoint is near, a stock proxy uses all of them"
	case intent.Bound != nil && intent.Bound.Algorithm.Weighted():
		return "uses the algorithm " + string(intent.Bound.Algorithm) + ", whose weights hints cannot carry"
	}
	return ""
}
