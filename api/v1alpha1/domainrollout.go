package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// DomainRollout replaces the pods of a workload one failure domain after
// another when its template changes. It evicts them, so that every budget is
// respected.
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

// DomainRolloutSpec describes how the pods of a workload are replaced.
//
// +kubebuilder:validation:XValidation:rule="!has(self.targetRef.apiVersion) || self.targetRef.apiVersion.startsWith('apps/') || !has(self.onFailure) || self.onFailure != 'Rollback'",message="Rollback needs a StatefulSet, a DaemonSet or a Deployment; of other kinds Vicinity writes no template",reason=FieldValueForbidden,fieldPath=".onFailure"
// +kubebuilder:validation:XValidation:rule="!has(self.targetRef.apiVersion) || self.targetRef.apiVersion.startsWith('apps/') || !has(self.stop) || self.stop.action != 'Rollback'",message="Rollback needs a StatefulSet, a DaemonSet or a Deployment; write the old template into the workload instead",reason=FieldValueForbidden,fieldPath=".stop"
type DomainRolloutSpec struct {
	// targetRef names the workload, which is in the same namespace. A
	// StatefulSet and a DaemonSet need the update strategy OnDelete. A
	// Deployment needs a rolling update with maxUnavailable: 0, and the
	// scheduling gate vicinity.dev/rollout in its pod template. docs/rollouts.md
	// says what other kinds need.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed; make another DomainRollout for another workload",reason=FieldValueForbidden
	TargetRef RolloutTarget `json:"targetRef"`

	// topologyKey is the node label whose values are the failure domains, such
	// as topology.kubernetes.io/zone.
	//
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$') && self.indexOf('/') <= 253",messageExpression="'\"' + self + '\" is not a key that a node label can have, such as topology.kubernetes.io/zone'"
	TopologyKey string `json:"topologyKey"`

	// order lists the first domains. The others follow by name, and pods on
	// nodes without the label come last. A domain that does not exist is
	// skipped, and the condition Valid says so.
	//
	// +kubebuilder:validation:MaxItems=500
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$`
	// +listType=set
	// +optional
	Order []string `json:"order,omitempty"`

	// maxUnavailable is how many pods of a domain may be unavailable at a time:
	// a number, or a percentage of the domain's pods, rounded up. It defaults
	// to 1.
	//
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 2147483647 : string(self).matches('^([1-9][0-9]?|100)%$')",messageExpression="type(self) != int && string(self).matches('^[0-9]+$') ? 'must be a number, which is written without quotes: ' + string(self) + ', or a percentage' : 'must be a number of pods, 1 or more, or a percentage from 1% to 100%'"
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// waves sets how many domains are updated at a time, by default one.
	//
	// +optional
	Waves *RolloutWaves `json:"waves,omitempty"`

	// bakeTime is how long all pods of a wave must stay healthy before the next
	// wave begins, at most 168h. A rollback skips it.
	//
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self == '0' || self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(ns|us|ms|s|m|h))+$') && duration(self) <= duration('168h')",message="must be a duration from 0s to 168h, such as 90s or 5m"
	// +optional
	BakeTime *metav1.Duration `json:"bakeTime,omitempty"`

	// pauseBefore lists domains that begin only once they are in approved. A
	// rollback does not wait for that.
	//
	// +kubebuilder:validation:MaxItems=500
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$`
	// +listType=set
	// +optional
	PauseBefore []string `json:"pauseBefore,omitempty"`

	// approved lets a rollout of one revision continue where it waits for a
	// person.
	//
	// +optional
	Approved *RolloutApproval `json:"approved,omitempty"`

	// paused stops all evictions while it is true. After a pause, a wave that
	// was baking starts to bake again.
	//
	// +optional
	Paused bool `json:"paused,omitempty"`

	// healthGate defines when updated pods are healthy, and which other
	// conditions the rollout needs to continue.
	//
	// +optional
	HealthGate *HealthGate `json:"healthGate,omitempty"`

	// onFailure is the action when an updated pod or the health gate fails.
	// Pause, the default, waits for a person. Rollback restores the previous
	// revision.
	//
	// +optional
	OnFailure FailureAction `json:"onFailure,omitempty"`

	// stop ends the rollout of one revision.
	//
	// +optional
	Stop *RolloutStop `json:"stop,omitempty"`
}

