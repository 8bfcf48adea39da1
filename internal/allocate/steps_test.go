package allocate_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"vicinity.dev/vicinity/internal/allocate"
)

// steps is a second implementation of the proposal's algorithms: it follows their steps one
// endpoint at a time, with whole numbers only. Zones are numbered in the order of their names and
// all have traffic.
type steps struct {
	endpoints []int // of each zone
	// expected has the expected endpoints of each zone, in parts of an endpoint. An endpoint has as
	// many parts as the region has capacity, so that no share is a fraction.
	expected []int
	one      int // the parts of an endpoint
	count    int // of all endpoints
	weight   int // the parts that stand for a weight of 1

	group  [][]int // the members of each zone's own group, by home zone
	givers []int   // the queue of zones that may give
}

// stepGroup is a group with its members by home zone and its consumers' weights.
type stepGroup struct {
	members []int
	weights []int
}

func newSteps(capacity, endpoints []int) *steps {
	s := &steps{endpoints: endpoints}
	for z := range capacity {
		s.one += capacity[z]
		s.count += endpoints[z]
	}
	s.weight = s.one
	for z := range capacity {
		s.expected = append(s.expected, capacity[z]*s.count)
		s.group = append(s.group, s.nothing())
		s.group[z][z] = endpoints[z]
	}
	for z := range capacity {
		if s.mayGive(z) {
			s.givers = append(s.givers, z)
		}
	}
	return s
}

func (s *steps) nothing() []int { return make([]int, len(s.endpoints)) }

func sum(numbers []int) (total int) {
	for _, n := range numbers {
		total += n
	}
	return total
}

// below reports whether the load of so many members is below 1.5.
func (s *steps) below(expected, members int) bool {
	return members > 0 && 2*expected < 3*members*s.one
}

func (s *steps) mayGive(z int) bool {
	return s.group[z][z] > 0 && s.below(s.expected[z], sum(s.group[z])-1)
}

// spare returns the parts that the zone has beyond the expected ones, and lack the parts that it
// misses.
func (s *steps) spare(z int) int { return sum(s.group[z])*s.one - s.expected[z] }
func (s *steps) lack(z int) int  { return -s.spare(z) }

// firstGiver returns the allowed giver of the queue with the lowest load after giving one endpoint
// away, or -1.
func (s *steps) firstGiver(allowed func(z int) bool) int {
	first := -1
	for _, z := range s.givers {
		if !allowed(z) {
			continue
		}
		if first < 0 || s.expected[z]*(sum(s.group[first])-1) < s.expected[first]*(sum(s.group[z])-1) {
			first = z
		}
	}
	return first
}

func anyGiver(int) bool { return true }

// give moves one of the giver's own endpoints out of its group into another. The giver goes back
// into the queue if it may give again.
func (s *steps) give(giver int, to []int) {
	s.group[giver][giver]--
	to[giver]++
	if !s.mayGive(giver) {
		s.givers = slices.DeleteFunc(s.givers, func(z int) bool { return z == giver })
	}
}

// receivers returns the zones in the order of their loads, the highest first.
func (s *steps) receivers() []int {
	var zones []int
	for z := range s.group {
		zones = append(zones, z)
	}
	slices.SortStableFunc(zones, func(a, b int) int {
		ofA, ofB := sum(s.group[a]), sum(s.group[b])
		if ofA == 0 || ofB == 0 {
			return min(ofA, 1) - min(ofB, 1)
		}
		return s.expected[b]*ofA - s.expected[a]*ofB
	})
	return zones
}

// own returns the groups with one consumer zone each.
func (s *steps) own() (groups []stepGroup) {
	for z := range s.group {
		weights := s.nothing()
		weights[z] = s.weight
		groups = append(groups, stepGroup{s.group[z], weights})
	}
	return groups
}

