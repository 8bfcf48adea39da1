package hints

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/endpoint"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// Input is all that the hints of one Service in one address family depend on.
type Input struct {
	Family corev1.IPFamily
	// Slices are all slices of the Service.
	Slices  []*discoveryv1.EndpointSlice
	Cluster *intent.Cluster
	Intent  allocate.Intent
	// OwnZone gives each endpoint its own zone, whatever the plan says.
	OwnZone bool
	Region  allocate.Region
	Plan    allocate.Plan
	Outcome allocate.Outcome
	// Endpoints are the ready endpoints, and Assigned the zones that use each, by address.
	Endpoints []intent.Endpoint
	Assigned  map[string]allocate.ConsumerSet
	// Instead names the alternative for plans that hints cannot express.
	Instead string
}

// Limits are the parts of a plan that hints cannot express.
type Limits struct {
	// Undelivered says that hints cannot express the plan at all, so there are none.
	Undelivered bool
	// Notes are sentences about the limits.
	Notes []string
}

// ForZones returns the zone hints of a plan.
func ForZones(in Input) (Plan, Limits) {
	p, limits := in.plan()
	if p.Wanted {
		p.homes = homes(endpoint.Slices(in.Slices, in.Family), in.Cluster)
	}
	return p, limits
}

func (in *Input) plan() (Plan, Limits) {
	switch {
	case in.OwnZone: // in any case, as Gardener's label promises
		return Plan{Wanted: true, own: true}, Limits{}
	case in.Outcome.Rule == allocate.RuleOneZone, in.Outcome.IsBalanced(), len(in.Plan.Groups) == 0:
		return Plan{}, Limits{}
	}
	soft := in.Intent.Bound == nil
	if in.isForAllZones() && (soft || in.Outcome.Undivided || len(in.Plan.Zones) > v1alpha1.MaxHints) {
		// Proxies do the same without hints for zones; there may be some for nodes. The next plan does not need them
		// either: a plan that divides nothing is made again.
		return Plan{Wanted: true}, Limits{}
	}
	regions := map[string]string{}
	for _, zone := range in.Region.Zones {
		regions[zone.Name] = zone.Region
	}
	p := Plan{Wanted: true, zones: make(map[string]*discoveryv1.EndpointHints, len(in.Endpoints))}
	var limits Limits
	type homeSet struct {
		home string
		set  allocate.ConsumerSet
	}
	made := map[homeSet]*discoveryv1.EndpointHints{} // endpoints share the few that there are
	for _, e := range in.Endpoints {
		key := homeSet{e.Zone, in.Assigned[e.Address]}
		hints, found := made[key]
		if !found {
			zones := in.zones(key.set, key.home, regions, &limits)
			if limits.Undelivered {
				return Plan{}, limits
			}
			hints = makeHints(zones, nil)
			made[key] = hints
		}
		p.zones[e.Address] = hints
	}
	return p, limits
}

// zones returns the hinted zones of endpoints in one home zone that a set of zones uses.
func (in *Input) zones(set allocate.ConsumerSet, home string, regions map[string]string, limits *Limits) []string {
	zones := slices.DeleteFunc(set.Zones(), func(zone string) bool { return zone == "" })
	if len(zones) > v1alpha1.MaxHints && in.Intent.Bound == nil {
		zones = nearestZones(zones, home, regions)
		limits.note("an endpoint can have hints for at most %d zones; other zones use all endpoints, unless the Service has %s", v1alpha1.MaxHints, in.Instead)
	}
	switch {
	case len(zones) == 0 && home == "":
		limits.Undelivered = true
		limits.note("an endpoint has no zone, and hints for the others would take its traffic; no hints are written, use %s", in.Instead)
	case len(zones) == 0:
		return []string{home}
	case len(zones) > v1alpha1.MaxHints:
		limits.Undelivered = true
		limits.note("hints cannot express the plan, because an endpoint serves more than %d zones; no hints are written, use %s", v1alpha1.MaxHints, in.Instead)
	}
	return zones
}

func (l *Limits) note(format string, args ...any) {
	l.Notes = append(l.Notes, fmt.Sprintf(format, args...))
}

func (in *Input) isForAllZones() bool {
	for i := range in.Plan.Groups {
		if len(in.Plan.Groups[i].Consumers) != len(in.Plan.Zones) {
			return false
		}
	}
	return true
}

// nearestZones returns as many zones as an endpoint can have hints for: its own first, then those of its region.
func nearestZones(zones []string, home string, regions map[string]string) []string {
	distance := func(zone string) int {
		switch {
		case zone == home:
			return 0
		case regions[home] != "" && regions[zone] == regions[home]:
			return 1
		}
		return 2
	}
	zones = slices.Clone(zones)
	slices.SortStableFunc(zones, func(a, b string) int { return cmp.Compare(distance(a), distance(b)) })
	zones = zones[:v1alpha1.MaxHints]
	slices.Sort(zones)
	return zones
}
