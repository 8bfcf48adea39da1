package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// TopologyDisruptionBudget limits how many pods of a workload may be down at
// a time in each failure domain. It is a PodDisruptionBudget with a topology:
// evictions beyond it are refused, and may be retried.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=tdb
// +kubebuilder:printcolumn:name="Min Available",type=string,JSONPath=`.spec.minAvailable`
// +kubebuilder:printcolumn:name="Max Unavailable",type=string,JSONPath=`.spec.maxUnavailable`
// +kubebuilder:printcolumn:name="Max Domains",type=string,JSONPath=`.spec.maxUnavailableDomains`,priority=1
// +kubebuilder:printcolumn:name="Allowed Disruptions",type=integer,JSONPath=`.status.disruptionsAllowed`
// +kubebuilder:printcolumn:name="Disturbed",type=integer,JSONPath=`.status.disturbedDomains`
// +kubebuilder:printcolumn:name="Enforced",type=string,JSONPath=`.status.conditions[?(@.type=="Enforced")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type TopologyDisruptionBudget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   TopologyDisruptionBudgetSpec   `json:"spec"`
	Status TopologyDisruptionBudgetStatus `json:"status,omitempty"`
}

// TopologyDisruptionBudgetList is a list of TopologyDisruptionBudgets.
//
// +kubebuilder:object:root=true
type TopologyDisruptionBudgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TopologyDisruptionBudget `json:"items"`
}

// TopologyDisruptionBudgetSpec sets the limits of a budget.
//
// +kubebuilder:validation:XValidation:rule="has(self.minAvailable) || has(self.maxUnavailable)",message="either minAvailable or maxUnavailable must be given",reason=FieldValueRequired,fieldPath=".maxUnavailable"
// +kubebuilder:validation:XValidation:rule="!has(self.minAvailable) || !has(self.maxUnavailable)",message="minAvailable and maxUnavailable cannot be given together",reason=FieldValueForbidden,fieldPath=".minAvailable"
type TopologyDisruptionBudgetSpec struct {
	// selector selects the pods of the namespace that the budget covers. As in
	// a PodDisruptionBudget, an empty one selects all pods, and without one no
	// pod is covered.
	//
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="each operator must be In or NotIn, with values, or Exists or DoesNotExist, without values",fieldPath=".matchExpressions"
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// nodeSelectorTerm restricts the nodes whose pods are covered, and divides
	// them into failure domains. A key with the operator Exists divides by its
	// value, several such keys by the tuple of values. Without such a key all
	// covered pods are one domain.
	//
	// +optional
	NodeSelectorTerm *NodeSelectorTerm `json:"nodeSelectorTerm,omitempty"`

	// minAvailable is how many pods of each domain must stay healthy: a number,
	// or a percentage of a domain's even share of all pods, rounded up.
	//
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 2147483647 : string(self).matches('^([0-9]{1,2}|100)%$')",messageExpression="type(self) != int && string(self).matches('^[0-9]+$') ? 'must be a number, which is written without quotes: ' + string(self) + ', or a percentage' : 'must be a number of pods, 0 or more, or a percentage from 0% to 100%'"
	// +optional
	MinAvailable *intstr.IntOrString `json:"minAvailable,omitempty"`

	// maxUnavailable is how many pods of each domain may be down at a time: a
	// number, or a percentage of a domain's even share of all pods, rounded up.
	//
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 2147483647 : string(self).matches('^([0-9]{1,2}|100)%$')",messageExpression="type(self) != int && string(self).matches('^[0-9]+$') ? 'must be a number, which is written without quotes: ' + string(self) + ', or a percentage' : 'must be a number of pods, 0 or more, or a percentage from 0% to 100%'"
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// maxUnavailableDomains is how many domains may be disturbed at a time. A
	// domain is disturbed while any of its pods is down, and until all of them
	// have been ready for settleTime.
	//
	// +kubebuilder:validation:Minimum=0
	// +optional
	MaxUnavailableDomains *int32 `json:"maxUnavailableDomains,omitempty"`

	// maxUnavailableTotal is how many pods may be down in all domains together:
	// a number, or a percentage of all expected pods, rounded up.
	//
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 2147483647 : string(self).matches('^([0-9]{1,2}|100)%$')",messageExpression="type(self) != int && string(self).matches('^[0-9]+$') ? 'must be a number, which is written without quotes: ' + string(self) + ', or a percentage' : 'must be a number of pods, 0 or more, or a percentage from 0% to 100%'"
	// +optional
	MaxUnavailableTotal *intstr.IntOrString `json:"maxUnavailableTotal,omitempty"`

	// groupBy is the key of a pod label. Pods with different values, for
	// example the shards of a database, have a budget each.
	//
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$') && self.indexOf('/') <= 253",messageExpression="'\"' + self + '\" is not a key that a label can have, such as example.com/shard'"
	// +optional
	GroupBy string `json:"groupBy,omitempty"`

	// settleTime is how long all pods of a domain must be ready before the
	// domain no longer counts as disturbed, at most 24h. Only
	// maxUnavailableDomains uses it.
	//
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self == '0' || self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(ns|us|ms|s|m|h))+$') && duration(self) <= duration('24h')",message="must be a duration from 0s to 24h, such as 90s or 5m"
	// +optional
	SettleTime *metav1.Duration `json:"settleTime,omitempty"`

	// unhealthyPodEvictionPolicy decides when running pods that are not ready
	// may be evicted. IfHealthyBudget, the default, allows it while nothing
	// else exceeds the budget. AlwaysAllow allows it at any time.
	//
	// +kubebuilder:validation:Enum=IfHealthyBudget;AlwaysAllow
	// +optional
	UnhealthyPodEvictionPolicy *policyv1.UnhealthyPodEvictionPolicyType `json:"unhealthyPodEvictionPolicy,omitempty"`
}

