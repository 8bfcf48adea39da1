// Package rollout decides how the pods of a workload are replaced one failure domain after the
// other: Next says what to do now, as data. It takes pods down and never makes one; the
// controller of the workload does that. Whether a budget allows an eviction is decided by package
// disruption, and what that says about each pod is part of the State.
//
// The invariant: at no time are more pods of a domain down by the rollout than Spec.MaxUnavailable,
// it takes no healthy pod while that many of the domain are down for any reason that it sees, and it
// takes down ready pods of the current wave's domains only. A wave begins when all pods of the domains
// before it are healthy again. It holds if the caller
//
//   - starts each step from the stored Memory, and stores Step.Memory before it does anything that the
//     step says, with a write that fails if the stored one changed meanwhile, also where nothing changed:
//     a pod counts as down from before its eviction is requested,
//   - gives Pods that are those of one moment, and at least as new as those of the step that made the
//     Memory, which therefore has to be stored with their version,
//   - gives a Revision that is not older than that of the Memory,
//   - evicts and deletes with the UID as a precondition, and deletes only pods that a live read says are
//     not ready, as it evicts those with Target.IfUnready,
//   - sets Refusal.Denied only if the pod was there after the last request for it of any caller, and no
//     request for it is under way or standing; an outcome that is not known is no denial.
//
// A slot counts in the domain where its pod was taken down until it has a healthy pod, wherever.
//
// It ends if pods become healthy and budgets allow it. A pod that is replaced stays in Memory until
// the pod that comes instead is healthy, so that a restarted controller counts as the one before did.
//
// A Deployment asks no budget and chooses by itself which pods its ReplicaSets delete: those without a
// node, pending or not ready first, then by deletion cost. With maxUnavailable: 0 it deletes as many
// old pods as there are new ones ready beyond its replicas. So new pods are held by a scheduling gate,
// and what Step.Evict says of a Surge is done by the caller like this, each time that it is said:
// reserve the pod with its budgets, give it the lowest deletion cost, and release a held pod into the
// slot, bound to Target.Domain, unless the slot has a new pod and either that is not ready yet
// or there are more pods than replicas: then the old one is about to go. It
// counts as denied if it cannot be reserved and no pod was released for it. What stays uncertain is that an
// old pod which is not ready goes instead, of any domain: no healthy pod is lost by that, and the old
// one stays a Replacement until another new pod has come. Nothing may be released while the cost of
// another owner is lower. A Deployment makes the oldest of its old ReplicaSets smaller first: a pod of
// another one is evicted, and the place filled when it has gone.
package rollout

