package simulate

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Scenario is a list of events of one Service on a virtual clock. NamedScenario makes some,
// and ReadScenarios reads others.
type Scenario struct {
	Name string
	// Events are in the order of time. The first is at 0: the start, whose changes do not
	// count.
	Events []Event
	// Length is the time of the end, at or after the last event.
	Length time.Duration
}

// Event is all that happens at one moment. Routing reacts once, to all of it.
type Event struct {
	At      time.Duration
	Changes []Change
}

// Subject is what a change changes.
type Subject string

// The subjects, in the words of scenario files.
const (
	// SubjectNodes is the number of nodes of a zone: its capacity, and the traffic that
	// comes from it unless the scenario says otherwise.
	SubjectNodes Subject = "nodes"
	// SubjectEndpoints is the number of ready endpoints of a zone. When it falls the
	// newest go, as when a Deployment is scaled down.
	SubjectEndpoints Subject = "endpoints"
	// SubjectRetire is a number of endpoints that go from a zone, the oldest first, as
	// when a Deployment is updated.
	SubjectRetire Subject = "retire"
	// SubjectUnready is the number of endpoints of a zone that fail their readiness probe, the
	// oldest first. When it falls, the same endpoints are ready again, with their assignments,
	// those that failed first.
	SubjectUnready Subject = "unready"
	// SubjectTraffic is the share of the traffic that really comes from a zone, in any
	// unit; zones that are not named have none. Without any zone the traffic is
	// by nodes again.
	SubjectTraffic Subject = "traffic"
)

// Change is a change of one subject in some zones.
type Change struct {
	Subject Subject
	Zones   []ZoneChange
}

// ZoneChange is what a change means for one zone.
type ZoneChange struct {
	Zone   string
	Amount int
	// Relative adds Amount to what there is instead of replacing it.
	Relative bool
}

// Bounds on what a scenario may ask for, far beyond any Service.
const (
	maxScenarioZones     = 1000
	maxScenarioNodes     = 100_000       // of a zone
	maxScenarioEndpoints = 10_000        // of a zone
	maxScenarioTraffic   = 1_000_000_000 // of a zone
	maxScenarioLength    = 10_000 * time.Hour
)

// ZoneNames lists all zones that the scenario ever mentions, in the order of names.
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

// Validate says what is wrong with the scenario, naming the time and the field.
func (s Scenario) Validate() error {
	if s.Name == "" || len(strings.Fields(s.Name)) != 1 || strings.Contains(s.Name, "#") {
		return fmt.Errorf("scenario: the name %q is not allowed; it must be one word without #", s.Name)
	}
	c := newCensus()
	for _, event := range s.Events {
		if err := c.advance(event.At); err != nil {
			return fmt.Errorf("scenario %s: %w", s.Name, err)
		}
		for _, change := range event.Changes {
			if err := c.apply(change); err != nil {
				return fmt.Errorf("scenario %s: at %s: %w", s.Name, clock(event.At), err)
			}
		}
	}
	if err := c.end(s.Length); err != nil {
		return fmt.Errorf("scenario %s: %w", s.Name, err)
	}
	return nil
}

// String is the scenario in the form that ReadScenarios reads.
func (s Scenario) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "scenario %s\n", s.Name)
	for _, event := range s.Events {
		for _, change := range event.Changes {
			fmt.Fprintf(&b, "%s\n", strings.TrimRight(fmt.Sprintf("%-8s %-9s %s", clock(event.At), change.Subject, change), " "))
		}
	}
	fmt.Fprintf(&b, "%-8s end\n", clock(s.Length))
	return b.String()
}

// String is the zones of the change as scenario files write them.
func (c Change) String() string {
	parts := make([]string, len(c.Zones))
	for i, z := range c.Zones {
		format := "%s=%d"
		if z.Relative {
			format = "%s=%+d"
		}
		parts[i] = fmt.Sprintf(format, z.Zone, z.Amount)
	}
	return strings.Join(parts, " ")
}