// NodeSelectorTerm selects nodes like a term of a pod's node affinity, but by
// labels only.
type NodeSelectorTerm struct {
	// matchExpressions are requirements for the labels of a node. A node must
	// meet all of them.
	//
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(e, e.operator != 'Exists' || self.exists_one(other, other.operator == 'Exists' && other.key == e.key))",message="a key may be given with Exists once only"
	// +optional
	// +listType=atomic
	MatchExpressions []NodeSelectorRequirement `json:"matchExpressions,omitempty"`

	// matchFields cannot be given: domains are made of labels.
	//
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.size() == 0",message="fields of nodes are not supported; use matchExpressions, which are about labels",reason=FieldValueForbidden
	// +optional
	// +listType=atomic
	MatchFields []corev1.NodeSelectorRequirement `json:"matchFields,omitempty"`
}

// NodeSelectorRequirement is a requirement for one label of a node.
//
// +kubebuilder:validation:XValidation:rule="!(self.operator in ['In', 'NotIn']) || has(self.values) && self.values.size() > 0",message="In and NotIn need one value or more",reason=FieldValueRequired,fieldPath=".values"
// +kubebuilder:validation:XValidation:rule="!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || self.values.size() == 0",message="Exists and DoesNotExist take no values",reason=FieldValueForbidden,fieldPath=".values"
// +kubebuilder:validation:XValidation:rule="!(self.operator in ['Gt', 'Lt']) || has(self.values) && self.values.size() == 1 && self.values[0].matches('^[0-9]{1,18}$')",message="Gt and Lt need exactly one value, a whole number in quotes",fieldPath=".values"
type NodeSelectorRequirement struct {
	// key is the key of the label. failure-domain.beta.kubernetes.io/zone and
	// /region mean topology.kubernetes.io/zone and /region on nodes without the
	// former.
	//
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$') && self.indexOf('/') <= 253",messageExpression="'\"' + self + '\" is not a key that a node label can have, such as topology.kubernetes.io/zone'"
	Key string `json:"key"`

	// operator compares the value of the label with values.
	//
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist;Gt;Lt
	Operator corev1.NodeSelectorOperator `json:"operator"`

	// values are one or more for In and NotIn, none for Exists and
	// DoesNotExist, and one whole number for Gt and Lt.
	//
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
	// +optional
	// +listType=atomic
	Values []string `json:"values,omitempty"`
}