// local returns no groups if the result is balanced.
func (s *steps) local() []stepGroup {
	// 1. The zones at or above the threshold.
	for _, receiver := range s.receivers() {
		for !s.below(s.expected[receiver], sum(s.group[receiver])) {
			giver := s.firstGiver(anyGiver)
			if giver < 0 {
				return nil
			}
			s.give(giver, s.group[receiver])
		}
	}
	// 2. The rest.
	for {
		giver := s.firstGiver(anyGiver)
		if giver < 0 || s.spare(giver) < s.one {
			return s.own()
		}
		for _, receiver := range s.receivers() {
			if s.lack(receiver) < s.one {
				return s.own()
			}
			for s.spare(giver) >= s.one && s.lack(receiver) >= s.one {
				s.give(giver, s.group[receiver])
			}
			if s.spare(giver) < s.one {
				break
			}
		}
		s.givers = slices.DeleteFunc(s.givers, func(z int) bool { return z == giver })
	}
}

// localShared returns no groups if the result is balanced.
func (s *steps) localShared() []stepGroup {
	if s.count < len(s.endpoints) {
		return nil
	}
	// 1. The needs.
	merged, mergedWeights, mergedExpected := s.nothing(), s.nothing(), 0
	needs := s.nothing()
	for z, endpoints := range s.endpoints {
		if endpoints == 0 {
			mergedExpected += s.expected[z]
			mergedWeights[z] = s.weight
		} else {
			needs[z] = max(0, s.lack(z)/s.one)
		}
	}
	mergedNeeds := 0
	if mergedExpected > 0 {
		mergedNeeds = max(1, (2*mergedExpected+s.one)/(2*s.one))
	}
	// 2. Each zone gets its need.
	for range mergedNeeds {
		giver := s.firstGiver(anyGiver)
		if giver < 0 {
			return nil
		}
		s.give(giver, merged)
	}
	for z, need := range needs {
		for range need {
			giver := s.firstGiver(func(giver int) bool { return giver != z })
			if giver < 0 {
				return nil
			}
			s.give(giver, s.group[z])
		}
	}
	// 3. Urgent zones.
	receivers := slices.DeleteFunc(s.receivers(), func(z int) bool { return s.endpoints[z] == 0 })
	var urgent []int
	for len(receivers) > 0 && !s.below(s.expected[receivers[0]], sum(s.group[receivers[0]])) {
		urgent, receivers = append(urgent, receivers[0]), receivers[1:]
	}
	shared, sharedWeights := s.nothing(), s.nothing()
	for sum(shared) < len(urgent) {
		giver := s.firstGiver(func(giver int) bool { return s.spare(giver) >= s.one })
		if giver < 0 {
			break
		}
		s.give(giver, shared)
	}
	if sum(shared) == len(urgent) {
		for _, z := range urgent {
			for home := range shared {
				if shared[home] > 0 {
					shared[home]--
					s.group[z][home]++
					break
				}
			}
		}
	} else {
		expected := 0
		for _, z := range urgent {
			for home, members := range s.group[z] {
				shared[home] += members
			}
			s.group[z] = s.nothing()
			sharedWeights[z] = s.weight
			expected += s.expected[z]
		}
		for !s.below(expected, sum(shared)) {
			giver := s.firstGiver(anyGiver)
			if giver < 0 {
				return nil
			}
			s.give(giver, shared)
		}
	}
	// 4. The rest of the givers' spare endpoints.
	for len(receivers) > 0 {
		giver := s.firstGiver(anyGiver)
		if giver < 0 || s.spare(giver) < s.one {
			break
		}
		if receivers[0] != giver {
			s.give(giver, s.group[receivers[0]])
		}
		receivers = receivers[1:]
	}
	return append(s.own(), stepGroup{merged, mergedWeights}, stepGroup{shared, sharedWeights})
}

