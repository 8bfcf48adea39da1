package simulate

import (
	"math"
	"math/rand/v2"

	"vicinity.dev/vicinity/internal/allocate"
)

// upstreamRouter models the heuristic of the annotation topology-mode: Auto, as in the
// EndpointSlice controller of Kubernetes (k8s.io/endpointslice 0.37). It models these rules:
//
// A change of endpoints makes the controller lay out the slices again. Slices that change lose all
// their hints, and each of their endpoints is first hinted to its own zone. Slices that do not
// change keep their hints, unless a hint names a zone without nodes, or a zone would get more than
// the other zones' minimums leave for it.
//
// Zones with more endpoints than they should have then give endpoints of the changed slices to
// zones with fewer.
//
// A change of nodes alone affects only a Service that has hints, and only if a zone has too few
// endpoints by the new shares.
//
// The safeguards remove all hints: fewer than two zones with nodes, fewer endpoints than such
// zones, or minimums that exceed the endpoints.
//
// Where the controller follows the order of a map, the seed decides: the order of slices, of new
// endpoints, and of zones that have equally much to give or to receive, and which zone that lacks
// an endpoint gets the next one.
//
// It does not model control-plane nodes, nodes without a zone or CPU (each node counts the same),
// endpoints without a zone, terminating endpoints, several address families, batching of changes,
// and other writes to the slices. As with kube-proxy, traffic of a zone without hints goes to all
// endpoints.
type upstreamRouter struct {
	random *rand.Rand
	ledger ledger
	// hinted is the number of endpoints by zone when hints were last written, nil without hints.
	hinted []int
}

func newUpstreamRouter(o DynamicsOptions) *upstreamRouter {
	return &upstreamRouter{
		random: rand.New(rand.NewPCG(o.Seed, 0)),
		ledger: ledger{perSlice: o.SliceSize},
	}
}

func (r *upstreamRouter) react(w *world, touched touched) (reaction, error) {
	written := 0
	if touched.endpoints || r.hinted != nil && r.short(w) {
		r.sync(w)
		written = r.ledger.written()
	}
	return reaction{plan: r.plan(w), allocated: r.hinted != nil, written: written}, nil
}

// sync is one round of the controller.
func (r *upstreamRouter) sync(w *world) {
	r.random.Shuffle(len(r.ledger.slices), func(i, j int) {
		r.ledger.slices[i], r.ledger.slices[j] = r.ledger.slices[j], r.ledger.slices[i]
	})
	r.ledger.layOut(w.endpoints, oneKind, r.random.Shuffle)
	minimum, ok := minimums(w)
	if !ok {
		r.withdraw(w)
		return
	}
	sets := make([]allocate.ConsumerSet, len(w.names))
	zones := make(map[allocate.ConsumerSet]int, len(w.names))
	for z, name := range w.names {
		sets[z] = allocate.NewConsumerSet(name)
		zones[sets[z]] = z
	}
	hinted := r.keep(w, minimum, zones)
	changing := r.changing()
	for _, s := range changing {
		for i := range s.entries {
			home := w.zone(w.endpoints[s.entries[i].endpoint].Zone)
			s.entries[i].hint = sets[home]
			hinted[home]++
		}
	}
	give, receive := r.exchange(w, minimum, hinted)
	for _, s := range changing {
		for i := range s.entries {
			home := w.zone(w.endpoints[s.entries[i].endpoint].Zone)
			if give[home] == 0 {
				continue
			}
			if to := mostOf(r.random, receive, func(n int) float64 { return float64(min(n, 1)) }); to >= 0 {
				s.entries[i].hint = sets[to]
				give[home]--
				receive[to]--
				hinted[home]--
				hinted[to]++
			}
		}
	}
	r.hinted = hinted
	for _, s := range r.ledger.slices {
		for _, entry := range s.entries {
			w.endpoints[entry.endpoint].Assigned = entry.hint
		}
	}
}

// withdraw removes all hints.
func (r *upstreamRouter) withdraw(w *world) {
	r.hinted = nil
	for _, s := range r.ledger.slices {
		for i := range s.entries {
			if entry := &s.entries[i]; !entry.hint.IsZero() {
				entry.hint = allocate.ConsumerSet{}
				s.touch()
			}
		}
	}
	for i := range w.endpoints {
		w.endpoints[i].Assigned = allocate.ConsumerSet{}
	}
}

// autoOverload is the overload that upstream plans for.
const autoOverload = allocate.DefaultAutoOverloadThreshold

// minimums returns the minimum number of endpoints for each zone, if the safeguards allow hints.
func minimums(w *world) (minimum []int, ok bool) {
	zones, nodes := w.capacity()
	if zones < 2 || zones > len(w.endpoints) {
		return nil, false
	}
	minimum = make([]int, len(w.nodes))
	sum := 0
	for z := range w.nodes {
		minimum[z] = leastEndpoints(len(w.endpoints), w.nodes[z], nodes)
		sum += minimum[z]
	}
	return minimum, sum <= len(w.endpoints)
}

