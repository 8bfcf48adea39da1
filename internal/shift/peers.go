package shift

import (
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// judgeTime is how long a leader may take to accept or refuse a ZoneShift. Without an answer its writes may hang.
const judgeTime = 5 * time.Second

// Leaves reports whether replicas of Vicinity leave the domain of a ZoneShift. They leave before it is accepted.
func Leaves(zs *v1alpha1.ZoneShift, now time.Time) bool {
	accepted := meta.FindStatusCondition(zs.Status.Conditions, v1alpha1.Accepted)
	if accepted == nil && now.Sub(zs.CreationTimestamp.Time) < judgeTime || accepted != nil && accepted.Status == metav1.ConditionFalse {
		return false
	}
	return zs.DeletionTimestamp == nil && now.Before(Until(zs))
}

// Peers are the ready replicas of Vicinity and the ZoneShifts whose domains they leave.
type Peers struct {
	Leaving []*v1alpha1.ZoneShift
	Ready   []*discoveryv1.Endpoint
	Cluster *intent.Cluster
}

// ShiftOf returns the ZoneShift whose domain a replica leaves, nil if there is none.
func (p *Peers) ShiftOf(replica *discoveryv1.Endpoint) *v1alpha1.ZoneShift {
	for _, zs := range p.Leaving {
		if domain := Begun(zs); domain.HoldsEndpoint(replica, p.Cluster) {
			return zs
		}
	}
	return nil
}

// Count returns how many replicas leave domains, and how many stay. If replicas of two domains counted on each other, all would
// leave.
func (p *Peers) Count() (leaving, staying int) {
	for _, replica := range p.Ready {
		if p.ShiftOf(replica) != nil {
			leaving++
		}
	}
	return leaving, len(p.Ready) - leaving
}
