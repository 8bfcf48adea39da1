// Package rollout decides how the pods of a workload are replaced, one failure domain after the other. Next says what to do
// now, as data. It takes pods down and never makes one: the controller of the workload does that. Package disruption decides
// whether a budget allows an eviction; what it says about each pod is part of the State.
//
// The invariant: the rollout never has more pods of a domain down than Spec.MaxUnavailable. It takes no healthy pod while that
// many pods of the domain are down for any reason that it sees, and takes down ready pods in the domains of the current wave
// only. A wave begins when all pods of the domains before it are healthy again. The invariant holds if the caller
//
//   - starts each step from the stored Memory, and stores Step.Memory before it does anything that the step says. The write
//     must fail if the stored Memory has changed meanwhile, also where nothing changed: a pod counts as down from before its
//     eviction is requested;
//   - gives the Pods of one moment, which are at least as new as those of the step that made the Memory. So the Memory is
//     stored with their version;
//   - gives a Revision that is not older than that of the Memory;
//   - evicts and deletes with the UID as a precondition. It deletes a pod, or evicts one with Target.IfUnready, only if a live
//     read says that the pod is not ready;
//   - sets Refusal.Denied only if the pod was there after the last request for it of any caller, and no request for it is under
//     way or standing. An outcome that is not known is no denial.
//
// A slot counts in the domain where its pod was taken down until it has a healthy pod, wherever that is.
//
// The rollout ends if pods become healthy and budgets allow it. A pod that is replaced stays in Memory until the pod that comes
// instead is healthy, so that a restarted controller counts as the one before did.
//
// # Deployments
//
// A Deployment asks no budget, and chooses by itself which pods its ReplicaSets delete: first those without a node, pending or
// not ready, then by deletion cost. With maxUnavailable: 0 it deletes as many old pods as there are new ones ready beyond its
// replicas. So a scheduling gate holds new pods. Each time that Step.Evict names a pod of a Surge, the caller
//
//   - reserves the pod with its budgets,
//   - gives it the lowest deletion cost, and
//   - releases a held pod into the slot, bound to Target.Domain. It does not if the slot has a new pod already that is not ready
//     yet, or if there are more pods than replicas: then the old pod is about to go.
//
// The pod counts as denied if it cannot be reserved and no pod was released for it. One uncertainty stays: an old pod of any
// domain that is not ready may go instead. No healthy pod is lost by that, and the old pod stays a replacement until another
// new pod has come. Nothing may be released while the cost of another owner is lower. A Deployment makes the oldest of its old
// ReplicaSets smaller first: a pod of another ReplicaSet is evicted, and its place is filled when it has gone.
package rollout

