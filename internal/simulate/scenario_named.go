package simulate

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"vicinity.dev/vicinity/internal/allocate"
)

// ScenarioOptions size the region that the named scenarios start with.
type ScenarioOptions struct {
	// Zones is the number of zones, named a, b, c and so on.
	Zones int
	// NodesPerZone are the numbers of nodes of the zones. They repeat if there are more zones.
	NodesPerZone []int
	// Endpoints is the number of replicas, spread over the zones by the scheduler.
	Endpoints int
	// Start is the starting threshold around which the size wavers in the scenario "wavering".
	Start allocate.Start
	// Seed decides ties, start-up times, and the whole scenario "churn". The same seed gives the
	// same scenarios.
	Seed uint64
}

// DefaultScenarioOptions returns a cluster with slightly uneven zones, as most are.
func DefaultScenarioOptions() ScenarioOptions {
	return ScenarioOptions{
		Zones:        3,
		NodesPerZone: []int{12, 10, 8},
		Endpoints:    30,
		Start:        allocate.Start{PerZone: allocate.DefaultStartPerZone},
		Seed:         1,
	}
}

// Validate returns an error that names an invalid option.
func (o ScenarioOptions) Validate() error {
	switch {
	case o.Zones < 2 || o.Zones > maxNamedZones:
		return fmt.Errorf("zones: %d is not allowed; it must be from 2 to %d", o.Zones, maxNamedZones)
	case o.Endpoints < 1 || o.Endpoints > maxNamedEndpoints:
		return fmt.Errorf("endpoints: %d is not allowed; it must be from 1 to %d", o.Endpoints, maxNamedEndpoints)
	case len(o.NodesPerZone) == 0 || len(o.NodesPerZone) > o.Zones:
		return fmt.Errorf("nodes per zone: %d numbers are given; there must be from 1 to %d, the number of zones", len(o.NodesPerZone), o.Zones)
	case o.Start.In(o.Zones) > maxNamedEndpoints:
		return fmt.Errorf("starting threshold: %s is not allowed; it must be at most %d endpoints", o.Start, maxNamedEndpoints)
	}
	for _, nodes := range o.NodesPerZone {
		if nodes < 1 || nodes > maxNamedNodes {
			return fmt.Errorf("nodes per zone: %d is not allowed; it must be from 1 to %d", nodes, maxNamedNodes)
		}
	}
	return nil
}

// Bounds that limit a run of all named scenarios to minutes.
const (
	maxNamedZones     = 100
	maxNamedNodes     = 200
	maxNamedEndpoints = 5000
)

// namedScenario is a scenario that this package can play.
type namedScenario struct {
	name, about string
	length      time.Duration
	// direct makes the first appointments on the stage.
	direct func(s *stage, o ScenarioOptions)
}

func namedScenarios() []namedScenario {
	return []namedScenario{
		{"rolling-update", "all pods are replaced, a quarter more at a time", time.Hour, rollingUpdate},
		{"probe-failures", "one or two pods at a time fail their readiness probe, and are back after a while", time.Hour, probeFailures},
		{"autoscale", "an autoscaler follows the load of two short days", 4 * time.Hour, autoscale},
		{"wavering", "a small Service goes up and down around the starting threshold", time.Hour, wavering},
		{"zone-lost", "a zone fails, comes back, and the pods are spread again", 2 * time.Hour, zoneLost},
		{"nodes-added", "half as many nodes more in each zone, one by one", 2 * time.Hour, nodesAdded},
		{"one-zone-traffic", "all clients are in one zone, then in another", time.Hour, oneZoneTraffic},
		{"churn", "pods and nodes come and go at random", 4 * time.Hour, churn},
	}
}

// ScenarioNames lists the named scenarios.
func ScenarioNames() []string {
	var names []string
	for _, named := range namedScenarios() {
		names = append(names, named.name)
	}
	return names
}

// DescribeScenario describes a named scenario in a few words.
func DescribeScenario(name string) string {
	for _, named := range namedScenarios() {
		if named.name == name {
			return named.about
		}
	}
	return ""
}

