// Package rollout decides how the pods of a workload are replaced, one failure domain after the other. Next returns the
// next actions as data. It takes pods down and never creates one: the controller of the workload does that. Package disruption decides
// whether a budget allows an eviction. Its refusals are part of the State.
//
// The invariant: the rollout never takes down more pods of a domain than Spec.MaxUnavailable. It takes no healthy pod while that
// many pods of the domain are down for any visible reason, and takes down ready pods only in the domains of the current wave.
// A wave starts when all pods of the earlier domains are healthy again. The invariant holds if the caller
//
//   - starts each step from the stored Memory, and stores Step.Memory before it carries out the step. The write
//     must fail if the stored Memory has changed meanwhile, even if the step changes nothing: a pod counts as down before its
//     eviction is requested;
//   - passes the Pods of one moment, at least as new as those of the step that made the Memory. So the Memory is
//     stored with their version;
//   - passes a Revision that is not older than that of the Memory;
//   - evicts and deletes with the UID as a precondition. It deletes a pod, or evicts one with Target.IfUnready, only if a live
//     read shows that the pod is not ready;
//   - sets Refusal.Denied only if the pod existed after the last request for it by any caller, and no request for it is pending.
//     An unknown outcome is not a denial.
//
// A slot counts in the domain where its pod was taken down until it has a healthy pod, wherever that is.
//
// The rollout ends if pods become healthy and budgets allow it. A replaced pod stays in Memory until its replacement
// is healthy, so that a restarted controller counts the same.
//
// # Deployments
//
// A Deployment asks no budget, and chooses which pods its ReplicaSets delete: first those without a node, pending or
// not ready, then by deletion cost. With maxUnavailable: 0 it deletes as many old pods as it has ready new ones beyond its
// replicas. So a scheduling gate holds new pods. Each time that Step.Evict names a pod of a Surge, the caller
//
//   - reserves the pod with its budgets,
//   - gives it the lowest deletion cost, and
//   - releases a held pod into the slot, bound to Target.Domain. It releases none if the slot already has a new pod that is not
//     ready, or if the workload has more pods than replicas: then the old pod is about to be deleted.
//
// The pod counts as denied if it cannot be reserved and no pod was released for it. One uncertainty remains: the Deployment may delete
// an unready old pod of any domain instead. No healthy pod is lost by that, and the old pod stays a replacement until another
// new pod is ready. Nothing may be released while a cost of another owner is lower. A Deployment first shrinks the oldest of its old
// ReplicaSets: a pod of another ReplicaSet is evicted, and its place is filled once it is gone.
package rollout