// localWeighted shares endpoints in exact parts.
func (s *steps) localWeighted() []stepGroup {
	wholeSpare, wholeNeeds := s.nothing(), s.nothing()
	partSpare, partNeeds := s.nothing(), s.nothing()
	for z := range s.endpoints {
		if s.spare(z) >= 0 {
			wholeSpare[z], partSpare[z] = s.spare(z)/s.one, s.spare(z)%s.one
			s.group[z][z] = s.expected[z] / s.one
		} else {
			wholeNeeds[z], partNeeds[z] = s.lack(z)/s.one, s.lack(z)%s.one
		}
	}
	s.fill(wholeNeeds, wholeSpare)
	// The remaining endpoints are shared, one group for each.
	var shared []stepGroup
	share := func(home, ownParts int) {
		g := stepGroup{s.nothing(), s.nothing()}
		g.members[home] = 1
		g.weights[home] = ownParts
		shared = append(shared, g)
	}
	for home := range s.endpoints {
		if partSpare[home] > 0 {
			share(home, s.one-partSpare[home])
		}
	}
	for home := range s.endpoints {
		for range wholeSpare[home] {
			share(home, 0)
		}
	}
	consume := func(z, parts int) {
		for i := range shared {
			amount := min(parts, s.one-sum(shared[i].weights))
			shared[i].weights[z] += amount
			parts -= amount
		}
	}
	for z := range s.endpoints {
		consume(z, partNeeds[z])
	}
	for z := range s.endpoints {
		consume(z, wholeNeeds[z]*s.one)
	}
	return append(s.own(), shared...)
}

// localOpt shares all endpoints beyond whole ones among all zones.
func (s *steps) localOpt() []stepGroup {
	rest, needs := s.nothing(), s.nothing()
	for z, endpoints := range s.endpoints {
		floor := s.expected[z] / s.one
		rest[z], needs[z] = max(0, endpoints-floor), max(0, floor-endpoints)
		s.group[z][z] = min(endpoints, floor)
	}
	s.fill(needs, rest)
	s.weight = len(s.endpoints)
	global := stepGroup{rest, s.nothing()}
	for z := range global.weights {
		global.weights[z] = 1
	}
	return append(s.own(), global)
}

// fill moves whole endpoints to the zones that need them, both in the order of names. It empties a
// giver before the next.
func (s *steps) fill(needs, rest []int) {
	for receiver := range needs {
		for giver := range rest {
			amount := min(needs[receiver], rest[giver])
			needs[receiver] -= amount
			rest[giver] -= amount
			s.group[receiver][giver] += amount
		}
	}
}

// expectedGroups returns the groups that the steps of an algorithm give, by consumers, as
// plannedGroups does. It returns none if the result is balanced.
func expectedGroups(algorithm allocate.Algorithm, capacity, endpoints []int) map[string][]int {
	s := newSteps(capacity, endpoints)
	var groups []stepGroup
	switch algorithm {
	case allocate.Local:
		groups = s.local()
	case allocate.LocalShared:
		groups = s.localShared()
	case allocate.LocalWeighted:
		groups = s.localWeighted()
	case allocate.LocalOpt:
		groups = s.localOpt()
	}
	if groups == nil || s.count == 0 || s.overloaded(groups) {
		return nil
	}
	byConsumers := map[string][]int{}
	for _, g := range groups {
		var consumers strings.Builder
		for z, weight := range g.weights {
			if weight > 0 {
				fmt.Fprintf(&consumers, "%d*%.6f ", z, float64(weight)/float64(s.weight))
			}
		}
		add(byConsumers, consumers.String(), g.members)
	}
	return byConsumers
}

func add(byConsumers map[string][]int, consumers string, members []int) {
	if sum(members) == 0 {
		return
	}
	if byConsumers[consumers] == nil {
		byConsumers[consumers] = make([]int, len(members))
	}
	for home, count := range members {
		byConsumers[consumers][home] += count
	}
}

// overloaded reports whether an endpoint has 1.5 times the even share or more. No algorithm uses
// such a plan.
func (s *steps) overloaded(groups []stepGroup) bool {
	width := s.nothing() // consumed endpoints by zone, by weight
	for _, g := range groups {
		for z, weight := range g.weights {
			width[z] += weight * sum(g.members)
		}
	}
	for _, g := range groups {
		load := 0.0
		for z, weight := range g.weights {
			if weight > 0 && sum(g.members) > 0 {
				load += float64(s.expected[z]) * float64(weight) / float64(width[z])
			}
		}
		if load >= 1.5*float64(s.one)-1e-6 {
			return true
		}
	}
	return false
}