// NamedScenario plays one of ScenarioNames.
func NamedScenario(name string, o ScenarioOptions) (Scenario, error) {
	if err := o.Validate(); err != nil {
		return Scenario{}, err
	}
	for _, named := range namedScenarios() {
		if named.name != name {
			continue
		}
		s := newStage(name, o)
		named.direct(s, o)
		return s.play(name, named.length), nil
	}
	return Scenario{}, fmt.Errorf("scenario: %q is unknown; allowed are %s", name, strings.Join(ScenarioNames(), ", "))
}

// newStage returns a stage with the zones and their nodes, and no pods.
func newStage(name string, o ScenarioOptions) *stage {
	// Each scenario has its own random sequence, so that it does not depend on the scenarios before
	// it.
	salt := fnv.New64a()
	_, _ = salt.Write([]byte(name))
	s := &stage{random: rand.New(rand.NewPCG(o.Seed, salt.Sum64()))}
	for z := range o.Zones {
		s.zones = append(s.zones, stageZone{name: zoneName(z, o.Zones)})
		s.setNodes(z, o.NodesPerZone[z%len(o.NodesPerZone)])
	}
	return s
}

// zoneName returns a letter, or a number if the region has more zones than letters.
func zoneName(z, zones int) string {
	if zones <= 'z'-'a'+1 {
		return string(rune('a' + z))
	}
	return fmt.Sprintf("z%03d", z+1)
}

// deploy makes so many pods ready at the start.
func (s *stage) deploy(replicas int) {
	for range replicas {
		zone := &s.zones[s.place()]
		zone.ready++
		s.ready++
	}
	zones := make([]ZoneChange, len(s.zones))
	for z := range s.zones {
		zones[z] = ZoneChange{Zone: s.zones[z].name, Amount: s.zones[z].ready}
	}
	s.write(SubjectEndpoints, zones...)
}

func rollingUpdate(s *stage, o ScenarioOptions) {
	s.deploy(o.Endpoints)
	s.in(10*time.Minute, s.update)
}

// probeFailures makes one or two pods fail every two minutes, for up to 100 seconds, but never all.
func probeFailures(s *stage, o ScenarioOptions) {
	const period = 2 * time.Minute
	s.deploy(o.Endpoints)
	var fail func()
	fail = func() {
		for range 1 + s.random.IntN(2) {
			z := s.anyOf(func(z *stageZone) int { return z.ready })
			if z < 0 || s.ready == 1 {
				break
			}
			s.setReady(z, -1)
			s.in(time.Duration(10+s.random.IntN(91))*time.Second, func() { s.setReady(z, 1) })
		}
		s.in(period, fail)
	}
	s.in(period, fail)
}

// autoscale has a load between 0.4 and 1.6 of the normal, in a wave of two hours. Each minute the
// autoscaler adds missing pods. It removes pods that the highest load of the last five minutes does
// not need, as in Kubernetes.
func autoscale(s *stage, o ScenarioOptions) {
	const (
		period = time.Minute
		memory = 5 // periods
		wave   = 120
	)
	s.deploy(o.Endpoints)
	var wanted []int
	var look func()
	look = func() {
		minute := int(s.now / period)
		wanted = append(wanted, max(1, int(float64(o.Endpoints)*loadAt(minute%wave, wave)+0.5)))
		if len(wanted) > memory {
			wanted = wanted[1:]
		}
		if target := wanted[len(wanted)-1]; target > s.ready+s.starting {
			s.scale(target)
		} else if most := slices.Max(wanted); most < s.ready+s.starting {
			s.scale(most)
		}
		s.in(period, look)
	}
	s.in(period, look)
}

// loadAt returns a wave of straight lines around 1: up to 1.6, down to 0.4 and back.
func loadAt(minute, wave int) float64 {
	const swing = 0.6
	quarter := float64(wave) / 4
	switch t := float64(minute) / quarter; {
	case t < 1:
		return 1 + swing*t
	case t < 3:
		return 1 + swing*(2-t)
	default:
		return 1 + swing*(t-4)
	}
}

