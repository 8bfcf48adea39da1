package allocate

import (
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// ConsumerSet is a set of zones that use an endpoint, each with a weight, in a canonical form that
// compares with ==. The zero value means not assigned.
type ConsumerSet struct {
	// joined has the zones in the order of names. Each ends with endOfZone; a weight other than 1
	// comes before that, after startOfWeight.
	joined string
}

// No zone name contains these bytes.
const (
	endOfZone     = "\x00"
	startOfWeight = "\x01"
)

// NewConsumerSet makes the set of the given zones, with weight 1 each.
func NewConsumerSet(zones ...string) ConsumerSet {
	sorted := slices.Clone(zones)
	slices.Sort(sorted)
	var b strings.Builder
	for _, zone := range slices.Compact(sorted) {
		writeConsumer(&b, zone, 1)
	}
	return ConsumerSet{b.String()}
}

// NewWeightedConsumerSet makes the set of the given zones with their weights.
func NewWeightedConsumerSet(weights map[string]float64) ConsumerSet {
	var b strings.Builder
	for _, zone := range slices.Sorted(maps.Keys(weights)) {
		writeConsumer(&b, zone, weights[zone])
	}
	return ConsumerSet{b.String()}
}

func writeConsumer(b *strings.Builder, zone string, weight float64) {
	b.WriteString(zone)
	if weight != 1 {
		b.WriteString(startOfWeight)
		b.WriteString(strconv.FormatFloat(weight, 'g', -1, 64))
	}
	b.WriteString(endOfZone)
}

// IsZero reports whether the set means not assigned.
func (s ConsumerSet) IsZero() bool {
	return s.joined == ""
}

// Zones lists the set's zones in the order of names.
func (s ConsumerSet) Zones() []string {
	var zones []string
	for zone := range s.All() {
		zones = append(zones, zone)
	}
	return zones
}

// Weight returns the weight of a zone in the set, 0 if the zone is not in it.
func (s ConsumerSet) Weight(zone string) float64 {
	for name, weight := range s.All() {
		if name == zone {
			return weight
		}
	}
	return 0
}

// All yields each zone with its weight, in the order of names.
func (s ConsumerSet) All() iter.Seq2[string, float64] {
	return func(yield func(string, float64) bool) {
		for part := range strings.SplitSeq(strings.TrimSuffix(s.joined, endOfZone), endOfZone) {
			if s.joined == "" {
				return
			}
			zone, number, weighted := strings.Cut(part, startOfWeight)
			weight := 1.0
			if weighted {
				// writeConsumer wrote the number.
				weight, _ = strconv.ParseFloat(number, 64)
			}
			if !yield(zone, weight) {
				return
			}
		}
	}
}

// unweighted returns the set without its weights, which decides whether an endpoint moves.
func (s ConsumerSet) unweighted() ConsumerSet {
	if !strings.Contains(s.joined, startOfWeight) {
		return s
	}
	return NewConsumerSet(s.Zones()...)
}

// String returns the form for messages and logs.
func (s ConsumerSet) String() string {
	return "{" + strings.Join(s.Zones(), ",") + "}"
}
