// Package health answers health checks: of a node's proxy, in the format of kube-proxy, and of load balancers about the
// endpoints of a Service that the node has or reaches. It decides no rules.
package health

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Timeout is how long a change may wait before the proxy is unhealthy.
const Timeout = 2 * time.Minute

// taintToBeDeleted is the taint of the cluster autoscaler on a node that it is about to remove.
const taintToBeDeleted = "ToBeDeletedByClusterAutoscaler"

// State is the state of the proxy. Any goroutine may call its methods.
type State struct {
	clock clock.PassiveClock

	mu       sync.Mutex
	updated  map[corev1.IPFamily]time.Time
	waiting  map[corev1.IPFamily]time.Time // when the oldest waiting change was queued
	eligible bool
	reaches  map[types.NamespacedName]Reach // of the Services that the proxy serves
}

// NewState returns a healthy state, so that the proxy has time to start.
func NewState(c clock.PassiveClock) *State {
	return &State{clock: c, updated: map[corev1.IPFamily]time.Time{}, waiting: map[corev1.IPFamily]time.Time{}, reaches: map[types.NamespacedName]Reach{}}
}

// Queued records that a change waits to be programmed.
func (s *State) Queued(families ...corev1.IPFamily) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, family := range families {
		if _, waits := s.waiting[family]; !waits {
			s.waiting[family] = s.clock.Now()
		}
	}
}

// Updated records that all changes are programmed.
func (s *State) Updated(families ...corev1.IPFamily) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, family := range families {
		delete(s.waiting, family)
		s.updated[family] = s.clock.Now()
	}
}

// SetNode sets the own Node, nil if it is deleted.
func (s *State) SetNode(node *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.eligible = isEligible(node)
}

// isEligible reports whether a node should get traffic of load balancers.
func isEligible(node *corev1.Node) bool {
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

// report is the answer to health checks, with the same fields as kube-proxy's.
type report struct {
	LastUpdated  time.Time                        `json:"lastUpdated"`
	CurrentTime  time.Time                        `json:"currentTime"`
	NodeEligible *bool                            `json:"nodeEligible,omitempty"`
	Healthy      bool                             `json:"healthy"`
	Status       map[corev1.IPFamily]familyReport `json:"status,omitempty"`
}

// Healthy reports whether no change waits too long.
func (s *State) Healthy() bool { return s.report().Healthy }

// Programmed reports whether a family has been programmed.
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
