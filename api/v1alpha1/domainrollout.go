package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// DomainRollout replaces the pods of a workload one failure domain after the
// other when its template changes. It evicts them, so that every budget holds.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=dr
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.targetRef.kind`
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.targetRef.name`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Domains",type=string,JSONPath=`.status.currentDomains`
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.revision`,priority=1
// +kubebuilder:printcolumn:name="Waiting For",type=string,JSONPath=`.status.waitingFor`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type DomainRollout struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   DomainRolloutSpec   `json:"spec"`
	Status DomainRolloutStatus `json:"status,omitempty"`
}

// DomainRolloutList is a list of DomainRollouts.
//
// +kubebuilder:object:root=true
type DomainRolloutList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DomainRollout `json:"items"`
}

// DomainRolloutSpec is how the pods of a workload are replaced.
type DomainRolloutSpec struct {
	// targetRef names the workload, of the same namespace. A StatefulSet and a
	// DaemonSet need the update strategy OnDelete, a Deployment needs a rolling
	// update with maxUnavailable: 0 and the scheduling gate vicinity.dev/rollout
	// in its pod template.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed; make another DomainRollout for another workload",reason=FieldValueForbidden
	TargetRef RolloutTarget `json:"targetRef"`

	// topologyKey is the label of nodes whose values are the failure domains,
	// such as topology.kubernetes.io/zone.
	//
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$') && self.indexOf('/') <= 253",messageExpression="'\"' + self + '\" is not a key that a node label can have, such as topology.kubernetes.io/zone'"
	TopologyKey string `json:"topologyKey"`

	// order has the domains that come first. The others follow by name, and
	// pods on nodes without the label come last. A domain that does not exist
	// is passed over, and the condition Valid says so.
	//
	// +kubebuilder:validation:MaxItems=500
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$`
	// +listType=set
	// +optional
	Order []string `json:"order,omitempty"`

	// maxUnavailable is how many pods of a domain may be unavailable at a time
	// for the rollout to take one more, as a number or as a percentage of the
	// domain's pods, rounded up. It is 1 unless it is given.
	//
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 2147483647 : string(self).matches('^([1-9][0-9]?|100)%$')",messageExpression="type(self) != int && string(self).matches('^[0-9]+$') ? 'must be a number, which is written without quotes: ' + string(self) + ', or a percentage' : 'must be a number of pods, 1 or more, or a percentage from 1% to 100%'"
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// waves say how many domains are updated at a time: one, unless they are given.
	//
	// +optional
	Waves *RolloutWaves `json:"waves,omitempty"`

	// bakeTime is how long all pods of a wave have to stay healthy before the
	// next wave begins, at most 168h. A rollback does not wait for it.
	//
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self == '0' || self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(ns|us|ms|s|m|h))+$') && duration(self) <= duration('168h')",message="must be a duration from 0s to 168h, such as 90s or 5m"
	// +optional
	BakeTime *metav1.Duration `json:"bakeTime,omitempty"`

	// pauseBefore has the domains before which the rollout waits until they are
	// in approved. A rollback does not wait.
	//
	// +kubebuilder:validation:MaxItems=500
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$`
	// +listType=set
	// +optional
	PauseBefore []string `json:"pauseBefore,omitempty"`

	// approved lets a rollout of one revision go on where it waits for a person.
	//
	// +optional
	Approved *RolloutApproval `json:"approved,omitempty"`

	// paused stops all evictions while it is true. A wave that baked bakes anew
	// afterwards.
	//
	// +optional
	Paused bool `json:"paused,omitempty"`

	// healthGate says when updated pods are healthy, and what else has to be
	// well for the rollout to go on.
	//
	// +optional
	HealthGate *HealthGate `json:"healthGate,omitempty"`

	// onFailure is what is done when an updated pod or the health gate fails:
	// Pause, the default, waits for a person, Rollback restores the revision
	// that ran before.
	//
	// +optional
	OnFailure FailureAction `json:"onFailure,omitempty"`

	// stop ends the rollout of one revision.
	//
	// +optional
	Stop *RolloutStop `json:"stop,omitempty"`
}

// RolloutTarget names a workload.
type RolloutTarget struct {
	// kind is StatefulSet, DaemonSet or Deployment.
	//
	// +kubebuilder:validation:Enum=StatefulSet;DaemonSet;Deployment
	Kind string `json:"kind"`

	// name is that of the workload.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",messageExpression="'\"' + self + '\" is not a name that a workload can have'"
	Name string `json:"name"`
}

// Kinds of a RolloutTarget.
const (
	KindStatefulSet = "StatefulSet"
	KindDaemonSet   = "DaemonSet"
	KindDeployment  = "Deployment"
)

// WaveType is how the number of domains of a wave grows.
//
// +kubebuilder:validation:Enum=Fixed;Exponential
type WaveType string

// The types of waves.
const (
	WavesFixed       WaveType = "Fixed"
	WavesExponential WaveType = "Exponential"
)

// RolloutWaves says how many domains are updated at a time.
//
// +kubebuilder:validation:XValidation:rule="!has(self.domains) || !has(self.type) || self.type != 'Exponential'",message="has no effect if type is Exponential, whose waves have 1, 2, 4, ... domains",reason=FieldValueForbidden,fieldPath=".domains"
// +kubebuilder:validation:XValidation:rule="!has(self.most) || has(self.type) && self.type == 'Exponential'",message="has no effect unless type is Exponential",reason=FieldValueForbidden,fieldPath=".most"
type RolloutWaves struct {
	// type is Fixed, the default, for waves of one size, or Exponential for
	// waves of 1, 2, 4, ... domains, as many more as proved healthy before.
	//
	// +optional
	Type WaveType `json:"type,omitempty"`

	// domains is how many domains each wave of the type Fixed has: 1 unless it
	// is given.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=500
	// +optional
	Domains *int32 `json:"domains,omitempty"`

	// most is how many domains a wave of the type Exponential has at most.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=500
	// +optional
	Most *int32 `json:"most,omitempty"`
}

// RolloutApproval lets a rollout of one revision go on. It has no effect on
// any other revision.
type RolloutApproval struct {
	// revision is the one that may go on, as in status.revision.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Revision string `json:"revision"`

	// domains are those of pauseBefore that may begin.
	//
	// +kubebuilder:validation:MaxItems=500
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	// +optional
	Domains []string `json:"domains,omitempty"`

	// failuresBefore is until when failures are forgiven: the rollout tries
	// again, and all deadlines begin then.
	//
	// +optional
	FailuresBefore *metav1.Time `json:"failuresBefore,omitempty"`
}

// HealthGate says when a rollout may go on.
type HealthGate struct {
	// readyFor is how long an updated pod has to be ready to be healthy, at
	// most 24h.
	//
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self == '0' || self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(ns|us|ms|s|m|h))+$') && duration(self) <= duration('24h')",message="must be a duration from 0s to 24h, such as 30s or 5m"
	// +optional
	ReadyFor *metav1.Duration `json:"readyFor,omitempty"`

	// progressDeadline is how long a pod may take to be ready, from 1s to
	// 24h. One that takes longer has failed. It is 10m unless it is given.
	//
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="must be a duration from 1s to 24h, such as 90s or 10m"
	// +optional
	ProgressDeadline *metav1.Duration `json:"progressDeadline,omitempty"`

	// prometheus has a query that has to stay true while a wave is updated and
	// bakes.
	//
	// +optional
	Prometheus *PrometheusGate `json:"prometheus,omitempty"`

	// maxOverload is the load above its even share that the plans of the
	// Services of the pods may expect of any endpoint while a domain is empty,
	// as a percentage from 0 to 1000. A wave that would exceed it does not begin.
	//
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{1,4}([.][0-9]{1,2})?%$') && double(self.substring(0, self.size() - 1)) <= 1000.0",message="must be a percentage from 0 to 1000, such as 40%"
	// +optional
	MaxOverload string `json:"maxOverload,omitempty"`
}

// PrometheusGate is a query that has to be true: its result is a scalar that
// is not 0, or a vector that has an element.
type PrometheusGate struct {
	// url is that of the server, such as http://prometheus.monitoring:9090.
	//
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() in ['http', 'https'] && url(self).getHostname() != ''",messageExpression="'\"' + self + '\" is not the URL of a server, such as http://prometheus.monitoring:9090'"
	URL string `json:"url"`

	// query is in PromQL.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Query string `json:"query"`
}

// FailureAction is what is done about a failure.
//
// +kubebuilder:validation:Enum=Pause;Rollback
type FailureAction string

// The actions.
const (
	FailurePause    FailureAction = "Pause"
	FailureRollback FailureAction = "Rollback"
)

// RolloutStop ends the rollout of one revision.
type RolloutStop struct {
	// revision is the one that is stopped, as in status.revision. Another
	// revision is not.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Revision string `json:"revision"`

	// action is Abort, which leaves the pods as they are, or Rollback, which
	// restores the revision that ran before.
	Action StopAction `json:"action"`
}

// StopAction is how a rollout ends.
//
// +kubebuilder:validation:Enum=Abort;Rollback
type StopAction string

// The actions.
const (
	StopAbort    StopAction = "Abort"
	StopRollback StopAction = "Rollback"
)

// RolloutPhase says where a rollout stands.
//
// +kubebuilder:validation:Enum=Waiting;Progressing;Baking;Paused;Failed;RollingBack;Aborted;Complete;Invalid
type RolloutPhase string

// The phases.
const (
	PhaseWaiting     RolloutPhase = "Waiting"     // a wave cannot begin yet
	PhaseProgressing RolloutPhase = "Progressing" // pods of a wave are replaced
	PhaseBaking      RolloutPhase = "Baking"      // a wave has to stay healthy for a while
	PhasePaused      RolloutPhase = "Paused"      // a person has to approve
	PhaseFailed      RolloutPhase = "Failed"      // a person has to look at it
	PhaseRollingBack RolloutPhase = "RollingBack" // the revision that ran before comes back
	PhaseAborted     RolloutPhase = "Aborted"     // a person ended it
	PhaseComplete    RolloutPhase = "Complete"    // every pod is of the revision
	PhaseInvalid     RolloutPhase = "Invalid"     // the target cannot be updated
)

// DomainRolloutStatus is how far a rollout is, and all that the controller
// remembers of it.
type DomainRolloutStatus struct {
	// observedGeneration is the generation of the spec that the rest of the
	// status is about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase is where the rollout stands.
	//
	// +optional
	Phase RolloutPhase `json:"phase,omitempty"`

	// revision is the one that the pods get.
	//
	// +optional
	Revision string `json:"revision,omitempty"`

	// previousRevision is the one that ran before, to which a rollback goes. It
	// is empty if there is none, and during a rollback.
	//
	// +optional
	PreviousRevision string `json:"previousRevision,omitempty"`

	// abandonedRevisions failed, were rolled back, or were replaced while a pod
	// that came with them was not ready. Their pods that are not ready are
	// deleted rather than evicted.
	//
	// +kubebuilder:validation:MaxItems=10
	// +listType=set
	// +optional
	AbandonedRevisions []string `json:"abandonedRevisions,omitempty"`

	// domains has the numbers of each domain, in the order in which they are
	// updated. Of more than 500 it has the first.
	//
	// +kubebuilder:validation:MaxItems=500
	// +listType=map
	// +listMapKey=name
	// +optional
	Domains []RolloutDomain `json:"domains,omitempty"`

	// wave is the number of the current or last wave of the revision, from 1.
	//
	// +optional
	Wave int32 `json:"wave,omitempty"`

	// currentDomains are those of the current wave. It is empty between waves.
	//
	// +kubebuilder:validation:MaxItems=500
	// +listType=set
	// +optional
	CurrentDomains []string `json:"currentDomains,omitempty"`

	// lastDomains are those of the wave before, at which a new revision begins.
	//
	// +kubebuilder:validation:MaxItems=500
	// +listType=set
	// +optional
	LastDomains []string `json:"lastDomains,omitempty"`

	// provenDomains is how many domains proved healthy with the revision.
	//
	// +optional
	ProvenDomains int32 `json:"provenDomains,omitempty"`

	// bakingSince is when all pods of the wave were healthy.
	//
	// +optional
	BakingSince *metav1.Time `json:"bakingSince,omitempty"`

	// rollingBack is true while the revision is the one that ran before.
	//
	// +optional
	RollingBack bool `json:"rollingBack,omitempty"`

	// queryPassed is true once the query of the health gate was true for a wave
	// of the revision. From then on it has to stay true.
	//
	// +optional
	QueryPassed bool `json:"queryPassed,omitempty"`

	// podsObserved is the resource version of the pods that the status was
	// decided by. A controller that has not seen it yet waits.
	//
	// +optional
	PodsObserved string `json:"podsObserved,omitempty"`

	// failure is why the rollout of the revision failed.
	//
	// +optional
	Failure *RolloutFailure `json:"failure,omitempty"`

	// replacements are pods that the rollout takes down, from before their
	// eviction is requested until the pod that comes instead is healthy.
	//
	// +listType=map
	// +listMapKey=slot
	// +optional
	Replacements []RolloutReplacement `json:"replacements,omitempty"`

	// waitingFor says in words what the rollout waits for.
	//
	// +optional
	WaitingFor string `json:"waitingFor,omitempty"`

	// history has the newest 20 transitions, the oldest first.
	//
	// +kubebuilder:validation:MaxItems=20
	// +listType=atomic
	// +optional
	History []RolloutTransition `json:"history,omitempty"`

	// conditions are Valid, Progressing and Healthy.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RolloutDomain has the numbers of one domain.
type RolloutDomain struct {
	// name is the value of the topologyKey, empty for pods on nodes without it
	// and for pods that have no node.
	Name string `json:"name"`

	// pods is how many pods are in the domain.
	Pods int32 `json:"pods"`

	// updated is how many of them are of the revision.
	Updated int32 `json:"updated"`

	// healthy is how many of the updated ones are healthy.
	Healthy int32 `json:"healthy"`

	// unavailable is how many of its pods are not ready, missing or being replaced.
	Unavailable int32 `json:"unavailable"`

	// state is how far the domain is.
	State RolloutDomainState `json:"state"`
}

// RolloutDomainState is how far a domain is.
//
// +kubebuilder:validation:Enum=Waiting;Updating;Baking;Done;Failed
type RolloutDomainState string

// The states of a domain.
const (
	DomainWaiting  RolloutDomainState = "Waiting"
	DomainUpdating RolloutDomainState = "Updating"
	DomainBaking   RolloutDomainState = "Baking"
	DomainDone     RolloutDomainState = "Done"
	DomainFailed   RolloutDomainState = "Failed"
)

// RolloutFailure is why the rollout of a revision failed.
type RolloutFailure struct {
	// reason is PodUnhealthy, PodMissing, PodTerminating or GateFailed.
	Reason string `json:"reason"`

	// domain is that of the pod, if it is about one.
	//
	// +optional
	Domain string `json:"domain,omitempty"`

	// pod is the name of the pod, if it is about one.
	//
	// +optional
	Pod string `json:"pod,omitempty"`

	// time is when it was noticed.
	Time metav1.Time `json:"time"`
}

// RolloutReplacement is a pod that is taken down to be replaced.
type RolloutReplacement struct {
	// slot is what the old pod and the new one have in common: the name of a
	// pod of a StatefulSet, the node of one of a DaemonSet, the old pod of a
	// Deployment for which the new one was released.
	Slot string `json:"slot"`

	// domain is that in which the pod is taken down.
	//
	// +optional
	Domain string `json:"domain,omitempty"`

	// pod is the name of the old pod.
	Pod string `json:"pod"`

	// uid is that of the old pod. It is empty if the pod has another revision,
	// was down already, and its eviction was refused: its stage is Replaced.
	UID types.UID `json:"uid"`

	// stage is Evicting until the old pod has gone, Gone until there is a new
	// one, and Replaced until that is healthy. The new pod of a Deployment comes
	// while the stage is Evicting.
	//
	// +kubebuilder:validation:Enum=Evicting;Gone;Replaced
	Stage string `json:"stage"`

	// since is when the stage began.
	Since metav1.Time `json:"since"`

	// ifUnready is true for a pod that is taken down only while it is not ready.
	//
	// +optional
	IfUnready bool `json:"ifUnready,omitempty"`
}

// RolloutTransition is something that happened to a rollout.
type RolloutTransition struct {
	// time is when it was noticed.
	Time metav1.Time `json:"time"`

	// event names what happened, as the reason of the event does that is
	// emitted with it.
	Event string `json:"event"`

	// revision is the one that it is about.
	//
	// +optional
	Revision string `json:"revision,omitempty"`

	// domains are those that it is about.
	//
	// +listType=atomic
	// +optional
	Domains []string `json:"domains,omitempty"`

	// message says in words what happened.
	//
	// +optional
	Message string `json:"message,omitempty"`
}

// Conditions of a DomainRollout, beside ConditionValid, which is false while
// the target cannot be updated or a part of the spec has no effect.
const (
	// ConditionProgressing is true while pods are replaced or a wave bakes.
	ConditionProgressing = "Progressing"
	// ConditionHealthy is false while an updated pod or the health gate has failed.
	ConditionHealthy = "Healthy"
)

// ReasonTargetNotFound is that of ConditionValid while there is no workload of
// spec.targetRef.
const ReasonTargetNotFound = "TargetNotFound"