// RolloutTarget names a workload.
//
// +kubebuilder:validation:XValidation:rule="has(self.apiVersion) && !self.apiVersion.startsWith('apps/') || self.kind in ['StatefulSet', 'DaemonSet', 'Deployment']",messageExpression="'\"' + self.kind + '\" is not StatefulSet, DaemonSet or Deployment; a workload of another kind needs apiVersion, such as apps.kruise.io/v1alpha1'",fieldPath=".kind"
type RolloutTarget struct {
	// apiVersion is the group and version of a kind that is not of Kubernetes,
	// such as apps.kruise.io/v1alpha1. It defaults to apps/v1.
	//
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/v[0-9]+((alpha|beta)[0-9]+)?$')",messageExpression="'\"' + self + '\" is not a group and a version, such as apps.kruise.io/v1alpha1'"
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`

	// kind is StatefulSet, DaemonSet or Deployment, or another kind of
	// apiVersion.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Z][A-Za-z0-9]*$`
	Kind string `json:"kind"`

	// name is the name of the workload.
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

// WaveType is how the number of domains grows from wave to wave.
//
// +kubebuilder:validation:Enum=Fixed;Exponential;All
type WaveType string

// The types of waves.
const (
	WavesFixed       WaveType = "Fixed"
	WavesExponential WaveType = "Exponential"
	WavesAll         WaveType = "All"
)

// RolloutWaves sets how many domains are updated at a time.
//
// +kubebuilder:validation:XValidation:rule="!has(self.domains) || !has(self.type) || self.type == 'Fixed'",message="has no effect unless type is Fixed",reason=FieldValueForbidden,fieldPath=".domains"
// +kubebuilder:validation:XValidation:rule="!has(self.most) || has(self.type) && self.type == 'Exponential'",message="has no effect unless type is Exponential",reason=FieldValueForbidden,fieldPath=".most"
type RolloutWaves struct {
	// type is Fixed, the default, for waves of one size, Exponential for waves
	// of 1, 2, 4, ... domains, whose size doubles as domains prove healthy, or
	// All for one wave of all domains. A wave has at most 500 domains.
	//
	// +optional
	Type WaveType `json:"type,omitempty"`

	// domains is how many domains each wave of the type Fixed has, by default
	// 1.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=500
	// +optional
	Domains *int32 `json:"domains,omitempty"`

	// most is the maximum number of domains in a wave of the type Exponential.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=500
	// +optional
	Most *int32 `json:"most,omitempty"`
}

// RolloutApproval lets a rollout of one revision continue. It has no effect on
// any other revision.
type RolloutApproval struct {
	// revision is the approved revision, as in status.revision.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Revision string `json:"revision"`

	// domains are the domains of pauseBefore that may begin.
	//
	// +kubebuilder:validation:MaxItems=500
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	// +optional
	Domains []string `json:"domains,omitempty"`

	// failuresBefore is a time. Failures before it are forgiven, so the rollout
	// tries again, and all deadlines start at that time.
	//
	// +optional
	FailuresBefore *metav1.Time `json:"failuresBefore,omitempty"`
}

// HealthGate defines when a rollout may continue.
type HealthGate struct {
	// readyFor is how long an updated pod must be ready to count as healthy, at
	// most 24h.
	//
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self == '0' || self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(ns|us|ms|s|m|h))+$') && duration(self) <= duration('24h')",message="must be a duration from 0s to 24h, such as 30s or 5m"
	// +optional
	ReadyFor *metav1.Duration `json:"readyFor,omitempty"`

	// progressDeadline is how long a pod may take to become ready, from 1s to
	// 24h. A pod that takes longer has failed. It defaults to 10m.
	//
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="must be a duration from 1s to 24h, such as 90s or 10m"
	// +optional
	ProgressDeadline *metav1.Duration `json:"progressDeadline,omitempty"`

	// prometheus has a query that must stay true while a wave is updated and
	// bakes.
	//
	// +optional
	Prometheus *PrometheusGate `json:"prometheus,omitempty"`

	// maxOverload is the greatest load above its even share that the plans of
	// the pods' Services may expect of any endpoint while a domain is empty, as
	// a percentage from 0 to 1000. A wave that would exceed it does not begin.
	//
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{1,4}([.][0-9]{1,2})?%$') && double(self.substring(0, self.size() - 1)) <= 1000.0",message="must be a percentage from 0 to 1000, such as 40%"
	// +optional
	MaxOverload string `json:"maxOverload,omitempty"`
}

