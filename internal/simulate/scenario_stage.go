package simulate

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// stage plays the named scenarios: a Deployment and a scheduler on a virtual clock. It records
// their effects on a Service.
//
// As in the default spreading, the scheduler puts a pod into the zone with the fewest pods, among
// zones with nodes. A ReplicaSet that shrinks removes a pod from a node with the most. The seed
// decides ties and start-up times.
type stage struct {
	now      time.Duration
	due      []appointment // in the order of time
	random   *rand.Rand
	zones    []stageZone
	events   []Event
	starting int // pods that are not ready yet
	ready    int
}

type stageZone struct {
	name     string
	nodes    int
	ready    int
	starting int
	// losses counts the losses of the zone: pods that were starting at such a moment never get
	// ready.
	losses int
	// old counts the ready pods that the current update must still replace.
	old int
}

// appointment is a future action.
type appointment struct {
	at time.Duration
	do func()
}

// The times that a pod takes from its creation to being ready, and from its deletion to leaving the
// EndpointSlices.
const (
	startUpLeast = 10 * time.Second
	startUpRange = 11 // seconds above the least, chosen by the seed
	goodbye      = time.Second
)

// in makes an appointment. Appointments for the same time run in the order in which they were made.
func (s *stage) in(delay time.Duration, do func()) {
	at := s.now + delay
	place := len(s.due)
	for place > 0 && s.due[place-1].at > at {
		place--
	}
	s.due = slices.Insert(s.due, place, appointment{at, do})
}

// play advances the time to the end.
func (s *stage) play(name string, length time.Duration) Scenario {
	for len(s.due) > 0 && s.due[0].at <= length {
		next := s.due[0]
		s.due = s.due[1:]
		s.now = next.at
		next.do()
	}
	return Scenario{Name: name, Events: s.events, Length: length}
}

// write adds a change to the event of this moment.
func (s *stage) write(subject Subject, zones ...ZoneChange) {
	if last := len(s.events) - 1; last < 0 || s.events[last].At != s.now {
		s.events = append(s.events, Event{At: s.now})
	}
	event := &s.events[len(s.events)-1]
	event.Changes = append(event.Changes, Change{Subject: subject, Zones: zones})
}

// setNodes changes the number of nodes of a zone.
func (s *stage) setNodes(zone, nodes int) {
	s.zones[zone].nodes = nodes
	s.write(SubjectNodes, ZoneChange{Zone: s.zones[zone].name, Amount: nodes})
}

// setTraffic sets the shares of the real traffic; without shares it is by nodes.
func (s *stage) setTraffic(shares ...int) {
	var zones []ZoneChange
	for z, share := range shares {
		zones = append(zones, ZoneChange{Zone: s.zones[z].name, Amount: share})
	}
	s.write(SubjectTraffic, zones...)
}

// anyOf picks a zone by the seed, with a probability by weight. It returns -1 if all weights are 0.
func (s *stage) anyOf(weight func(*stageZone) int) int {
	total := 0
	for z := range s.zones {
		total += weight(&s.zones[z])
	}
	if total == 0 {
		return -1
	}
	ticket := s.random.IntN(total)
	for z := range s.zones {
		if ticket -= weight(&s.zones[z]); ticket < 0 {
			return z
		}
	}
	return -1
}

// place returns the zone for a new pod, or -1 without any node.
func (s *stage) place() int {
	fewest := math.MaxInt
	for z := range s.zones {
		if zone := &s.zones[z]; zone.nodes > 0 {
			fewest = min(fewest, zone.ready+zone.starting)
		}
	}
	return s.anyOf(func(z *stageZone) int {
		if z.nodes > 0 && z.ready+z.starting == fewest {
			return 1
		}
		return 0
	})
}

// crowded picks, by the seed, the zone of a pod to remove: one of the zones for which pods is not
// zero and whose nodes are the fullest. Nodes of a zone fill evenly.
func (s *stage) crowded(pods func(*stageZone) int) int {
	rank := func(z *stageZone) int {
		nodes := max(z.nodes, 1)
		return (z.ready + z.starting + nodes - 1) / nodes
	}
	fullest := 0
	for z := range s.zones {
		if zone := &s.zones[z]; pods(zone) > 0 {
			fullest = max(fullest, rank(zone))
		}
	}
	return s.anyOf(func(z *stageZone) int {
		if rank(z) < fullest {
			return 0
		}
		return pods(z)
	})
}

// startUp returns the time that a pod takes to become ready.
func (s *stage) startUp() time.Duration {
	return startUpLeast + time.Duration(s.random.IntN(startUpRange))*time.Second
}

// launch starts a pod and calls then when it is ready. A pod never gets ready if no node exists, or
// if its zone is lost meanwhile.
func (s *stage) launch(then func()) {
	z := s.place()
	if z < 0 {
		return
	}
	zone := &s.zones[z]
	zone.starting++
	s.starting++
	losses := zone.losses
	s.in(s.startUp(), func() {
		if zone.losses != losses {
			return
		}
		zone.starting--
		s.starting--
		zone.ready++
		s.ready++
		s.write(SubjectEndpoints, ZoneChange{Zone: zone.name, Amount: 1, Relative: true})
		then()
	})
}

// giveUp removes one ready pod of a zone.
func (s *stage) giveUp(z int, subject Subject) {
	zone := &s.zones[z]
	zone.ready--
	s.ready--
	change := ZoneChange{Zone: zone.name, Amount: -1, Relative: true}
	if subject == SubjectRetire {
		zone.old--
		change = ZoneChange{Zone: zone.name, Amount: 1}
	}
	s.write(subject, change)
}

// setReady makes a pod of a zone fail its readiness probe, or pass it again. The Deployment does
// not replace it.
func (s *stage) setReady(z, change int) {
	s.zones[z].ready += change
	s.ready += change
	s.write(SubjectUnready, ZoneChange{Zone: s.zones[z].name, Amount: -change})
}

// scale is the Deployment's reaction to a new number of replicas.
func (s *stage) scale(replicas int) {
	for s.ready+s.starting < replicas && s.place() >= 0 {
		s.launch(func() {})
	}
	for s.ready > replicas {
		s.giveUp(s.crowded(func(z *stageZone) int { return z.ready }), SubjectEndpoints)
	}
}

// update is a rolling update of all pods, with a surge of a quarter and none unavailable: each pod
// that gets ready lets an old one go, and then the next one start.
func (s *stage) update() {
	for z := range s.zones {
		s.zones[z].old = s.zones[z].ready
	}
	unborn := s.ready
	var replace func()
	replace = func() {
		if unborn == 0 {
			return
		}
		unborn--
		s.launch(func() {
			s.in(goodbye, func() {
				s.giveUp(s.crowded(func(z *stageZone) int { return z.old }), SubjectRetire)
				replace()
			})
		})
	}
	for range (s.ready + 3) / 4 {
		replace()
	}
}

// lose removes all nodes of a zone, with their pods.
func (s *stage) lose(z int) {
	zone := &s.zones[z]
	s.ready -= zone.ready
	s.starting -= zone.starting
	zone.ready, zone.starting = 0, 0
	zone.losses++
	s.setNodes(z, 0)
	s.write(SubjectEndpoints, ZoneChange{Zone: zone.name})
}