import (
	"time"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// Kind is how pods are replaced.
type Kind int

// The kinds.
const (
	// InPlace has a new pod made when the old one of its slot has gone, as a DaemonSet does and a
	// StatefulSet with parallel pod management.
	InPlace Kind = iota
	// Ordered is InPlace, and no pod is made while one of an earlier slot is not ready, as a
	// StatefulSet does by default.
	Ordered
	// Surge has the new pod made first, and its controller deletes the old one when the new one is
	// ready, as a Deployment does. The slot of an old pod is its own name, and a new pod is in the slot
	// of the old pod that it was released for.
	Surge
)

// Amount is a number of pods, or a percentage of those of a domain.
type Amount struct {
	Value   int
	Percent bool
}

// Of is the number of pods, at least one: with none no rollout would ever end.
func (a Amount) Of(pods int) int {
	if !a.Percent {
		return max(1, a.Value)
	}
	return max(1, (a.Value*pods+99)/100)
}

// Spec is how a rollout is wanted.
type Spec struct {
	Order          []string // domains that come first; the rest by name, "" last
	MaxUnavailable Amount   // of each domain
	Waves          Waves
	Bake           time.Duration // how long a wave has to stay healthy
	PauseBefore    []string
	Approved       Approved
	Paused         bool
	ReadyFor       time.Duration // how long an updated pod has to be ready to be healthy
	Deadline       time.Duration // how long a pod may take
	HasQuery       bool          // State.Query counts
	MaxOverload    *float64      // State.Overload counts; 0.4 is 40 %
	// RollsBack has a failed revision replaced by the one before. Else the rollout waits.
	RollsBack bool
	Stop      Stop
}

// Waves say how many domains are updated at a time.
type Waves struct {
	// Exponential has waves of 1, 2, 4, ... domains, as many more as proved healthy; Most, if not
	// 0, is how many at most.
	Exponential bool
	Most        int
	Domains     int // of each wave otherwise, 0 for 1
}

// Approved is what a person allows for one revision.
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

// State is all that a step depends on.
type State struct {
	Spec     Spec
	Kind     Kind
	Revision string // that new pods get
	// Slots are the places where a pod is expected. Where order matters they are in it. Pods of other
	// slots are about to be removed by their controller, and are left alone.
	Slots []Slot
	Pods  []Pod
	// Refusals are by the UID of a pod.
	Refusals map[string]Refusal
	Query    Truth
	// Overload is by domain what plans expect while it is empty. One that is not here is not known. Those of
	// Step.Foresee count.
	Overload map[string]float64
	Memory   Memory
}

// Slot is what a pod and the one that comes instead have in common: the name of a pod of a
// StatefulSet, the node of one of a DaemonSet.
type Slot struct {
	Name string
	// Domain is where its pod must be, if it can be in one domain only; HasDomain says so.
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
	// Since is when it became ready or unready, or when it has to be gone if it is terminating.
	Since time.Time
	// Released is when a pod of a Surge was released: it could not become ready before. Zero if it never was held.
	Released time.Time
}

// Refusal is why a pod cannot be evicted now.
type Refusal struct {
	Reason string
	Until  time.Time // when to try again, zero for not as long as the refusal is here
	// Denied says that the eviction was requested and not admitted, or withdrawn. Else it was not
	// requested yet.
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

// Memory is what has to be stored between steps: the status of the DomainRollout. Next leaves the words in it, the history, the
// conditions and the version of the pods to the caller.
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

// Step is what to do now. Memory is stored first.
type Step struct {
	Memory Memory
	Evict  []Target
	// Delete are unready pods of an abandoned revision.
	Delete []Target
	// Withdraw are pods whose eviction may be requested still and is not wanted any more.
	Withdraw []Target
	// Restore, if not empty, is the revision that the template has to get.
	Restore string
	// Foresee are the domains whose Overload decides on the next wave.
	Foresee []string
	Wait    Wait
	Events  []Event
	// Again is when time alone changes the step, zero if it does not.
	Again time.Time
}

// Target is a pod that something is done to.
type Target struct {
	UID, Pod, Domain, Revision string
	// IfUnready has the pod evicted only if a live read says that it is not ready. If it is, the
	// eviction counts as denied.
	IfUnready bool
}

// Wait is what the rollout waits for.
type Wait struct {
	For    WaitReason
	Domain string
	Pod    string
	More   int       // how many more pods it waits for alike
	Until  time.Time // when it ends or fails, if that is known
	Reason string    // of a refusal
	// Approve is the domain that a person has to approve before a pod can be replaced which others wait for.
	Approve string
	// Down is how many pods of the domain are down, and Most how many may be.
	Down, Most int
	// Overload is what is expected, and MaxOverload what is allowed.
	Overload, MaxOverload float64
	Failure               *v1alpha1.RolloutFailure
}

// WaitReason names what a rollout waits for.
type WaitReason string

// The reasons.
const (
	WaitNone        WaitReason = ""
	WaitEvicting    WaitReason = "Evicting"    // a pod has to go
	WaitMissing     WaitReason = "Missing"     // a pod has to be made
	WaitUnplaced    WaitReason = "Unplaced"    // a pod has no node
	WaitUnready     WaitReason = "Unready"     // a pod has to be ready
	WaitReadyFor    WaitReason = "ReadyFor"    // a pod has to be ready for so long
	WaitRefused     WaitReason = "Refused"     // a budget refuses
	WaitDown        WaitReason = "Down"        // too many are down by themselves
	WaitOrder       WaitReason = "Order"       // a pod of an earlier slot is not ready
	WaitEarlier     WaitReason = "Earlier"     // a pod of a domain before is not healthy
	WaitBake        WaitReason = "Bake"        // the wave has to stay healthy
	WaitQuery       WaitReason = "Query"       // the query is false
	WaitQueryAnswer WaitReason = "QueryAnswer" // the query cannot be answered
	WaitOverload    WaitReason = "Overload"    // too much load is expected
	WaitPlan        WaitReason = "Plan"        // the expected load is not known
	WaitApproval    WaitReason = "Approval"    // a person has to approve a domain
	WaitPaused      WaitReason = "Paused"      // a person paused it
	WaitFailure     WaitReason = "Failure"     // a person has to look
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