// wavering starts well above the starting threshold. Then its size varies by at most one endpoint
// around the threshold.
func wavering(s *stage, o ScenarioOptions) {
	start := max(2, o.Start.In(o.Zones))
	s.deploy(start + allocate.DefaultPadding)
	sizes := []int{start, start - 1, start, start + 1, start - 1, start + 1}
	round := 0
	var waver func()
	waver = func() {
		s.scale(sizes[round%len(sizes)])
		round++
		s.in(2*time.Minute, waver)
	}
	s.in(2*time.Minute, waver)
}

// zoneLost loses the first zone. Its endpoints go at once, and other zones replace the pods after
// the nodes have been gone for five minutes. The nodes come back one by one. That moves no pod, so
// the Deployment is restarted later.
func zoneLost(s *stage, o ScenarioOptions) {
	const eviction = 5 * time.Minute
	s.deploy(o.Endpoints)
	s.in(10*time.Minute, func() {
		s.lose(0)
		s.in(eviction, func() { s.scale(o.Endpoints) })
	})
	for n := range o.NodesPerZone[0] {
		s.in(40*time.Minute+time.Duration(n)*returnPace(o), func() { s.setNodes(0, n+1) })
	}
	s.in(80*time.Minute, s.update)
}

// returnPace returns the time between two returning nodes, so that all are back half an hour after
// the first.
func returnPace(o ScenarioOptions) time.Duration {
	return min(30*time.Second, 30*time.Minute/time.Duration(o.NodesPerZone[0])).Truncate(time.Millisecond)
}

// nodesAdded adds nodes, which moves no pod.
func nodesAdded(s *stage, o ScenarioOptions) {
	s.deploy(o.Endpoints)
	var zones []int
	for z := range s.zones {
		for range (s.zones[z].nodes + 1) / 2 {
			zones = append(zones, z)
		}
	}
	const first, last = 10 * time.Minute, 110 * time.Minute
	pace := ((last - first) / time.Duration(len(zones))).Truncate(time.Millisecond)
	for i, z := range zones {
		s.in(first+time.Duration(i)*pace, func() { s.setNodes(z, s.zones[z].nodes+1) })
	}
}

// oneZoneTraffic has traffic that capacity does not predict.
func oneZoneTraffic(s *stage, o ScenarioOptions) {
	s.deploy(o.Endpoints)
	only := func(zone int) func() {
		return func() {
			shares := make([]int, len(s.zones))
			shares[zone] = 1
			s.setTraffic(shares...)
		}
	}
	s.in(10*time.Minute, only(0))
	s.in(25*time.Minute, only(len(s.zones)-1))
	s.in(40*time.Minute, func() { s.setTraffic() })
}

// churn has an event every half minute on average. The numbers of pods and nodes stay near their
// start values.
func churn(s *stage, o ScenarioOptions) {
	s.deploy(o.Endpoints)
	total := 0
	for z := range s.zones {
		total += s.zones[z].nodes
	}
	nodes := total
	var next func()
	next = func() {
		switch chance := s.random.IntN(100); {
		case chance < 40:
			if s.random.IntN(2*o.Endpoints) >= s.ready+s.starting {
				s.scale(s.ready + s.starting + 1)
			} else if s.ready > 1 {
				s.scale(s.ready - 1)
			}
		case chance < 80:
			// A pod fails somewhere, and a replacement starts.
			if z := s.anyOf(func(z *stageZone) int { return z.ready }); z >= 0 && s.ready > 1 {
				s.giveUp(z, SubjectEndpoints)
				s.launch(func() {})
			}
		default:
			if s.random.IntN(2*total) >= nodes {
				z := s.random.IntN(len(s.zones))
				s.setNodes(z, s.zones[z].nodes+1)
				nodes++
			} else if z := s.anyOf(func(z *stageZone) int { return z.nodes - 1 }); z >= 0 {
				// The node was drained before, so it has no pods to lose.
				s.setNodes(z, s.zones[z].nodes-1)
				nodes--
			}
		}
		s.in(time.Second+time.Duration(s.random.IntN(59))*time.Second, next)
	}
	s.in(time.Minute, next)
}