// PrometheusGate is a query that must be true: its result is a scalar other
// than 0, or a vector with an element.
type PrometheusGate struct {
	// url is the URL of the server, such as http://prometheus.monitoring:9090.
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

// FailureAction is the response to a failure.
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
	// revision is the stopped revision, as in status.revision. Other revisions
	// continue.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Revision string `json:"revision"`

	// action is Abort, which leaves the pods as they are, or Rollback, which
	// restores the previous revision.
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

// RolloutPhase is the phase of a rollout.
//
// +kubebuilder:validation:Enum=Waiting;Progressing;Baking;Paused;Failed;RollingBack;Aborted;Complete;Invalid
type RolloutPhase string

// The phases.
const (
	PhaseWaiting     RolloutPhase = "Waiting"     // a wave cannot begin yet
	PhaseProgressing RolloutPhase = "Progressing" // pods of a wave are replaced
	PhaseBaking      RolloutPhase = "Baking"      // a wave must stay healthy for a while
	PhasePaused      RolloutPhase = "Paused"      // waits for approval
	PhaseFailed      RolloutPhase = "Failed"      // needs attention
	PhaseRollingBack RolloutPhase = "RollingBack" // the previous revision is restored
	PhaseAborted     RolloutPhase = "Aborted"     // a person ended it
	PhaseComplete    RolloutPhase = "Complete"    // every pod has the revision
	PhaseInvalid     RolloutPhase = "Invalid"     // the target cannot be updated
)

// DomainRolloutStatus is the progress of a rollout, and the whole memory of the
// controller about it.
type DomainRolloutStatus struct {
	// observedGeneration is the generation of the spec that the rest of the
	// status describes.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase is the phase of the rollout.
	//
	// +optional
	Phase RolloutPhase `json:"phase,omitempty"`

	// revision is the revision that the pods get.
	//
	// +optional
	Revision string `json:"revision,omitempty"`

	// previousRevision is the revision that ran before, to which a rollback
	// returns. It is empty if there is none, and during a rollback.
	//
	// +optional
	PreviousRevision string `json:"previousRevision,omitempty"`

	// abandonedRevisions are revisions that failed, were rolled back, or were
	// replaced while one of their pods was not ready. Unready pods of these
	// revisions are deleted rather than evicted.
	//
	// +kubebuilder:validation:MaxItems=10
	// +listType=set
	// +optional
	AbandonedRevisions []string `json:"abandonedRevisions,omitempty"`

	// domains has the numbers of each domain, in the order of updates. Of more
	// than 500 domains it has the first 500.
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

	// currentDomains are the domains of the current wave. It is empty between
	// waves.
	//
	// +kubebuilder:validation:MaxItems=500
	// +listType=set
	// +optional
	CurrentDomains []string `json:"currentDomains,omitempty"`

	// lastDomains are the domains of the last wave, where a new revision
	// begins.
	//
	// +kubebuilder:validation:MaxItems=500
	// +listType=set
	// +optional
	LastDomains []string `json:"lastDomains,omitempty"`

	// provenDomains is how many domains have proved healthy with the revision.
	//
	// +optional
	ProvenDomains int32 `json:"provenDomains,omitempty"`

	// bakingSince is the time at which all pods of the wave were healthy.
	//
	// +optional
	BakingSince *metav1.Time `json:"bakingSince,omitempty"`

	// rollingBack is true while the rollout restores the previous revision.
	//
	// +optional
	RollingBack bool `json:"rollingBack,omitempty"`

	// queryPassed is true once the query of the health gate was true for a wave
	// of the revision. From then on it must stay true.
	//
	// +optional
	QueryPassed bool `json:"queryPassed,omitempty"`

	// podsObserved is the resource version of the pods that the status is based
	// on. A controller that has not seen it yet waits.
	//
	// +optional
	PodsObserved string `json:"podsObserved,omitempty"`

	// failure is the cause if the rollout of the revision failed.
	//
	// +optional
	Failure *RolloutFailure `json:"failure,omitempty"`

	// replacements are pods that the rollout takes down. An entry exists from
	// before the eviction is requested until the new pod is healthy.
	//
	// +listType=map
	// +listMapKey=slot
	// +optional
	Replacements []RolloutReplacement `json:"replacements,omitempty"`

	// waitingFor describes what the rollout waits for.
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
	// name is the value of the topologyKey. It is empty for pods on nodes
	// without the label, and for pods without a node.
	Name string `json:"name"`

	// pods is how many pods are in the domain.
	Pods int32 `json:"pods"`

	// updated is how many of them have the revision.
	Updated int32 `json:"updated"`

	// healthy is how many of the updated ones are healthy.
	Healthy int32 `json:"healthy"`

	// unavailable is how many of its pods are not ready, missing or being replaced.
	Unavailable int32 `json:"unavailable"`

	// state is the progress of the domain.
	State RolloutDomainState `json:"state"`
}

// RolloutDomainState is the progress of a domain.
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

// RolloutFailure is the cause of a failed rollout.
type RolloutFailure struct {
	// reason is PodUnhealthy, PodMissing, PodTerminating or GateFailed.
	Reason string `json:"reason"`

	// domain is the domain of the pod, if the failure is about one.
	//
	// +optional
	Domain string `json:"domain,omitempty"`

	// pod is the name of the pod, if the failure is about one.
	//
	// +optional
	Pod string `json:"pod,omitempty"`

	// time is when the failure was noticed.
	Time metav1.Time `json:"time"`
}

// RolloutReplacement is a pod that is taken down to be replaced.
type RolloutReplacement struct {
	// slot identifies the place that the old pod and the new one share: the
	// name of a pod of a StatefulSet, the node of a pod of a DaemonSet, or the
	// old pod of a Deployment that the new one was released for.
	Slot string `json:"slot"`

	// domain is the domain of the old pod.
	//
	// +optional
	Domain string `json:"domain,omitempty"`

	// pod is the name of the old pod.
	Pod string `json:"pod"`

	// uid is that of the old pod. It is empty if the pod has another revision,
	// was down already, and its eviction was refused: its stage is Replaced.
	UID types.UID `json:"uid"`

	// stage is Evicting until the old pod is gone, Gone until a new one exists,
	// and Replaced until that is healthy. The new pod of a Deployment is
	// created while the stage is Evicting.
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

// RolloutTransition is an event in the history of a rollout.
type RolloutTransition struct {
	// time is when the transition was noticed.
	Time metav1.Time `json:"time"`

	// event is the kind of transition. It equals the reason of the Kubernetes
	// event about it.
	Event string `json:"event"`

	// revision is the revision concerned.
	//
	// +optional
	Revision string `json:"revision,omitempty"`

	// domains are the domains concerned.
	//
	// +listType=atomic
	// +optional
	Domains []string `json:"domains,omitempty"`

	// message describes the transition.
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

// ReasonTargetNotFound is the reason of ConditionValid while the workload of
// spec.targetRef does not exist.
const ReasonTargetNotFound = "TargetNotFound"
