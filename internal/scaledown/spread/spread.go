// Package spread says in which order the pods of a Deployment should go, so that the pods that stay are spread best over failure
// domains. Deletion costs make ReplicaSets delete them in that order. Package spread never decides how many pods go.
//
// # What is promised
//
// Of the pods that a ReplicaSet could delete next, the first by its own ranking with the costs of a Plan is
// in the fullest domain, and there on the fullest node. All pods of the Deployment count, those of its other
// ReplicaSets too. So whatever number of pods it deletes, no other choice leaves a better spread: the fullest domain is
// as small, and the emptiest as large, as they can be.
//
// A ReplicaSet ranks pods by other things before it looks at costs: pods without a node, pending, of an unknown phase and unready
// pods go first (see Before). The promise holds within each of these classes. It also holds within the pods of domains without
// allowance, which go last, and within those whose cost another owner has set: negative costs go before all that a Plan
// orders, and other costs after the pods of domains with an allowance.
//
// # Costs
//
// The pods of a domain have levels: the pod at level 1 goes last. The cost of a pod is its level with a minus. So pods of one level
// go in any order, and a pod that comes to a domain changes no other cost. The pods of other ReplicaSets lie below: one that
// comes moves the levels of its domain.
package spread

import (
	"cmp"
	"math"
	"sort"
	"time"

	"vicinity.dev/vicinity/internal/kit/bools"
)

// Phase is how far a pod has come, in the order in which ReplicaSets delete pods.
type Phase int

// The phases.
const (
	Pending Phase = iota
	Unknown
	Running
)

// Pod is a pod that is neither terminating nor finished.
type Pod struct {
	Name   string // which no other pod has
	Set    string // the ReplicaSet
	Node   string // empty without one
	Domain string // that of the node
	Phase  Phase
	Ready  bool
	// Cost is the deletion cost, 0 if none is set. Foreign says that another owner set it.
	Cost    int32
	Foreign bool
	// Blocked says that its domain has no allowance: a budget would refuse its eviction.
	Blocked bool

	// ReplicaSets also rank pods by these. A Plan does not need them.
	UID                       string
	ReadySince, Created       time.Time
	Restarts, SidecarRestarts int // those of the container that restarted most
}

// class is a set of pods among which the cost decides which goes first.
type class struct {
	assigned bool
	phase    Phase
	ready    bool
}

func classOf(p *Pod) class { return class{p.Node != "", p.Phase, p.Ready} }

// compare is negative if pods of the first class go before those of the second one.
func (a class) compare(b class) int {
	return cmp.Or(bools.Compare(a.assigned, b.assigned), cmp.Compare(a.phase, b.phase), bools.Compare(a.ready, b.ready))
}

// occupancy is how many pods there are.
type occupancy struct {
	domains, nodes map[string]int
}

func newOccupancy() occupancy { return occupancy{map[string]int{}, map[string]int{}} }

// add counts a pod, if it has a node.
func (o occupancy) add(p *Pod) {
	if p.Node == "" {
		return
	}
	o.domains[p.Domain]++
	o.nodes[p.Node]++
}

// Ranking is how ReplicaSets rank pods.
type Ranking struct {
	now time.Time
	// onNode is how many pods of all ReplicaSets of the same owner are on a node.
	onNode map[string]int
}

// NewRanking returns the ranking of the pods of a Deployment, those of all of its ReplicaSets.
func NewRanking(pods []Pod, now time.Time) Ranking {
	r := Ranking{now, map[string]int{}}
	for i := range pods {
		r.onNode[pods[i].Node]++ // also without a node, as ReplicaSets count
	}
	return r
}

// Before reports whether a ReplicaSet deletes a pod rather than another one. By the first of these that
// differs, that pod goes which
//
//   - has no node,
//   - is pending, or else of an unknown phase,
//   - is not ready,
//   - has the lower deletion cost,
//   - shares its node with more pods,
//   - became ready later, if both are ready,
//   - has a container that restarted more often; of sidecars only if that is equal,
//   - is younger.
//
// How long ago something happened counts by its binary magnitude; where that is equal and the
// times are not, the lower UID decides, as if by chance, and what comes later in the list does not count.
// That is why there may be three pods each of which goes before the next one, in a circle.
func (r Ranking) Before(a, b *Pod) bool {
	order := cmp.Or(
		classOf(a).compare(classOf(b)),
		cmp.Compare(a.Cost, b.Cost),
		cmp.Compare(r.onNode[b.Node], r.onNode[a.Node]),
	)
	if order == 0 && a.Ready && b.Ready {
		order = r.compareAge(a.ReadySince, b.ReadySince, a, b)
	}
	return cmp.Or(order,
		cmp.Compare(b.Restarts, a.Restarts),
		cmp.Compare(b.SidecarRestarts, a.SidecarRestarts),
		r.compareAge(a.Created, b.Created, a, b),
	) < 0
}

// TellsApart reports whether a ReplicaSet tells two pods apart before it looks at restarts and ages.
func (r Ranking) TellsApart(a, b *Pod) bool {
	return classOf(a) != classOf(b) || a.Cost != b.Cost || r.onNode[a.Node] != r.onNode[b.Node]
}

// compareAge has what is younger before what is older. What has no time is the youngest.
func (r Ranking) compareAge(since, other time.Time, a, b *Pod) int {
	switch {
	case since.Equal(other):
		return 0
	case since.IsZero() || other.IsZero():
		return bools.Compare(!since.IsZero(), !other.IsZero())
	}
	return cmp.Or(cmp.Compare(r.magnitude(since), r.magnitude(other)), cmp.Compare(a.UID, b.UID), 1)
}

// magnitude is the binary logarithm of how long ago a time is, -1 for what is to come.
func (r Ranking) magnitude(t time.Time) int {
	ago := r.now.Sub(t)
	if ago <= 0 {
		return -1
	}
	return int(math.Log2(float64(ago)))
}

// Removed are the pods that a ReplicaSet deletes, the first one first, if it has so many too many. Where
// its ranking does not tell two pods apart, it may choose the other one.
func Removed(pods []Pod, set string, n int, now time.Time) []Pod {
	var own []Pod
	for i := range pods {
		if pods[i].Set == set {
			own = append(own, pods[i])
		}
	}
	r := NewRanking(pods, now)
	sort.Slice(own, func(i, j int) bool { return r.Before(&own[i], &own[j]) })
	return own[:min(n, len(own))]
}
