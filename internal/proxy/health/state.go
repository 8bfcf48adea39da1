// Package health tells load balancers, the kubelet and people whether a node's proxy works, in the words of
// kube-proxy, and how many endpoints of a Service are on the node. It does not decide what is programmed.
package health

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
)

// Timeout is how long a change may wait while the proxy counts as healthy.
const Timeout = 2 * time.Minute

// taintToBeDeleted is set by the cluster autoscaler before it removes a node.
const taintToBeDeleted = "ToBeDeletedByClusterAutoscaler"

// State is the state of the proxy. Any goroutine may call its methods.
type State struct {
	clock clock.PassiveClock

	mu       sync.Mutex
	updated  map[corev1.IPFamily]time.Time
	waiting  map[corev1.IPFamily]time.Time // since when, of the oldest change
	eligible bool
}

// NewState makes a state that is healthy, so that the proxy has time to start.
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

// Updated notes that all changes until now are programmed.
func (s *State) Updated(families ...corev1.IPFamily) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, family := range families {
		delete(s.waiting, family)
		s.updated[family] = s.clock.Now()
	}
}

// SetNode stores the own Node, nil if there is none.
func (s *State) SetNode(node *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.eligible = stays(node)
}

// stays reports whether a node should get traffic of load balancers.
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

type familyReport struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

// report is the answer to health checks, with the names of kube-proxy's.
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