// clock is a duration without the zeros that Duration.String puts at its end.
func clock(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// census follows a scenario in counts, to find events that are impossible.
type census struct {
	now    time.Duration
	events int
	zones  map[string]*censusZone
}

// censusZone counts nodes, endpoints, and those of them that are not ready.
type censusZone struct{ nodes, endpoints, unready int }

func newCensus() *census {
	return &census{zones: map[string]*censusZone{}}
}

// advance moves the clock to the next event.
func (c *census) advance(at time.Duration) error {
	switch {
	case at < c.now:
		return fmt.Errorf("time: %s comes after %s; events must be in the order of time", clock(at), clock(c.now))
	case c.events == 0 && at != 0:
		return fmt.Errorf("time: the first event is at %s; it must be at 0s, for it says what there is at the start", clock(at))
	case at > maxScenarioLength:
		return fmt.Errorf("time: %s is too late; at most %s is allowed", clock(at), clock(maxScenarioLength))
	}
	c.now = at
	c.events++
	return nil
}

// end checks the length of the scenario.
func (c *census) end(at time.Duration) error {
	switch {
	case c.events == 0:
		return fmt.Errorf("events: there is none; at least one at 0s is needed")
	case at < c.now || at == 0:
		return fmt.Errorf("end: %s is not allowed; it must be after the start and not before the last event at %s", clock(at), clock(c.now))
	case at > maxScenarioLength:
		return fmt.Errorf("end: %s is too late; at most %s is allowed", clock(at), clock(maxScenarioLength))
	}
	return nil
}

// apply makes a change, unless it makes no sense.
func (c *census) apply(change Change) error {
	if !slices.Contains([]Subject{SubjectNodes, SubjectEndpoints, SubjectRetire, SubjectUnready, SubjectTraffic}, change.Subject) {
		return fmt.Errorf("%q is unknown; allowed are %s, %s, %s, %s and %s", change.Subject, SubjectNodes, SubjectEndpoints, SubjectRetire, SubjectUnready, SubjectTraffic)
	}
	if len(change.Zones) == 0 && change.Subject != SubjectTraffic {
		return fmt.Errorf("%s: no zone is given; write ZONE=NUMBER", change.Subject)
	}
	traffic := 0
	for i, z := range change.Zones {
		if slices.ContainsFunc(change.Zones[:i], func(other ZoneChange) bool { return other.Zone == z.Zone }) {
			return fmt.Errorf("%s: zone %q is given twice", change.Subject, z.Zone)
		}
		if err := c.applyTo(change.Subject, z); err != nil {
			return err
		}
		traffic += z.Amount
	}
	if change.Subject == SubjectTraffic && len(change.Zones) > 0 && traffic == 0 {
		return fmt.Errorf("%s: all shares are 0; one at least must be more, or write %q alone for traffic by nodes", SubjectTraffic, SubjectTraffic)
	}
	return nil
}

func (c *census) applyTo(subject Subject, z ZoneChange) error {
	if z.Zone == "" || len(strings.Fields(z.Zone)) != 1 || strings.ContainsAny(z.Zone, "#=\x00\x01") {
		return fmt.Errorf("%s: the zone %q is not allowed; it must be one word without # and =", subject, z.Zone)
	}
	zone := c.zones[z.Zone]
	if zone == nil {
		if len(c.zones) == maxScenarioZones {
			return fmt.Errorf("%s: zone %q is one too many; at most %d are allowed", subject, z.Zone, maxScenarioZones)
		}
		zone = &censusZone{}
		c.zones[z.Zone] = zone
	}
	switch subject {
	case SubjectNodes:
		return set(&zone.nodes, subject, z, maxScenarioNodes)
	case SubjectEndpoints:
		// Amounts count the ready ones.
		ready := zone.endpoints - zone.unready
		if err := set(&ready, subject, z, maxScenarioEndpoints); err != nil {
			return err
		}
		zone.endpoints = ready + zone.unready
	case SubjectUnready:
		return set(&zone.unready, subject, z, zone.endpoints)
	case SubjectRetire:
		if ready := zone.endpoints - zone.unready; z.Relative || z.Amount < 1 || z.Amount > ready {
			return fmt.Errorf("%s: zone %q: %s is not allowed; it must be a number from 1 to the %d endpoints there are, without a sign",
				subject, z.Zone, z.text(), ready)
		}
		zone.endpoints -= z.Amount
	case SubjectTraffic:
		if z.Relative || z.Amount < 0 || z.Amount > maxScenarioTraffic {
			return fmt.Errorf("%s: zone %q: %s is not allowed; it must be a number from 0 to %d, without a sign",
				subject, z.Zone, z.text(), maxScenarioTraffic)
		}
	}
	return nil
}

// set changes a number that has to stay from 0 to limit.
func set(number *int, subject Subject, z ZoneChange, limit int) error {
	next := z.Amount
	// Amounts are bounded before they are added, so that nothing overflows.
	if z.Relative && z.Amount >= -limit && z.Amount <= limit {
		next += *number
	}
	if next < 0 || next > limit {
		return fmt.Errorf("%s: zone %q: %s is not allowed; there are %d, and there must be from 0 to %d",
			subject, z.Zone, z.text(), *number, limit)
	}
	*number = next
	return nil
}

func (z ZoneChange) text() string {
	if z.Relative {
		return fmt.Sprintf("%+d", z.Amount)
	}
	return fmt.Sprint(z.Amount)
}
