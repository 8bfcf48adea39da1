package groups

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
)

// marks is the state of a group that its spec does not have. It is kept in an annotation.
type marks struct {
	// Leaving are consumers that the plan removes from the group, and since when.
	Leaving map[string]time.Time `json:"leaving,omitempty"`
	// Extra are consumers besides those of the plan: they would have no endpoint for a port, or no endpoint is ready
	// anywhere. They are never held.
	Extra []string `json:"extra,omitempty"`
	// Arrived are the addresses of endpoints that came from another group, by the time. There they are held. The latest
	// group counts.
	Arrived map[string][]string `json:"arrived,omitempty"`
	// Waiting are the addresses of endpoints that no plan has assigned yet.
	Waiting []string `json:"waiting,omitempty"`
	// Narrowing is when the change to narrower tiers began.
	Narrowing *time.Time `json:"narrowing,omitempty"`
	// Home is the zone of endpoints that the plan gives only to other zones.
	Home string `json:"home,omitempty"`
	// Nowhere says that endpoints without a zone are consumers, which the group cannot name.
	Nowhere bool `json:"nowhere,omitempty"`
}

// readMarks reads the annotation. A broken one counts as empty: it only concerns the next seconds.
func readMarks(group *v1alpha1.EndpointGroup) marks {
	var m marks
	if text := group.Annotations[v1alpha1.AnnotationGroupMarks]; text != "" {
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			return marks{}
		}
	}
	return m
}

func (m marks) text() string {
	text, err := json.Marshal(m)
	if err != nil || string(text) == "{}" {
		return ""
	}
	return string(text)
}

// equalWithoutEndpoints reports whether marks agree in all but endpoints.
func (m marks) equalWithoutEndpoints(other marks) bool {
	narrowing := m.Narrowing == nil && other.Narrowing == nil ||
		m.Narrowing != nil && other.Narrowing != nil && m.Narrowing.Equal(*other.Narrowing)
	return narrowing && m.Home == other.Home && m.Nowhere == other.Nowhere && slices.Equal(m.Extra, other.Extra) &&
		maps.EqualFunc(m.Leaving, other.Leaving, time.Time.Equal)
}

// arrivals returns the times when endpoints arrived, by address.
func (m marks) arrivals() map[string]time.Time {
	times := map[string]time.Time{}
	for text, addresses := range m.Arrived {
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			continue
		}
		for _, address := range addresses {
			times[address] = at
		}
	}
	return times
}

func byArrival(times map[string]time.Time) map[string][]string {
	addresses := map[string][]string{}
	for _, address := range slices.Sorted(maps.Keys(times)) {
		text := times[address].UTC().Format(time.RFC3339Nano)
		addresses[text] = append(addresses[text], address)
	}
	return addresses
}

// plannedConsumers returns the consumers that the plan has for the group.
func (m marks) plannedConsumers(group *v1alpha1.EndpointGroup) []v1alpha1.GroupConsumer {
	if len(m.Leaving) == 0 && len(m.Extra) == 0 {
		return group.Spec.Consumers
	}
	return slices.DeleteFunc(slices.Clone(group.Spec.Consumers), func(c v1alpha1.GroupConsumer) bool {
		_, leaving := m.Leaving[c.Zone]
		return leaving || slices.Contains(m.Extra, c.Zone)
	})
}

// Assigned reads the plan of a family back from groups: the zones that use each endpoint, by address. Endpoints that
// are not ready are included, because they return to their group.
func Assigned(groups []*v1alpha1.EndpointGroup, family corev1.IPFamily) map[string]allocate.ConsumerSet {
	type reading struct {
		set  allocate.ConsumerSet
		at   time.Time
		from string
	}
	latest := map[string]reading{}
	for _, group := range groups {
		if group.Spec.AddressType != family {
			continue
		}
		m := readMarks(group)
		set := consumerSet(m.plannedConsumers(group), m.Nowhere)
		arrivals := m.arrivals()
		for i := range group.Spec.Endpoints {
			address := group.Spec.Endpoints[i].Address
			now := reading{set, arrivals[address], group.Name}
			if slices.Contains(m.Waiting, address) {
				now.set = allocate.ConsumerSet{}
			}
			before, found := latest[address]
			if !found || now.at.After(before.at) || now.at.Equal(before.at) && now.from < before.from {
				latest[address] = now
			}
		}
	}
	assigned := make(map[string]allocate.ConsumerSet, len(latest))
	for address, reading := range latest {
		if !reading.set.IsZero() {
			assigned[address] = reading.set
		}
	}
	return assigned
}

func consumerSet(list []v1alpha1.GroupConsumer, nowhere bool) allocate.ConsumerSet {
	weights := make(map[string]float64, len(list)+1)
	for _, c := range list {
		weights[c.Zone] = 1
		if c.Weight > 0 {
			weights[c.Zone] = float64(c.Weight) / fullWeight
		}
	}
	if nowhere {
		weights[""] = 1
	}
	return allocate.NewWeightedConsumerSet(weights)
}
