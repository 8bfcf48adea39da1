// Package spread decides in which order the pods of a Deployment should be deleted, so that the remaining pods are spread best over
// failure domains. Deletion costs make ReplicaSets delete them in that order. Package spread never decides how many pods go.
//
// # The promise
//
// With the costs of a Plan, a ReplicaSet deletes first the pod in the fullest domain, and there on the fullest node. All pods of the
// Deployment count, including those of its other ReplicaSets. So for any number of deleted pods, no other choice leaves a better
// spread: the fullest domain is as small, and the emptiest as large, as possible.
//
// A ReplicaSet ranks pods by other properties before costs: pods without a node, pending, of an unknown phase and unready
// pods go first (see Before). The promise holds within each of these classes. It also holds within the pods of domains without
// allowance, which go last, and within those with costs of other owners: pods with negative costs go before all that a Plan
// orders, and pods with other costs after the pods of domains with an allowance.
//
// # Costs
//
// The pods of a domain have levels: the pod at level 1 goes last. The cost of a pod is its negative level. So pods of one level
// go in any order, and a new pod of a domain changes no other cost. The pods of other ReplicaSets lie below: a new
// one moves the levels of its domain.
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
	Name   string // unique
	Set    string // the ReplicaSet
	Node   string // empty without one
	Domain string // of the node
	Phase  Phase
	Ready  bool
	// Cost is the deletion cost, 0 by default. Foreign says that another owner set it.
	Cost    int32
	Foreign bool
	// Blocked says that the domain has no allowance: a budget would refuse the eviction.
	Blocked bool

	// Only Ranking uses these.
	UID                       string
	ReadySince, Created       time.Time
	Restarts, SidecarRestarts int // of the container with the most restarts
}

// class is a set of pods that a ReplicaSet ranks by cost.
type class struct {
	assigned bool
	phase    Phase
	ready    bool
}

func classOf(p *Pod) class { return class{p.Node != "", p.Phase, p.Ready} }

// compare is negative if pods of class a go before those of class b.
func (a class) compare(b class) int {
	return cmp.Or(bools.Compare(a.assigned, b.assigned), cmp.Compare(a.phase, b.phase), bools.Compare(a.ready, b.ready))
}

// occupancy counts the pods of domains and nodes.
type occupancy struct {
	domains, nodes map[string]int
}

func newOccupancy() occupancy { return occupancy{map[string]int{}, map[string]int{}} }

// add counts a pod with a node.
func (o occupancy) add(p *Pod) {
	if p.Node == "" {
		return
	}
	o.domains[p.Domain]++
	o.nodes[p.Node]++
}

// Ranking ranks pods as ReplicaSets do.
type Ranking struct {
	now time.Time
	// onNode counts, by node, the pods of all ReplicaSets of the owner.
	onNode map[string]int
}

// NewRanking makes the ranking of all pods of a Deployment.
func NewRanking(pods []Pod, now time.Time) Ranking {
	r := Ranking{now, map[string]int{}}
	for i := range pods {
		r.onNode[pods[i].Node]++ // ReplicaSets count pods without a node, too
	}
	return r
}

// Before reports whether a ReplicaSet deletes pod a before pod b. By the first difference in this list, the first pod is the one that
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
// Ages count by their binary magnitude. If the magnitudes are equal and the times are not, the lower UID decides, and the rest of the
// list does not count. So three pods may each go before the next one, in a circle.
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

// TellsApart reports whether a ReplicaSet distinguishes two pods before it compares restarts and ages.
func (r Ranking) TellsApart(a, b *Pod) bool {
	return classOf(a) != classOf(b) || a.Cost != b.Cost || r.onNode[a.Node] != r.onNode[b.Node]
}

// compareAge orders the younger before the older. A missing time is the youngest.
func (r Ranking) compareAge(since, other time.Time, a, b *Pod) int {
	switch {
	case since.Equal(other):
		return 0
	case since.IsZero() || other.IsZero():
		return bools.Compare(!since.IsZero(), !other.IsZero())
	}
	return cmp.Or(cmp.Compare(r.magnitude(since), r.magnitude(other)), cmp.Compare(a.UID, b.UID), 1)
}

// magnitude returns the binary logarithm of the age of a time, -1 for a future time.
func (r Ranking) magnitude(t time.Time) int {
	ago := r.now.Sub(t)
	if ago <= 0 {
		return -1
	}
	return int(math.Log2(float64(ago)))
}

// Removed returns the n pods that a ReplicaSet deletes first, in order. Of pods that its ranking does not distinguish, it may delete
// another one.
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