// leastEndpoints rounds as upstream does.
func leastEndpoints(endpoints, nodes, allNodes int) int {
	share := float64(nodes) / float64(allNodes)
	return int(math.Ceil(share * float64(endpoints) * (1 / (1 + autoOverload))))
}

// short reports whether a zone has too few of the endpoints that have hints.
func (r *upstreamRouter) short(w *world) bool {
	zones, nodes := w.capacity()
	if zones < 2 {
		return true
	}
	endpoints := 0
	for _, n := range r.hinted {
		endpoints += n
	}
	for z, n := range r.hinted {
		if n < leastEndpoints(endpoints, w.nodes[z], nodes) {
			return true
		}
	}
	return false
}

// keep counts the hints of slices that can stay unchanged, by zone. It marks the other slices as
// changed.
func (r *upstreamRouter) keep(w *world, minimum []int, zones map[allocate.ConsumerSet]int) []int {
	spare := len(w.endpoints)
	for _, n := range minimum {
		spare -= n
	}
	hinted := make([]int, len(w.names))
	for _, s := range r.ledger.slices {
		if s.status != unchanged {
			continue
		}
		own := make([]int, len(w.names))
		for _, entry := range s.entries {
			z, there := zones[entry.hint]
			if !there || w.nodes[z] == 0 {
				s.touch()
				break
			}
			own[z]++
		}
		for z, n := range own {
			if n > 0 && hinted[z]+n > minimum[z]+spare {
				s.touch()
			}
		}
		if s.status == unchanged {
			for z, n := range own {
				hinted[z] += n
			}
		}
	}
	return hinted
}

// changing lists the slices that are written, new ones first.
func (r *upstreamRouter) changing() []*ledgerSlice {
	var list []*ledgerSlice
	for _, status := range []sliceStatus{created, updated} {
		for _, s := range r.ledger.slices {
			if s.status == status {
				list = append(list, s)
			}
		}
	}
	return list
}

// exchange returns how many endpoints each zone should give and receive. Zones without nodes do
// neither.
func (r *upstreamRouter) exchange(w *world, minimum, hinted []int) (give, receive []int) {
	_, nodes := w.capacity()
	n := len(w.names)
	give, receive = make([]int, n), make([]int, n)
	over, under := make([]float64, n), make([]float64, n)
	for z := range w.names {
		if w.nodes[z] == 0 {
			continue
		}
		desired := max(float64(w.nodes[z])/float64(nodes)*float64(len(w.endpoints)), float64(minimum[z]))
		over[z] = float64(hinted[z]) - desired
		under[z] = -over[z]
	}
	same := func(x float64) float64 { return x }
	for {
		from, to := mostOf(r.random, over, same), mostOf(r.random, under, same)
		if from < 0 || to < 0 || over[from] < 1 && under[to] < 1 || over[from] < 0.5 || under[to] < 0.5 {
			return give, receive
		}
		give[from]++
		over[from]--
		receive[to]++
		under[to]--
	}
}

// mostOf returns the index of the greatest size above zero, or -1. If several are equal it picks
// one at random.
func mostOf[T any](random *rand.Rand, list []T, size func(T) float64) int {
	best, greatest, ties := -1, 0.0, 0
	for i := range list {
		switch n := size(list[i]); {
		case n > greatest:
			best, greatest, ties = i, n, 1
		case n == greatest && n > 0:
			ties++
			if random.IntN(ties) == 0 {
				best = i
			}
		}
	}
	return best
}

// plan returns the hints as counts.
func (r *upstreamRouter) plan(w *world) allocate.Plan {
	if r.hinted == nil {
		undivided := allocate.Group{}
		for z, zone := range w.region().Zones {
			if zone.Endpoints > 0 {
				undivided.Members = append(undivided.Members, allocate.Member{Zone: z, Endpoints: zone.Endpoints})
			}
			undivided.Consumers = append(undivided.Consumers, allocate.Consumer{Zone: z, Weight: 1})
		}
		return allocate.Plan{Zones: w.names, Groups: []allocate.Group{undivided}}
	}
	plan := allocate.Survivors(w.endpoints)
	for i := range plan.Groups {
		g := &plan.Groups[i]
		for m := range g.Members {
			g.Members[m].Zone = w.zone(plan.Zones[g.Members[m].Zone])
		}
		for c := range g.Consumers {
			g.Consumers[c].Zone = w.zone(plan.Zones[g.Consumers[c].Zone])
		}
	}
	plan.Zones = w.names
	return plan
}
