package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ZoneShift takes the endpoints of a zone, or of another domain, out of service
// for a while. New connections go to endpoints outside. Deleting the object
// brings the endpoints back.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=zs
// +kubebuilder:printcolumn:name="From",type=string,JSONPath=`.spec.from.value`
// +kubebuilder:printcolumn:name="Until",type=string,JSONPath=`.status.until`
// +kubebuilder:printcolumn:name="Services",type=integer,JSONPath=`.status.services`
// +kubebuilder:printcolumn:name="Yielding",type=integer,JSONPath=`.status.yielding`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="In force",type=string,JSONPath=`.status.conditions[?(@.type=="InForce")].reason`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.spec.reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ZoneShift struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ZoneShiftSpec   `json:"spec"`
	Status ZoneShiftStatus `json:"status,omitempty"`
}

// ZoneShiftList is a list of ZoneShifts.
//
// +kubebuilder:object:root=true
type ZoneShiftList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ZoneShift `json:"items"`
}

// ZoneShiftSpec says which endpoints leave, for how long and how far.
type ZoneShiftSpec struct {
	// from is the domain whose endpoints get no new connections. It cannot be
	// changed.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed; delete the ZoneShift, and create one for the other domain"
	From ShiftedDomain `json:"from"`

	// for is how long the shift lasts, counted from the creation of the object:
	// at least 1m and at most 72h. Raise it to extend the shift.
	//
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('1m') && duration(self) <= duration('72h')",message="must be a duration from 1m to 72h, such as 90m or 1h"
	For metav1.Duration `json:"for"`

	// ramp is how long the endpoints of Services that vicinity-proxy serves take
	// to leave, and to come back when the time is over: at most 1h. Other
	// Services move at once.
	//
	// +kubebuilder:default="1m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self == '0' || self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(ns|us|ms|s|m|h))+$') && duration(self) <= duration('1h')",message="must be a duration from 0s to 1h, such as 1m"
	// +optional
	Ramp *metav1.Duration `json:"ramp,omitempty"`

	// drainConnections is when connections to endpoints in the domain end,
	// counted from the end of the ramp: at most 1h. Only Services that
	// vicinity-proxy serves follow it. Without it, connections go on.
	//
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self == '0' || self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(ns|us|ms|s|m|h))+$') && duration(self) <= duration('1h')",message="must be a duration from 0s to 1h, such as 5m"
	// +optional
	DrainConnections *metav1.Duration `json:"drainConnections,omitempty"`

	// maxOverload is how much more load the endpoints outside may get by the
	// shift, in percent. A Service whose endpoints outside would get more yields:
	// its endpoints in the domain stay in service. A higher number forces the
	// shift.
	//
	// +kubebuilder:default=50
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	// +optional
	MaxOverload int32 `json:"maxOverload,omitempty"`

	// reason says why the domain is taken out of service. It is required.
	//
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.trim().size() > 0",message="must say why the domain is taken out of service"
	Reason string `json:"reason"`

	// services selects the Services that move. The default is all.
	//
	// +optional
	Services ShiftedServices `json:"services,omitempty"`
}

// ShiftedDomain is a domain of nodes.
type ShiftedDomain struct {
	// key is a node label. The default is topology.kubernetes.io/zone.
	//
	// +kubebuilder:default="topology.kubernetes.io/zone"
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$') && self.indexOf('/') <= 253",messageExpression="'\"' + self + '\" is not a key that a node label can have, such as topology.kubernetes.io/zone'"
	// +optional
	Key string `json:"key,omitempty"`

	// value is the value of the label on the nodes of the domain.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$')",messageExpression="'\"' + self + '\" is not a value that a node label can have, such as zone-a'"
	Value string `json:"value"`
}

// ShiftedServices selects Services by their namespaces and labels. Both must
// match.
type ShiftedServices struct {
	// namespaceSelector selects namespaces by their labels. The default is all.
	//
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="each operator must be In or NotIn, with values, or Exists or DoesNotExist, without values",fieldPath=".matchExpressions"
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// selector selects Services by their labels. The default is all.
	//
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="each operator must be In or NotIn, with values, or Exists or DoesNotExist, without values",fieldPath=".matchExpressions"
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// ZoneShiftStatus says how far the shift is in force, as read back from the
// cluster.
type ZoneShiftStatus struct {
	// observedGeneration is the generation that the status is about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// until is when the shift ends.
	//
	// +optional
	Until *metav1.Time `json:"until,omitempty"`

	// services counts the Services with ready endpoints in the domain that move.
	//
	// +optional
	Services int32 `json:"services,omitempty"`

	// yielding counts the Services that the shift would overload.
	//
	// +optional
	Yielding int32 `json:"yielding,omitempty"`

	// staying counts the Services whose connections, or some of them, still go
	// to the domain for other reasons. One that moves in part counts for
	// services, too.
	//
	// +optional
	Staying int32 `json:"staying,omitempty"`

	// stays names Services that yield, then Services that stay, with the reason.
	// At most 50 are listed.
	//
	// +kubebuilder:validation:MaxItems=50
	// +listType=atomic
	// +optional
	Stays []StayingService `json:"stays,omitempty"`

	// conditions are Accepted, InForce and Yielding.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// StayingService is a Service with endpoints in the domain that still get
// connections.
type StayingService struct {
	// namespace and name are those of the Service.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// reason says why its endpoints stay in service.
	Reason string `json:"reason"`
}

// Conditions of a ZoneShift besides Accepted.
const (
	// ConditionInForce says how far the shift is stored and programmed.
	ConditionInForce = "InForce"
	// ConditionYielding is true if any Service yields.
	ConditionYielding = "Yielding"
)