import (
	"time"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// Kind is the way that a workload replaces pods.
type Kind int

// The kinds.
const (
	// InPlace creates a new pod once the old one of its slot is gone, as a DaemonSet or a StatefulSet with parallel pod management does.
	InPlace Kind = iota
	// Ordered is InPlace, but creates no pod while one of an earlier slot is not ready, as a StatefulSet does by default.
	Ordered
	// Surge creates the new pod first, and deletes the old one when the new one is ready, as a Deployment does. The slot of
	// an old pod is its own name. A new pod has the slot of the old pod that it was released for.
	Surge
)

// Amount is a number of pods, or a percentage of the pods of a domain.
type Amount struct {
	Value   int
	Percent bool
}

// Of returns the number of pods. It is at least one, because with none no rollout would end.
func (a Amount) Of(pods int) int {
	if !a.Percent {
		return max(1, a.Value)
	}
	return max(1, (a.Value*pods+99)/100)
}

// Spec configures how pods are replaced.
type Spec struct {
	Order          []string // domains that come first; the others follow by name, "" last
	MaxUnavailable Amount   // of each domain
	Waves          Waves
	Bake           time.Duration // how long a wave must stay healthy
	PauseBefore    []string
	Approved       Approved
	Paused         bool
	ReadyFor       time.Duration // how long an updated pod must be ready to be healthy
	Deadline       time.Duration // how long each stage of a replacement may take
	HasQuery       bool          // whether State.Query counts
	MaxOverload    *float64      // the limit of State.Overload, nil for none; 0.4 is 40 %
	// RollsBack replaces a failed revision by the previous one. Otherwise the rollout waits.
	RollsBack bool
	Stop      Stop
}

// Waves says how many domains are updated at a time.
type Waves struct {
	// Exponential makes waves of 1, 2, 4, ... domains, as domains prove healthy. Most bounds them, unless it is 0.
	Exponential bool
	Most        int
	All         bool // makes one wave of all domains
	Domains     int  // of each wave otherwise, 0 for 1
}

// Approved has the approvals of a person for one revision.
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

// StopAction is how a stopped rollout ends.
type StopAction int

// The actions.
const (
	Abort    StopAction = iota // leaves the pods as they are
	Rollback                   // restores the previous revision
)

// State is the whole input of a step.
type State struct {
	Spec     Spec
	Kind     Kind
	Revision string // of new pods
	// Slots are the expected slots, in order if the Kind has one. The controller of the workload is about to remove pods of other slots, so
	// Next leaves them alone.
	Slots []Slot
	Pods  []Pod
	// Refusals has refusals by the UID of the pod.
	Refusals map[string]Refusal
	Query    Truth
	// Overload has, by domain, the overload that plans expect while the domain is empty. A missing domain is unknown. Only the domains of
	// Step.Foresee count.
	Overload map[string]float64
	Shift    Shift
	Memory   Memory
}

// Shift is a ZoneShift that takes nodes with pods of the workload out of service until a time. No wave starts before, except of a
// rollback: the pods in other domains have the load.
type Shift struct {
	Name, Key, Domain string
	Until             time.Time
}

// Slot identifies a pod and its replacement: by the name in a StatefulSet, by the node in a DaemonSet.
type Slot struct {
	Name string
	// Domain is the only domain where its pod fits. HasDomain is false if the pod fits several.
	Domain    string
	HasDomain bool
}

// Pod is a pod of the workload.
type Pod struct {
	UID, Name, Slot string
	Revision        string
	Placed          bool   // it has a node
	Domain          string // of its node, or of the only node where it fits; "" without the label
	Terminating     bool   // or finished
	Ready           bool
	// Since is when it became ready or unready, or by when a terminating pod must be gone.
	Since time.Time
	// Released is when a held pod of a Surge was released, before which it could not become ready. It is zero for other pods.
	Released time.Time
}

// Refusal says why a pod cannot be evicted now.
type Refusal struct {
	Reason string
	Until  time.Time // when to try again, zero if unknown
	// Denied says that the eviction was requested, and then not admitted or withdrawn. Otherwise it was not requested yet.
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

// Memory is stored between steps: the status of the DomainRollout.
//
// Next reads and writes Phase, Revision, PreviousRevision, AbandonedRevisions, Wave, CurrentDomains, LastDomains, ProvenDomains,
// BakingSince, RollingBack, QueryPassed, Failure and Replacements. It rewrites Domains in each step, and reads them only after
// the caller stored PhaseInvalid. The caller sets ObservedGeneration, PodsObserved, WaitingFor, History and Conditions.
type Memory = v1alpha1.DomainRolloutStatus

const (
	maxAbandoned    = 10  // revisions of Memory.AbandonedRevisions
	maxReplacements = 500 // stored replacements
	maxDomains      = 500 // domains with numbers in Memory
)

// The stages of a replacement.
const (
	Evicting = "Evicting" // the old pod exists
	Gone     = "Gone"     // the slot has no pod
	Replaced = "Replaced" // the new pod exists and is not healthy
)

// The reasons of failures.
const (
	PodUnhealthy   = "PodUnhealthy"
	PodMissing     = "PodMissing"
	PodTerminating = "PodTerminating"
	GateFailed     = "GateFailed"
)

// Step has the next actions. Memory must be stored first.
type Step struct {
	Memory Memory
	Evict  []Target
	// Delete has unready pods of an abandoned revision.
	Delete []Target
	// Withdraw has pods whose standing requests are no longer wanted.
	Withdraw []Target
	// Restore, if not empty, is the revision to write into the template.
	Restore string
	// Foresee has the domains whose Overload the next wave depends on.
	Foresee []string
	Wait    Wait
	Events  []Event
	// Again is the time at which the step changes by itself, zero for never.
	Again time.Time
}

// Target is a pod to evict, to delete, or to withdraw the request for.
type Target struct {
	UID, Pod, Domain, Revision string
	// IfUnready evicts the pod only if a live read shows that it is not ready. For a ready pod the eviction counts as denied.
	IfUnready bool
}

// Wait says what the rollout waits for.
type Wait struct {
	For    WaitReason
	Domain string
	Pod    string
	More   int       // further pods that it waits for in the same way
	Until  time.Time // when the wait ends or fails, if known
	Reason string    // of a refusal
	// Approve is a domain that a person must approve, because a pod in it must be replaced first.
	Approve string
	// Down is the number of pods of the domain that are down, and Most the allowed number.
	Down, Most int
	// Overload is expected, and MaxOverload is allowed.
	Overload, MaxOverload float64
	Failure               *v1alpha1.RolloutFailure
	Shift                 Shift
}

// WaitReason names what a rollout waits for.
type WaitReason string

// The reasons.
const (
	WaitNone        WaitReason = ""
	WaitEvicting    WaitReason = "Evicting"    // a pod must go
	WaitMissing     WaitReason = "Missing"     // a pod must be created
	WaitUnplaced    WaitReason = "Unplaced"    // a pod has no node
	WaitUnready     WaitReason = "Unready"     // a pod must be ready
	WaitReadyFor    WaitReason = "ReadyFor"    // a pod must stay ready
	WaitRefused     WaitReason = "Refused"     // a budget refuses
	WaitDown        WaitReason = "Down"        // too many are down by themselves
	WaitOrder       WaitReason = "Order"       // a pod of an earlier slot is not ready
	WaitEarlier     WaitReason = "Earlier"     // a pod of an earlier domain is not healthy
	WaitShift       WaitReason = "Shift"       // a ZoneShift takes pods out of service
	WaitBake        WaitReason = "Bake"        // the wave must stay healthy
	WaitQuery       WaitReason = "Query"       // the query is false
	WaitQueryAnswer WaitReason = "QueryAnswer" // the query cannot be answered
	WaitOverload    WaitReason = "Overload"    // too much load is expected
	WaitPlan        WaitReason = "Plan"        // the expected load is unknown
	WaitApproval    WaitReason = "Approval"    // a person must approve a domain
	WaitPaused      WaitReason = "Paused"      // a person paused it
	WaitFailure     WaitReason = "Failure"     // a person must look
	WaitAborted     WaitReason = "Aborted"     // a person ended it
	WaitRestore     WaitReason = "Restore"     // the template must get the previous revision
	WaitNoPrevious  WaitReason = "NoPrevious"  // a rollback is requested, but no previous revision is known
)

// Event is something that happened.
type Event struct {
	Type    EventType
	Domains []string
	Failure *v1alpha1.RolloutFailure
	// From is the earlier revision.
	From string
	// Overload is expected of a started wave, if its health gate limits it.
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