import (
	"time"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// Kind is how pods are replaced.
type Kind int

// The kinds.
const (
	// InPlace makes a new pod when the old one of its slot has gone, as a DaemonSet does, and a StatefulSet with parallel
	// pod management.
	InPlace Kind = iota
	// Ordered is InPlace, and makes no pod while one of an earlier slot is not ready, as a StatefulSet does by default.
	Ordered
	// Surge makes the new pod first, and deletes the old one when the new one is ready, as a Deployment does. The slot of
	// an old pod is its own name. A new pod is in the slot of the old pod that it was released for.
	Surge
)

// Amount is a number of pods, or a percentage of those of a domain.
type Amount struct {
	Value   int
	Percent bool
}

// Of returns the number of pods. It is at least one: with none, no rollout would end.
func (a Amount) Of(pods int) int {
	if !a.Percent {
		return max(1, a.Value)
	}
	return max(1, (a.Value*pods+99)/100)
}

// Spec says how to replace pods.
type Spec struct {
	Order          []string // domains that come first; the rest by name, "" last
	MaxUnavailable Amount   // of each domain
	Waves          Waves
	Bake           time.Duration // how long a wave must stay healthy
	PauseBefore    []string
	Approved       Approved
	Paused         bool
	ReadyFor       time.Duration // how long an updated pod must be ready to be healthy
	Deadline       time.Duration // how long a pod may take
	HasQuery       bool          // whether State.Query counts
	MaxOverload    *float64      // whether State.Overload counts, and up to what; 0.4 is 40 %
	// RollsBack replaces a failed revision by the one before. Without it the rollout waits.
	RollsBack bool
	Stop      Stop
}

// Waves say how many domains are updated at a time.
type Waves struct {
	// Exponential makes waves of 1, 2, 4, ... domains, as far as domains proved healthy. Most bounds them, unless it is 0.
	Exponential bool
	Most        int
	Domains     int // of each wave otherwise, 0 for 1
}

// Approved has what a person allows for one revision.
type Approved struct {
	Revision       string
	Domains        []string // of PauseBefore
	FailuresBefore time.Time
}

// Stop ends the rollout of one revision.
type Stop struct {
	Revision string
	Action   StopAction
}

// StopAction is how a rollout ends.
type StopAction int

// The actions.
const (
	Abort    StopAction = iota // leaves the pods as they are
	Rollback                   // restores the revision before
)

// State has all that a step depends on.
type State struct {
	Spec     Spec
	Kind     Kind
	Revision string // of new pods
	// Slots are the places where a pod is expected, in their order if the Kind has one. The controller of the workload is
	// about to remove pods of other slots, so Next leaves them alone.
	Slots []Slot
	Pods  []Pod
	// Refusals are by the UID of a pod.
	Refusals map[string]Refusal
	Query    Truth
	// Overload has what plans expect while a domain is empty, by domain. A missing domain is not known. Only those of
	// Step.Foresee count.
	Overload map[string]float64
	Memory   Memory
}

// Slot is what a pod shares with the pod that replaces it: the name in a StatefulSet, the node in a DaemonSet.
type Slot struct {
	Name string
	// Domain is where its pod must be. HasDomain is false if the pod can be in several domains.
	Domain    string
	HasDomain bool
}

// Pod is a pod of the workload.
type Pod struct {
	UID, Name, Slot string
	Revision        string
	Placed          bool   // it has a node
	Domain          string // of its node, or of the only place where it can be; "" without the label
	Terminating     bool   // or finished
	Ready           bool
	// Since is when it became ready or unready, or by when a terminating pod must be gone.
	Since time.Time
	// Released is when a pod of a Surge was released: it could not become ready before. It is zero if it was never held.
	Released time.Time
}

// Refusal says why a pod cannot be evicted now.
type Refusal struct {
	Reason string
	Until  time.Time // when to try again; zero while the refusal is here
	// Denied says that the eviction was requested, and was not admitted or was withdrawn. Otherwise it was not requested yet.
	Denied bool
}

// Truth is the result of a query.
type Truth int

// The results.
const (
	Unknown Truth = iota
	True
	False
)

// Memory is what has to be stored between steps: the status of the DomainRollout.
//
// Next reads and writes Phase, Revision, PreviousRevision, AbandonedRevisions, Wave, CurrentDomains, LastDomains, ProvenDomains,
// BakingSince, RollingBack, QueryPassed, Failure and Replacements. It writes Domains anew in each step, and reads them only after
// the caller stored PhaseInvalid. It leaves ObservedGeneration, PodsObserved, WaitingFor, History and Conditions to the caller.
type Memory = v1alpha1.DomainRolloutStatus

const (
	maxAbandoned    = 10  // revisions of Memory.AbandonedRevisions
	maxReplacements = 500 // pods that are taken down at a time: they are stored
	maxDomains      = 500 // domains with numbers in Memory
)

// The stages of a replacement.
const (
	Evicting = "Evicting" // the old pod is there
	Gone     = "Gone"     // there is no pod
	Replaced = "Replaced" // the new pod is there and not healthy
)

// The reasons of failures.
const (
	PodUnhealthy   = "PodUnhealthy"
	PodMissing     = "PodMissing"
	PodTerminating = "PodTerminating"
	GateFailed     = "GateFailed"
)

// Step says what to do now. Memory must be stored first.
type Step struct {
	Memory Memory
	Evict  []Target
	// Delete has unready pods of an abandoned revision.
	Delete []Target
	// Withdraw has pods whose eviction may still be requested, and is no longer wanted.
	Withdraw []Target
	// Restore is the revision that the template must get, if it is not empty.
	Restore string
	// Foresee has the domains whose Overload decides about the next wave.
	Foresee []string
	Wait    Wait
	Events  []Event
	// Again is when time alone changes the step. It is zero if time does not.
	Again time.Time
}

// Target is a pod to evict, to delete, or to leave after all.
type Target struct {
	UID, Pod, Domain, Revision string
	// IfUnready evicts the pod only if a live read says that it is not ready. If it is ready, the eviction counts as denied.
	IfUnready bool
}

// Wait is what the rollout waits for.
type Wait struct {
	For    WaitReason
	Domain string
	Pod    string
	More   int       // how many more pods it waits for in the same way
	Until  time.Time // when it ends or fails, if that is known
	Reason string    // of a refusal
	// Approve is a domain that a person must approve: a pod in it must be replaced before others can be.
	Approve string
	// Down is how many pods of the domain are down, and Most how many may be.
	Down, Most int
	// Overload is expected, and MaxOverload is allowed.
	Overload, MaxOverload float64
	Failure               *v1alpha1.RolloutFailure
}

// WaitReason names what a rollout waits for.
type WaitReason string

// The reasons.
const (
	WaitNone        WaitReason = ""
	WaitEvicting    WaitReason = "Evicting"    // a pod must go
	WaitMissing     WaitReason = "Missing"     // a pod must be made
	WaitUnplaced    WaitReason = "Unplaced"    // a pod has no node
	WaitUnready     WaitReason = "Unready"     // a pod must be ready
	WaitReadyFor    WaitReason = "ReadyFor"    // a pod must stay ready
	WaitRefused     WaitReason = "Refused"     // a budget refuses
	WaitDown        WaitReason = "Down"        // too many are down by themselves
	WaitOrder       WaitReason = "Order"       // a pod of an earlier slot is not ready
	WaitEarlier     WaitReason = "Earlier"     // a pod of a domain before is not healthy
	WaitBake        WaitReason = "Bake"        // the wave must stay healthy
	WaitQuery       WaitReason = "Query"       // the query is false
	WaitQueryAnswer WaitReason = "QueryAnswer" // the query cannot be answered
	WaitOverload    WaitReason = "Overload"    // too much load is expected
	WaitPlan        WaitReason = "Plan"        // the expected load is not known
	WaitApproval    WaitReason = "Approval"    // a person must approve a domain
	WaitPaused      WaitReason = "Paused"      // a person paused it
	WaitFailure     WaitReason = "Failure"     // a person must look
	WaitAborted     WaitReason = "Aborted"     // a person ended it
	WaitRestore     WaitReason = "Restore"     // the template gets the revision before
	WaitNoPrevious  WaitReason = "NoPrevious"  // a rollback is wanted and there is nothing to go back to
)

// Event is something that happened.
type Event struct {
	Type    EventType
	Domains []string
	Failure *v1alpha1.RolloutFailure
	// From is the revision that was left.
	From string
	// Overload is what is expected of a wave that began, if its health gate asks.
	Overload *float64
}

// EventType names what happened.
type EventType string

// The events.
const (
	RolloutBegan     EventType = "RolloutBegan"
	RolloutRestarted EventType = "RolloutRestarted" // with a new revision before the last one was complete
	RollbackBegan    EventType = "RollbackBegan"    // with the revision that ran before
	WaveBegan        EventType = "WaveBegan"
	WaveDone         EventType = "WaveDone"
	RolloutPaused    EventType = "RolloutPaused"
	RolloutResumed   EventType = "RolloutResumed"
	RolloutFailed    EventType = "RolloutFailed"
	RolloutAborted   EventType = "RolloutAborted"
	RolloutComplete  EventType = "RolloutComplete"
)
