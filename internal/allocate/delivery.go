package allocate

import (
	"fmt"
	"strings"
)

// Delivery is the way in which a plan reaches the proxies.
type Delivery string

// The deliveries.
const (
	DeliveryNone   Delivery = "none"   // Vicinity delivers nothing
	DeliveryHints  Delivery = "hints"  // hints in the Service's own EndpointSlices, for any proxy
	DeliveryGroups Delivery = "groups" // by EndpointGroups, for vicinity-proxy
)

// Deliveries lists the ways to deliver a plan.
func Deliveries() []Delivery {
	return []Delivery{DeliveryHints, DeliveryGroups}
}

// CanCarry reports whether the delivery can carry the plans of the algorithm.
func (d Delivery) CanCarry(a Algorithm) bool {
	return d != DeliveryHints || !a.Weighted()
}

// Title returns the name that the Kubernetes API uses, such as "Hints".
func (d Delivery) Title() string {
	if d == "" {
		return ""
	}
	return strings.ToUpper(string(d[:1])) + string(d[1:])
}

// MarshalText writes the Title.
func (d Delivery) MarshalText() ([]byte, error) {
	return []byte(d.Title()), nil
}

// UnmarshalText reads the form that MarshalText writes.
func (d *Delivery) UnmarshalText(text []byte) error {
	for _, known := range []Delivery{"", DeliveryNone, DeliveryHints, DeliveryGroups} {
		if string(text) == known.Title() {
			*d = known
			return nil
		}
	}
	return fmt.Errorf("delivery %q is unknown", text)
}

// DefaultSliceSize is the number of endpoints that an EndpointSlice holds by default.
const DefaultSliceSize = 100
