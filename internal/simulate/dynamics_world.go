package simulate

import (
	"fmt"
	"slices"

	"vicinity.dev/vicinity/internal/allocate"
)

// world has the nodes and endpoints at one moment of a scenario, with the assignments of a
// router.
type world struct {
	names   []string // of all zones that the scenario knows, in order
	nodes   []int    // by zone
	traffic []int    // by zone, nil if traffic is by nodes
	// endpoints are in the order of age, the oldest first.
	endpoints []allocate.Endpoint
	born      []int // by endpoint: the event that added it
	// unready are endpoints that are not ready, the longest unready first. They keep their
	// assignments, as in slices.
	unready []unreadyEndpoint
	made    uint64
}

type unreadyEndpoint struct {
	allocate.Endpoint
	born int
}

// touched reports which inputs of routing an event changed. Real traffic is not an input.
type touched struct{ nodes, endpoints bool }

func newWorld(names []string) *world {
	return &world{names: names, nodes: make([]int, len(names))}
}

// apply makes the changes of an event.
func (w *world) apply(event int, changes []Change) touched {
	var touched touched
	for _, change := range changes {
		if change.Subject == SubjectTraffic {
			w.setTraffic(change.Zones)
			continue
		}
		for _, z := range change.Zones {
			switch change.Subject {
			case SubjectNodes:
				touched.nodes = true
				w.nodes[w.zone(z.Zone)] = z.Amount
			case SubjectEndpoints:
				touched.endpoints = true
				delta := z.Amount
				if !z.Relative {
					delta -= w.count(z.Zone)
				}
				for ; delta > 0; delta-- {
					w.add(event, z.Zone)
				}
				w.remove(z.Zone, -delta, true)
			case SubjectUnready:
				touched.endpoints = true
				for range z.Amount {
					w.fail(z.Zone)
				}
				for range -z.Amount {
					w.recover(z.Zone)
				}
			case SubjectRetire:
				touched.endpoints = true
				w.remove(z.Zone, z.Amount, false)
			}
		}
	}
	return touched
}

func (w *world) setTraffic(zones []ZoneChange) {
	if len(zones) == 0 {
		w.traffic = nil
		return
	}
	w.traffic = make([]int, len(w.names))
	for _, z := range zones {
		w.traffic[w.zone(z.Zone)] = z.Amount
	}
}

// zone returns the number of a zone of the scenario.
func (w *world) zone(name string) int {
	zone, _ := slices.BinarySearch(w.names, name)
	return zone
}

func (w *world) count(zone string) int {
	n := 0
	for i := range w.endpoints {
		if w.endpoints[i].Zone == zone {
			n++
		}
	}
	return n
}

// add adds an endpoint. Its ID does not follow its age, just as an address does not.
func (w *world) add(event int, zone string) {
	w.made++
	w.endpoints = append(w.endpoints, allocate.Endpoint{ID: fmt.Sprintf("%016x", scramble(w.made)), Zone: zone})
	w.born = append(w.born, event)
}

// scramble maps different numbers to different numbers in no visible order.
func scramble(n uint64) uint64 {
	n = (n + 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>31) * 0x94d049bb133111eb
	return n ^ n>>29
}

// remove removes the newest or the oldest endpoints of a zone.
func (w *world) remove(zone string, number int, newest bool) {
	if number <= 0 {
		return
	}
	stay := 0 // endpoints of the zone to keep before the first removal
	if newest {
		stay = w.count(zone) - number
	}
	left := 0
	for i := range w.endpoints {
		if w.endpoints[i].Zone == zone {
			if stay == 0 && number > 0 {
				number--
				continue
			}
			stay = max(0, stay-1)
		}
		w.endpoints[left], w.born[left] = w.endpoints[i], w.born[i]
		left++
	}
	w.endpoints, w.born = w.endpoints[:left], w.born[:left]
}

// fail makes the oldest ready endpoint of a zone unready.
func (w *world) fail(zone string) {
	i := slices.IndexFunc(w.endpoints, func(e allocate.Endpoint) bool { return e.Zone == zone })
	w.unready = append(w.unready, unreadyEndpoint{w.endpoints[i], w.born[i]})
	w.endpoints, w.born = slices.Delete(w.endpoints, i, i+1), slices.Delete(w.born, i, i+1)
}

// recover makes the longest unready endpoint of a zone ready again, at its place in the order of
// age.
func (w *world) recover(zone string) {
	i := slices.IndexFunc(w.unready, func(e unreadyEndpoint) bool { return e.Zone == zone })
	e := w.unready[i]
	w.unready = slices.Delete(w.unready, i, i+1)
	place := slices.IndexFunc(w.born, func(born int) bool { return born > e.born })
	if place < 0 {
		place = len(w.born)
	}
	w.endpoints, w.born = slices.Insert(w.endpoints, place, e.Endpoint), slices.Insert(w.born, place, e.born)
}

// region returns the world as routing sees it.
func (w *world) region() allocate.Region {
	zones := make([]allocate.Zone, len(w.names))
	for z, name := range w.names {
		zones[z] = allocate.Zone{Name: name, Capacity: float64(w.nodes[z])}
	}
	for i := range w.endpoints {
		zones[w.zone(w.endpoints[i].Zone)].Endpoints++
	}
	return allocate.Region{Zones: zones}
}

// shares returns the shares of the real traffic by zone, nil if there is no traffic.
func (w *world) shares() []float64 {
	sources := w.traffic
	if sources == nil {
		sources = w.nodes
	}
	sum := 0
	for _, source := range sources {
		sum += source
	}
	if sum == 0 {
		return nil
	}
	shares := make([]float64, len(sources))
	for z, source := range sources {
		shares[z] = float64(source) / float64(sum)
	}
	return shares
}

// capacity returns the number of zones with nodes, and of all nodes.
func (w *world) capacity() (zones, nodes int) {
	for _, n := range w.nodes {
		nodes += n
		if n > 0 {
			zones++
		}
	}
	return zones, nodes
}

// assigned returns the assignments of the endpoints.
func (w *world) assigned() []allocate.ConsumerSet {
	sets := make([]allocate.ConsumerSet, len(w.endpoints))
	for i := range w.endpoints {
		sets[i] = w.endpoints[i].Assigned
	}
	return sets
}

// reallocated counts endpoints that are older than the event and now serve other zones, at any
// weight. In a plan that is AtHome only an endpoint that returns to its own zone counts.
func (w *world) reallocated(before []allocate.ConsumerSet, event int, atHome bool) int {
	n := 0
	for i := range w.endpoints {
		e := &w.endpoints[i]
		switch {
		case w.born[i] >= event || e.Assigned == before[i]:
		case atHome && (before[i].IsZero() || before[i].Weight(e.Zone) > 0):
		case !slices.Equal(e.Assigned.Zones(), before[i].Zones()):
			n++
		}
	}
	return n
}
