// Package health tells load balancers, the kubelet and people whether a node's proxy does
// its work: the state of the proxy as a whole, in the words that kube-proxy answers with,
// and how many endpoints of a Service are on the node, at the port that the Service gives
// for the checks of its load balancer. It does not decide what is programmed.
package health

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
)

// Timeout is for how long a change may wait to be programmed until the proxy counts as
// unhealthy.
const Timeout = 2 * time.Minute

// taintToBeDeleted is how the cluster autoscaler marks a node that it is about to remove.
const taintToBeDeleted = "ToBeDeletedByClusterAutoscaler"

// State is what is known of the proxy's own work. Its methods may be called by several
// goroutines.
type State struct {
	clock clock.PassiveClock

	mu       sync.Mutex
	updated  map[corev1.IPFamily]time.Time
	waiting  map[corev1.IPFamily]time.Time // since when, of the oldest change
	eligible bool
}

// NewState is the state of a proxy that has done nothing yet: it is healthy, so that it is
// left time to start.
func NewState(c clock.PassiveClock) *State {
	return &State{clock: c, updated: map[corev1.IPFamily]time.Time{}, waiting: map[corev1.IPFamily]time.Time{}}
}

// Queued notes that a change waits to be programmed.
func (s *State) Queued(families ...corev1.IPFamily) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, family := range families {
		if _, waits := s.waiting[family]; !waits {
			s.waiting[family] = s.clock.Now()
		}
	}
}

// Updated notes that all changes were programmed that had come until then.
func (s *State) Updated(families ...corev1.IPFamily) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, family := range families {
		delete(s.waiting, family)
		s.updated[family] = s.clock.Now()
	}
}

// SetNode notes what the API says of the proxy's own node, nil if there is none.
func (s *State) SetNode(node *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.eligible = stays(node)
}

// stays reports whether a node should get traffic of load balancers for the time being.
func stays(node *corev1.Node) bool {
	if node == nil || node.DeletionTimestamp != nil {
		return false
	}
	for i := range node.Spec.Taints {
		if node.Spec.Taints[i].Key == taintToBeDeleted {
			return false
		}
	}
	return true
}

// familyReport is what a Report says of a family.
type familyReport struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

// report is the answer to health checks. Its names are those of kube-proxy's.
type report struct {
	LastUpdated  time.Time                        `json:"lastUpdated"`
	CurrentTime  time.Time                        `json:"currentTime"`
	NodeEligible *bool                            `json:"nodeEligible,omitempty"`
	Healthy      bool                             `json:"healthy"`
	Status       map[corev1.IPFamily]familyReport `json:"status,omitempty"`
}

// Healthy reports whether no change waits for too long.
func (s *State) Healthy() bool { return s.report().Healthy }

// Programmed reports whether anything was programmed yet.
func (s *State) Programmed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.updated) > 0
}

func (s *State) report() report {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	made := report{CurrentTime: now, Healthy: true, Status: map[corev1.IPFamily]familyReport{}}
	for family, updated := range s.updated {
		made.Status[family] = familyReport{updated, true}
		if updated.After(made.LastUpdated) {
			made.LastUpdated = updated
		}
	}
	for family, since := range s.waiting {
		if now.Sub(since) >= Timeout {
			made.Status[family] = familyReport{s.updated[family], false}
			made.Healthy = false
		}
	}
	return made
}

func (s *State) nodeEligible() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.eligible
}