// plannedGroups returns the groups of the package's plan, by consumers. It returns none if the
// result is balanced.
func plannedGroups(t testing.TB, planner *allocate.Planner, algorithm allocate.Algorithm, capacity, endpoints []int) map[string][]int {
	var r allocate.Region
	for z := range capacity {
		r.Zones = append(r.Zones, allocate.Zone{Name: string(rune('a' + z)), Capacity: float64(capacity[z]), Endpoints: endpoints[z]})
	}
	plan, outcome, err := planner.Allocate(r, allocate.Intent{Bound: bound(algorithm)}, allocate.Previous{})
	if err != nil {
		t.Fatal(err)
	}
	if outcome.IsBalanced() {
		return nil
	}
	byConsumers := map[string][]int{}
	for _, g := range plan.Groups {
		var consumers strings.Builder
		for _, c := range g.Consumers {
			fmt.Fprintf(&consumers, "%d*%.6f ", c.Zone, c.Weight)
		}
		members := make([]int, len(endpoints))
		for _, m := range g.Members {
			members[m.Zone] = m.Endpoints
		}
		add(byConsumers, consumers.String(), members)
	}
	return byConsumers
}

// stepCases calls visit for every case of a set.
type stepCases func(visit func(capacity, endpoints []int))

// publishedCases draws cases as in the published data set: three zones with 1 to 10 nodes and up to
// 100 endpoints each, both in ascending order.
func publishedCases(count int) stepCases {
	return func(visit func(capacity, endpoints []int)) {
		random := rand.New(rand.NewPCG(1, 1))
		for range count {
			capacity, endpoints := draw(random, 3, 1, 10), draw(random, 3, 0, 100)
			slices.Sort(capacity)
			slices.Sort(endpoints)
			visit(capacity, endpoints)
		}
	}
}

// allCases visits all cases of three zones with up to so many nodes and endpoints each.
func allCases(nodes, most int) stepCases {
	return func(visit func(capacity, endpoints []int)) {
		for i := range nodes * nodes * nodes {
			capacity := []int{1 + i%nodes, 1 + i/nodes%nodes, 1 + i/nodes/nodes}
			for j := range (most + 1) * (most + 1) * (most + 1) {
				visit(capacity, []int{j % (most + 1), j / (most + 1) % (most + 1), j / (most + 1) / (most + 1)})
			}
		}
	}
}

// manyZones draws cases of two to six zones. Some zones have no endpoints.
func manyZones(count int) stepCases {
	return func(visit func(capacity, endpoints []int)) {
		random := rand.New(rand.NewPCG(2, 1))
		for i := range count {
			zones := 2 + i%5
			endpoints := draw(random, zones, 0, []int{4, 20, 100}[random.IntN(3)])
			for z := range endpoints {
				if random.IntN(5) == 0 {
					endpoints[z] = 0
				}
			}
			visit(draw(random, zones, 1, 10), endpoints)
		}
	}
}

func draw(random *rand.Rand, count, least, most int) []int {
	numbers := make([]int, count)
	for i := range numbers {
		numbers[i] = least + random.IntN(most-least+1)
	}
	return numbers
}

// The proposal's algorithms give the groups of its steps.
func TestPlansFollowTheSteps(t *testing.T) {
	sample, nodes, most := 4_000, 4, 5
	if os.Getenv("E2E_SOAK") != "" {
		sample, nodes, most = 20_000, 5, 9
	}
	for _, set := range []struct {
		name  string
		cases stepCases
	}{
		{"published", publishedCases(sample)},
		{"all of a small grid", allCases(nodes, most)},
		{"two to six zones", manyZones(sample)},
	} {
		for _, algorithm := range []allocate.Algorithm{allocate.Local, allocate.LocalShared, allocate.LocalWeighted, allocate.LocalOpt} {
			t.Run(set.name+"/"+string(algorithm), func(t *testing.T) {
				var planner allocate.Planner
				cases, differ := 0, 0
				set.cases(func(capacity, endpoints []int) {
					cases++
					want := expectedGroups(algorithm, capacity, endpoints)
					got := plannedGroups(t, &planner, algorithm, capacity, endpoints)
					if !maps.EqualFunc(got, want, slices.Equal[[]int]) {
						if differ++; differ <= 5 {
							t.Errorf("nodes %v, endpoints %v: groups %v, by the steps %v", capacity, endpoints, got, want)
						}
					}
				})
				t.Logf("%d of %d cases agree, %.2f %%", cases-differ, cases, 100*float64(cases-differ)/float64(cases))
			})
		}
	}
}
