package explain

import (
	"fmt"
	"strings"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/topology"
)

// Intent describes an intent, as in "the same zone, then anywhere; divided by optimal, overload below 50 %".
func Intent(intent allocate.Intent) string {
	if len(intent.Tiers) == 0 && intent.Bound == nil {
		return "nothing: all zones use all endpoints"
	}
	var places []string
	for _, key := range intent.Tiers {
		if key == topology.Anywhere {
			places = append(places, "anywhere")
			continue
		}
		places = append(places, "the same "+keyName(key))
	}
	switch {
	case len(intent.Tiers) == 0:
		places = append(places, "anywhere")
	case intent.Tiers.Hard():
		places = append(places, "nowhere else")
	}
	words := strings.Join(places, ", then ")
	switch bound := intent.Bound; {
	case bound == nil:
	case bound.Algorithm == allocate.Flow:
		words += fmt.Sprintf("; by %s: own endpoints first, the excess by weights", bound.Algorithm)
	default:
		words += fmt.Sprintf("; divided by %s, overload below %s", bound.Algorithm, plaintext.Percent(bound.OverloadThreshold))
		if bound.Start != (allocate.Start{}) {
			words += fmt.Sprintf(", starting threshold %s, padding %d", bound.Start, bound.Padding)
		}
	}
	return words
}

// ShortIntent is Intent for a column: the tiers and the algorithm, as in "zone,* optimal".
func ShortIntent(intent allocate.Intent) string {
	if len(intent.Tiers) == 0 && intent.Bound == nil {
		return "-"
	}
	var keys []string
	for _, key := range intent.Tiers {
		keys = append(keys, keyName(key))
	}
	words := strings.Join(keys, ",")
	if intent.Bound != nil {
		words = strings.TrimSpace(words + " " + string(intent.Bound.Algorithm))
	}
	return words
}

// keyName returns the word for a key.
func keyName(key string) string {
	switch key {
	case topology.Hostname:
		return "node"
	case topology.Zone:
		return "zone"
	case topology.Region:
		return "region"
	}
	return key
}