// TopologyDisruptionBudgetStatus is the state of the covered pods, and the
// admitted evictions that are still in progress.
type TopologyDisruptionBudgetStatus struct {
	// observedGeneration is the generation of the spec that the rest of the
	// status describes.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// expectedPods is how many pods the owners of the covered pods request.
	ExpectedPods int32 `json:"expectedPods"`

	// currentHealthy is how many covered pods are healthy and not about to be
	// evicted.
	CurrentHealthy int32 `json:"currentHealthy"`

	// desiredHealthy is how many pods must stay healthy, in all domains.
	DesiredHealthy int32 `json:"desiredHealthy"`

	// disruptionsAllowed is how many pods could be evicted now, one after
	// another, in the order that allows the most evictions.
	DisruptionsAllowed int32 `json:"disruptionsAllowed"`

	// disturbedDomains is how many domains have a pod that is down, missing,
	// about to be evicted, not settled, or taken out of service by a ZoneShift.
	DisturbedDomains int32 `json:"disturbedDomains"`

	// domains has the numbers of each domain, by group and name. Of more than
	// 500 domains it has the 500 that allow the fewest evictions.
	//
	// +kubebuilder:validation:MaxItems=500
	// +listType=atomic
	// +optional
	Domains []DomainStatus `json:"domains,omitempty"`

	// reservations are admitted evictions. A pod with a reservation counts as
	// down. The reservation ends when the pod is gone, or when it expires.
	//
	// +listType=map
	// +listMapKey=uid
	// +optional
	Reservations []Reservation `json:"reservations,omitempty"`

	// podsObserved is a resource version. Reservations of pods that were gone
	// by then are not listed any more. So only a reader of pods that has seen
	// this version may admit an eviction.
	//
	// +optional
	PodsObserved string `json:"podsObserved,omitempty"`

	// conditions report whether the budget is enforced, and its problems.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// DomainStatus has the numbers of one domain, or of one group in a domain if
// the budget has groupBy.
type DomainStatus struct {
	// domain has the values of the keys that divide nodes into domains, in the
	// order of the keys, separated by slashes. It is empty if the budget has
	// one domain.
	//
	// +optional
	Domain string `json:"domain,omitempty"`

	// group is the value of the label that groupBy names.
	//
	// +optional
	Group string `json:"group,omitempty"`

	// expected is how many pods the domain should have, which is its share of
	// all pods.
	Expected int32 `json:"expected"`

	// healthy is how many of its pods are healthy and not about to be evicted.
	Healthy int32 `json:"healthy"`

	// desired is how many of its pods must stay healthy.
	Desired int32 `json:"desired"`

	// allowed is how many more pods of this domain may be evicted now.
	Allowed int32 `json:"allowed"`

	// disturbed is true while a pod of the domain is down, missing, about to
	// be evicted or not settled.
	//
	// +optional
	Disturbed bool `json:"disturbed,omitempty"`

	// shift names a ZoneShift that takes pods of the domain out of service.
	// Evictions in other domains count the domain as disturbed.
	//
	// +optional
	Shift string `json:"shift,omitempty"`
}

// Reservation is an admitted eviction.
type Reservation struct {
	// uid is the UID of the pod.
	UID types.UID `json:"uid"`

	// pod is the name of the pod.
	Pod string `json:"pod"`

	// expires is when the reservation ends if the pod is not gone before.
	Expires metav1.Time `json:"expires"`

	// holder is the request that made the reservation, and gives it up if the
	// eviction is refused elsewhere. It is empty once the reservation has
	// admitted another request for the same pod.
	//
	// +optional
	Holder string `json:"holder,omitempty"`
}

// Conditions of a TopologyDisruptionBudget.
const (
	// ConditionEnforced is true while evictions are checked: the controller has
	// read back the label LabelBudgets of the namespace.
	ConditionEnforced = "Enforced"
	// ConditionValid is false while the spec is invalid. All evictions of the
	// pods that the selector matches are then refused.
	ConditionValid = "Valid"
	// ConditionSatisfiable is false while the numbers block a domain
	// permanently, or cover no pod.
	ConditionSatisfiable = "Satisfiable"
	// ConditionBreakGlass is true while AnnotationBreakGlass allows all
	// evictions.
	ConditionBreakGlass = "BreakGlass"
	// ConditionDisruptionAllowed is false while no pod can be evicted, as in a
	// PodDisruptionBudget. Its transition time is the time of the last admitted
	// eviction.
	ConditionDisruptionAllowed = "DisruptionAllowed"
	// ConditionDeletesDirectly is true while an owner of covered pods deletes
	// pods without evictions in a rollout, before others are available. The
	// budget cannot stop such deletions.
	ConditionDeletesDirectly = "DeletesDirectly"
	// ConditionProjected reports whether the controller keeps
	// PodDisruptionBudgets for the budget.
	ConditionProjected = "Projected"
)
