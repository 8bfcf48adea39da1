package spread

import (
	"cmp"
	"math"
	"sort"
	"time"
)

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

// compareAge has what is younger before what is older. What has no time is the youngest.
func (r Ranking) compareAge(since, other time.Time, a, b *Pod) int {
	switch {
	case since.Equal(other):
		return 0
	case since.IsZero() || other.IsZero():
		return compareBool(!since.IsZero(), !other.IsZero())
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
