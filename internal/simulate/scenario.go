package simulate

import (
	"slices"
	"time"
)

// Scenario is a list of events of one Service on a virtual clock. NamedScenario makes it.
type Scenario struct {
	Name string
	// Events are in the order of time. The first is the start, at 0. Its changes do not count.
	Events []Event
	// Length is the end time, at or after the last event.
	Length time.Duration
}

// Event has all changes of one moment. Routing reacts once, to all of them.
type Event struct {
	At      time.Duration
	Changes []Change
}

// Subject is the property that a change changes.
type Subject string

// The subjects.
const (
	// SubjectNodes is the number of nodes of a zone: its capacity, and the traffic that it sends,
	// unless the scenario sets that apart.
	SubjectNodes Subject = "nodes"
	// SubjectEndpoints is the number of ready endpoints of a zone. When it falls, the newest go, as
	// in a scale-down of a Deployment.
	SubjectEndpoints Subject = "endpoints"
	// SubjectRetire is the number of endpoints that a zone loses, the oldest first, as in an update
	// of a Deployment.
	SubjectRetire Subject = "retire"
	// SubjectUnready is a number of ready endpoints of a zone that start to fail their readiness probe, the oldest
	// first. A negative number makes endpoints ready again, with their assignments, in the order in which they failed.
	SubjectUnready Subject = "unready"
	// SubjectTraffic is the share of the real traffic that a zone sends, in any unit. Zones that
	// are not named send none. A change without zones returns to traffic by nodes.
	SubjectTraffic Subject = "traffic"
)

// Change is a change of one subject in some zones.
type Change struct {
	Subject Subject
	Zones   []ZoneChange
}

// ZoneChange is the part of a change for one zone.
type ZoneChange struct {
	Zone   string
	Amount int
	// Relative adds Amount to the number of endpoints instead of replacing it.
	Relative bool
}

// ZoneNames lists all zones of the scenario, in the order of names.
func (s Scenario) ZoneNames() []string {
	var names []string
	for _, event := range s.Events {
		for _, change := range event.Changes {
			for _, zone := range change.Zones {
				names = append(names, zone.Zone)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
